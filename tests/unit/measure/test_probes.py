"""The machine-code probes do the work that their rates are computed from."""

from __future__ import annotations

import pytest
import torch

from fusebound.measure.probes import aligned, probes


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["copy", "stream"])
def test_a_copy_copies_everything(name: str, threads: int) -> None:
    loops = probes()
    count = 64 * threads
    nbytes = count * loops.vector_bytes
    source, target = aligned(nbytes), aligned(nbytes)
    source.random_(0, 256)
    getattr(loops, name).run(source.data_ptr(), target.data_ptr(), count, 2, threads)
    assert torch.equal(source, target)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_strided_probe_transposes(threads: int) -> None:
    loops = probes()
    x, y = torch.randn(64, 64), torch.zeros(64, 64)
    loops.strided.run(x.data_ptr(), y.data_ptr(), 64, 1, threads)
    assert torch.equal(y, x.t())


def test_the_arithmetic_probe_computes() -> None:
    loops = probes()
    out = torch.zeros(loops.lanes)
    loops.arithmetic.run(0, out.data_ptr(), 100, 1, 1)
    # a ← a·½ + ½ has the fixed point 1; twelve chains are added up.
    assert torch.allclose(out, torch.full_like(out, 12.0))


def test_memory_is_aligned() -> None:
    assert all(aligned(n).data_ptr() % 64 == 0 and aligned(n).numel() == n for n in (1, 100, 4096))
