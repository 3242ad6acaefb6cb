"""Pooled memory is handed out again only when nothing refers to it, whatever route the reference took."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from fusebound.runtime.pool import Pool

SHAPE, STRIDES = (1024, 512), (512, 1)
BYTES = 1024 * 512 * 4


@pytest.fixture
def take() -> Any:
    return Pool(64 * BYTES).allocator(SHAPE, STRIDES, torch.float32)


def test_released_memory_is_used_again(take: Any) -> None:
    first = take()
    address = first.data_ptr()
    assert take().data_ptr() != address
    del first
    assert address in {take().data_ptr() for _ in range(3)}


def test_strides_and_type_are_those_asked_for() -> None:
    t = Pool(64 * BYTES).allocator((512, 1024), (1, 512), torch.bfloat16)()
    assert (t.shape, t.stride(), t.dtype) == ((512, 1024), (1, 512), torch.bfloat16)


KEEPERS = {
    "a view": lambda t: t[3:],
    "a reshaped view": lambda t: t.view(-1)[5],
    "detach": lambda t: t.detach(),
    "numpy": lambda t: t.numpy(),
    "a numpy slice": lambda t: t.numpy()[2:, 1],
    "dlpack": lambda t: torch.utils.dlpack.to_dlpack(t),
    "from_dlpack": lambda t: torch.from_dlpack(t),
    "the storage": lambda t: t.untyped_storage(),
    "a typed storage": lambda t: t.storage(),
    "set_": lambda t: torch.empty(0).set_(t.untyped_storage()),
    "an alias": lambda t: torch.ops.aten.alias.default(t),
    "data": lambda t: t.data,
    "a parameter": lambda t: torch.nn.Parameter(t),
    "memoryview": lambda t: memoryview(t.numpy()),
    "a saved tensor": lambda t: (t.requires_grad_() * 2).grad_fn,
    "an iterator": lambda t: iter(t.unbind(0)),
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", KEEPERS)
def test_whatever_refers_to_memory_keeps_it(take: Any, name: str) -> None:
    t = take()
    address = t.data_ptr()
    kept = KEEPERS[name](t)
    del t
    gc.collect()
    others = [take() for _ in range(4)]
    if name != "a saved tensor":
        assert address not in {o.data_ptr() for o in others}
    del others
    del kept
    gc.collect()
    assert address in {o.data_ptr() for o in [take() for _ in range(8)]}


def test_gradients_flow_through_pooled_memory(take: Any) -> None:
    x = take().fill_(2.0).requires_grad_()
    address = x.data_ptr()
    y = (x * x).sum()
    del x
    filler = [take().fill_(7.0) for _ in range(4)]
    assert address not in {f.data_ptr() for f in filler}
    y.backward()


def test_resized_and_replaced_storages_are_forgotten(take: Any) -> None:
    t = take()
    t.resize_(10)
    t.untyped_storage().resize_(80 * BYTES)
    del t
    u = take()
    assert u.shape == SHAPE and u.untyped_storage().nbytes() == BYTES
    u.set_()
    del u
    v = take()
    v.fill_(1.0)
    assert v.shape == SHAPE and float(v.sum()) == v.numel()


def test_a_new_tensor_has_a_version_of_its_own(take: Any) -> None:
    t = take()
    t.add_(1)
    del t
    assert take()._version == 0


def test_the_cap_counts_what_the_user_holds() -> None:
    pool = Pool(2 * BYTES)
    take = pool.allocator(SHAPE, STRIDES, torch.float32)
    held = [take() for _ in range(5)]
    assert pool.usage.held == 2 * BYTES
    assert len({t.data_ptr() for t in held}) == 5
    del held
    assert pool.trim() == 2 * BYTES and pool.usage.held == 0


def test_trim_leaves_what_is_in_use() -> None:
    pool = Pool(64 * BYTES)
    take = pool.allocator(SHAPE, STRIDES, torch.float32)
    kept = take().fill_(3.0)
    take()
    assert pool.trim() == BYTES
    assert float(kept.sum()) == 3.0 * kept.numel() and pool.usage.held == BYTES


def test_small_tensors_and_a_pool_of_no_size_use_the_ordinary_allocator() -> None:
    for pool, shape in ((Pool(64 * BYTES), (3, 5)), (Pool(0), SHAPE)):
        strides = (shape[1], 1)
        held = [pool.allocator(shape, strides, torch.float32)() for _ in range(3)]
        assert pool.usage.held == 0 and all(t.shape == shape for t in held)


def test_eight_threads(take: Any) -> None:
    faults: list[str] = []

    def work(mark: float) -> None:
        kept: list[torch.Tensor] = []
        for k in range(150):
            t = take()
            t[:4].fill_(mark)
            kept.append(t[:4] if k % 3 else t)
            del t
            if len(kept) > 3:
                old = kept.pop(0)
                if not bool((old[:4] == mark).all()):
                    faults.append(f"memory of thread {mark} was written by another")

    threads = [threading.Thread(target=work, args=(float(i + 1),)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_inference_tensors_stay_in_inference_mode(take: Any) -> None:
    with torch.inference_mode():
        assert take().is_inference()
    assert not any(take().is_inference() for _ in range(3))
