"""Preconditions on memory: what was compiled for separate tensors is called on pieces of one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from fusebound.capture.overlap import disjoint, meet, meeting
from fusebound.capture.saved import captured_from_graph
from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.errors import FallbackError, FormatError, UsageError
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get

OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
Pieces = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def read_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * 2 + b).abs()


def written_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.mul_(2).add_(b)
    return b * 3 + a


def read_written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    b.sub_(a).mul_(a)
    return a - 1


def written_written(a: torch.Tensor, b: torch.Tensor) -> None:
    a.mul_(2).sub_(1)
    b.add_(3).mul_(2)


FUNCTIONS = (read_read, written_read, read_written, written_written)

PIECES: dict[str, Pieces] = {
    "same": lambda x: (x[:4, :6], x[:4, :6]),
    "rows apart": lambda x: (x[:4, :6], x[4:, :6]),
    "rows overlapping": lambda x: (x[1:5, :6], x[2:6, :6]),
    "columns apart": lambda x: (x[:4, :6], x[:4, 6:]),
    "columns overlapping": lambda x: (x[:4, :6], x[:4, 5:11]),
    "interleaved rows": lambda x: (x[::2, :6], x[1::2, :6]),
    "interleaved columns": lambda x: (x[:4, ::2], x[:4, 1::2]),
    "same start": lambda x: (x[:4, :6], x[:4, ::2]),
    "crossing": lambda x: (x[:4, :6], x.t()[:4, :6]),
    "strides that meet once": lambda x: (
        x.view(-1)[:].as_strided((4, 6), (12, 2)),
        x.view(-1).as_strided((4, 6), (12, 2), 11),
    ),
}


def memory() -> torch.Tensor:
    return torch.arange(8 * 12).float().view(8, 12)


def separate(pieces: Pieces) -> tuple[torch.Tensor, torch.Tensor]:
    """Tensors of the pieces' shapes and strides that share nothing."""
    return pieces(memory())[0], pieces(memory())[1]


def outcome(fn: Callable[..., Any], pieces: Pieces) -> list[torch.Tensor]:
    """What a call leaves: the memory, and its results."""
    x = memory()
    result = fn(*pieces(x))
    return [x, result] if isinstance(result, torch.Tensor) else [x]


def same(got: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    return len(got) == len(want) and all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_separate_first_then_every_pair(fn: Callable[..., Any]) -> None:
    compiled = compile(fn, OPTIONS)
    for name, pieces in PIECES.items():
        compiled(*separate(pieces))
        assert compiled.executable is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerNotice)
            for _ in range(2):
                assert same(outcome(compiled, pieces), outcome(fn, pieces)), name
        fused = compiled.executable is not None
        a, b = pieces(memory())
        assert fused == (fn is read_read or not _meet(a, b)), (name, compiled.reason)


@pytest.mark.parametrize(
    "name", ["rows overlapping", "columns overlapping", "interleaved columns", "rows apart"]
)
def test_a_first_call_on_overlapping_pieces_does_not_decide_for_later_ones(name: str) -> None:
    compiled = compile(written_read, OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        assert same(outcome(compiled, PIECES[name]), outcome(written_read, PIECES[name]))
    compiled(*separate(PIECES[name]))
    assert compiled.executable is not None


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(set(places(a)) & set(places(b)))


def places(t: torch.Tensor) -> list[int]:
    base = torch.arange(t.untyped_storage().nbytes() // 4)
    return base.as_strided(t.shape, t.stride(), t.storage_offset()).flatten().tolist()


def built(fn: Callable[..., Any], pieces: Pieces) -> tuple[Executable, Executable]:
    """The function's executable, and that of its plan after saving and loading."""
    captured = capture(fn, separate(pieces))
    made = plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9)
    loaded = Plan.from_json(made.to_json())
    again = captured_from_graph(loaded.graph)
    return build(made, captured), build(loaded, again)


@pytest.mark.parametrize("fn", [written_read, written_written])
@pytest.mark.parametrize("name", ["same", "columns apart", "columns overlapping"])
def test_executables_check_their_inputs(fn: Callable[..., Any], name: str) -> None:
    pieces = PIECES[name]
    own, loaded = built(fn, pieces)
    want = outcome(fn, pieces)
    assert own.kernels and loaded.kernels
    assert same(outcome(own, pieces), want)
    if not _meet(*pieces(memory())):
        assert same(outcome(loaded, pieces), want)
        return
    x = memory()
    for call in (lambda: loaded(*pieces(x)), lambda: own.run(pieces(x))):
        with pytest.raises(
            UsageError, match=r"a, which .*\(test_overlap.py:\d+\) writes, shares memory"
        ) as e:
            call()
        assert e.value.code == "E204"
        assert torch.equal(x, memory()), "nothing was written"


def test_a_strict_function_says_so_at_every_call() -> None:
    compiled = compile(
        written_read, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512", strict=True)
    )
    pieces = PIECES["rows overlapping"]
    for _ in range(2):
        compiled(*separate(pieces))
        with pytest.raises(FallbackError, match="shares memory with b"):
            compiled(*pieces(memory()))


def test_preconditions_are_part_of_the_plan() -> None:
    def step(p: torch.Tensor, g: torch.Tensor, unused: torch.Tensor) -> None:
        p.sub_(g * 0.1)

    captured = capture(step, (torch.ones(4), torch.ones(4), torch.ones(4)))
    made = plan(captured.graph, target=get("cpu-avx512"))
    record = made.to_json()
    assert record["preconditions"] == [{"written": "p", "apart_from": ["g"]}]
    assert Plan.from_json(record).preconditions == made.preconditions
    with pytest.raises(FormatError, match="preconditions are not those of its graph"):
        Plan.from_json({**record, "preconditions": []})


def test_meeting_is_exact() -> None:
    """Against the sets of places, over all pairs of small strided layouts."""
    memory = torch.zeros(64)
    layouts = [
        memory.as_strided(shape, stride, offset)
        for shape, stride in product(((2, 3), (3, 1), (1, 4), (5,)), ((7, 2), (6, 1), (1, 5), (0, 3)))
        if len(shape) == 2
        for offset in (0, 1, 5, 12)
    ]
    for a, b in product(layouts, layouts):
        apart = 4 * int(b.storage_offset() - a.storage_offset())
        assert meet(a, b, apart) == _meet(a, b), (a.stride(), b.stride(), apart)


def test_ranges_that_touch_or_are_empty_are_disjoint() -> None:
    x = torch.zeros(30)
    parts, empty = [x[20:], x[:10], x[10:20]], x[5:5]
    lengths = [40, 40, 40]
    assert disjoint(parts, lengths)
    assert not disjoint([*parts, x[9:12]], [*lengths, 12])
    assert not disjoint([x, x], [120, 120])
    assert disjoint([torch.zeros(0), x], [0, 120])
    assert meeting([*parts, empty], {0: {1, 2, 3}}) is None
