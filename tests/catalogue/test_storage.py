"""Storage hazards: programs that read and write one memory leave what eager leaves; why two operators stay apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, call, compare, rand
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.engine.compile import Options, compile
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get

Function = Callable[..., Any]
FOREACH: Any = torch
TWICE = torch.tensor([2, 0, 0, 3])
"""An index that repeats."""


@dataclass
class Case:
    """A function, its arguments, how many kernels it becomes, and the code that keeps two operators apart."""

    fn: Function
    args: tuple[Tensor, ...]
    kernels: int
    apart: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])


CASES: list[Case] = []


def case(
    *args: Tensor, kernels: int = 1, apart: dict[tuple[str, str], str] | None = None
) -> Callable[[Function], Function]:
    def register(fn: Function) -> Function:
        CASES.append(Case(fn, args, kernels, apart or {}))
        return fn

    return register


def x(*shape: int, seed: int = 0) -> Tensor:
    return rand(*(shape or (4, 6)), seed=seed)


# -- another view of the target


@case(x(6, 4), apart={("copy", "slice_scatter"): "F102"})
def shifted(a: Tensor) -> None:
    a[1:] = a[:-1] + 1


@case(x(), kernels=0, apart={("flip", "sub"): "F102"})
def flipped(a: Tensor) -> None:
    a.sub_(a.flip(-1))


@case(x(), kernels=0, apart={("roll", "mul"): "F102"})
def rolled(a: Tensor) -> None:
    a.mul_(a.roll(1, 0))


@case(x(4, 4), kernels=0, apart={("mul", "add"): "F102"})
def transposed(a: Tensor) -> None:
    a.add_(a.t() * 2)


@case(x(), kernels=0, apart={("mul", "mul_1"): "F102"})
def its_first_row(a: Tensor) -> None:
    a.mul_(a[0] * 1)


@case(x(), apart={("gt", "masked_fill"): "F102"})
def a_mask_of_its_mirror(a: Tensor) -> None:
    a.masked_fill_(a.flip(0) > 0, 0.0)


@case(x(), kernels=2, apart={("roll_1", "copy"): "F102"})
def neighbours(a: Tensor) -> None:
    a.copy_((a + a.roll(1, 1) + a.roll(-1, 1)) / 3)


@case(x(), apart={("copy", "slice_scatter"): "F505"})
def every_other_column(a: Tensor) -> None:
    a[:, ::2] = a[:, 1::2] * 2


@case(x())
def the_other_half(a: Tensor) -> Tensor:
    """What is read is not what changes."""
    a[:, :3].mul_(a[:, 3:])
    return a + 1


@case(x())
def mirrored_twice(a: Tensor) -> None:
    a.copy_(a.flip(0).flip(0) * 2)


@case(x())
def transposed_twice(a: Tensor) -> None:
    a.copy_((a.t() * 2).t())


@case(x(), x(2, 6, seed=1), torch.tensor([0, 2]), apart={("index_put", "add"): "F609"})
def an_indexed_write_then_its_mirror(a: Tensor, b: Tensor, i: Tensor) -> None:
    a[i] = b
    a.add_(a.flip(0))


# -- two versions, of which the earlier is kept


@case(x(), x(2, 6, seed=1))
def overwritten_whole(a: Tensor, b: Tensor) -> Tensor:
    y = a.slice_scatter(b * 3, 0, 0, 2)
    a.copy_(y * 2)
    return y


@case(x(), x(2, 6, seed=1), x(2, 6, seed=2))
def overlapping_parts(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    y = a.slice_scatter(b * 3, 0, 0, 2)
    a.copy_(y + y.slice_scatter(c * 2, 0, 1, 3))
    return y


@case(x(), x(2, 6, seed=1), x(2, 6, seed=2), kernels=2, apart={("slice_scatter", "slice_scatter_1"): "F501"})
def parts_that_do_not_meet(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    y = a.slice_scatter(b * 3, 0, 0, 2)
    a.copy_(y.slice_scatter(c * 2, 0, 2, 4))
    return y


# -- reductions, broadcasts, masks


@case(x())
def softmax_of_everything(s: Tensor) -> None:
    s.sub_(s.amax())
    s.exp_()
    s.div_(s.sum())


@case(x())
def softmax_of_rows(s: Tensor) -> None:
    s.sub_(s.amax(-1, keepdim=True))
    s.exp_()
    s.div_(s.sum(-1, keepdim=True))


@case(x())
def softmax_of_columns(s: Tensor) -> Tensor:
    s.sub_(s.amax(0))
    s.exp_()
    s.div_(s.sum(0))
    return s


@case(x(), kernels=0, apart={("cumsum", "sub"): "F608"})
def less_its_running_sum(a: Tensor) -> None:
    a.sub_(a.cumsum(0))


# -- steps of training and of decoding


@case(x(), x(seed=1), x(seed=2), x(seed=3))
def gradient_accumulation(grad: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
    for micro in (a, b, c):
        grad += micro * 0.5


@case(x(), x(seed=1))
def a_version_between(grad: Tensor, a: Tensor) -> Tensor:
    grad.add_(a * a)
    old = grad * 1
    grad.add_(a)
    return old


@case(x(), x(seed=1), x(seed=2))
def momentum(p: Tensor, g: Tensor, m: Tensor) -> None:
    m.mul_(0.9).add_(g)
    p.sub_((g + m * 0.9) * 0.1)


@case(*(x(seed=k) for k in range(6)), kernels=2)
def adam_in_lists(p: Tensor, q: Tensor, g: Tensor, h: Tensor, m: Tensor, n: Tensor) -> None:
    FOREACH._foreach_mul_([m, n], 0.9)
    FOREACH._foreach_add_([m, n], [g, h], alpha=0.1)
    FOREACH._foreach_addcdiv_([p, q], [m, n], [g.abs() + 1, h.abs() + 1], -0.1)


@case(x(2, 8, 6), x(2, 6, seed=1), x(6, seed=2))
def cache_at_a_position(k: Tensor, v: Tensor, q: Tensor) -> Tensor:
    k[:, 3] = v
    return (k * q).sum(-1)


@case(x(2, 8, 6), x(2, 1, 6, seed=1), x(6, seed=2), torch.tensor([3]), apart={("index_copy", "mul"): "F609"})
def cache_at_a_tensors_position(k: Tensor, v: Tensor, q: Tensor, at: Tensor) -> Tensor:
    k.index_copy_(1, at, v)
    return (k * q).sum(-1)


@case(x(), x(seed=1))
def exchange(a: Tensor, b: Tensor) -> None:
    t = a + b
    b.copy_(a - b)
    a.copy_(t)


# -- carried from one iteration to the next


@case(x(), x(seed=1))
def carried(a: Tensor, b: Tensor) -> None:
    for _ in range(3):
        a.mul_(0.5).add_(b)
        b.sub_(a)


@case(x(6, 4), x(6, 4, seed=1), kernels=2, apart={("slice_scatter", "copy_1"): "F102"})
def stencil(a: Tensor, b: Tensor) -> None:
    for _ in range(2):
        b[1:-1] = (a[:-2] + a[2:]) * 0.5
        a.copy_(b)


@case(x(3, 4), kernels=2, apart={("select_scatter_2", "copy_1"): "F102"})
def rows_one_after_another(a: Tensor) -> None:
    for i in range(1, 3):
        a[i] += a[i - 1] * 0.5


@case(x(), x(seed=1), kernels=3, apart={("abs_1", "while_loop"): "F603"})
def updated_around_a_loop(a: Tensor, b: Tensor) -> Tensor:
    b.add_(a * 2)
    _, z = while_loop(
        lambda i, z: i < 3, lambda i, z: (i + 1, (z * 0.5 + 1).exp() * 0.1), (torch.tensor(0), (b * 2).abs())
    )
    a.mul_(z).add_(1)
    return z * 2 + a


# -- by data


@case(
    x(4, 4), TWICE[:, None].expand(4, 4).contiguous(), x(4, 4, seed=1), apart={("scatter", "gather"): "F609"}
)
def scatter_then_gather(a: Tensor, i: Tensor, b: Tensor) -> Tensor:
    a.scatter_(0, i * 0, b)
    return a.gather(0, i * 0) * 2


@case(x(1, 4), torch.zeros(4, 4).long(), x(4, 4, seed=1), apart={("scatter", "gather"): "F609"})
def scatter_into_one_row(a: Tensor, i: Tensor, b: Tensor) -> Tensor:
    return a.scatter(0, i, b).gather(0, i) + 1


@case(x(4, 4), TWICE, x(4, 4, seed=1), apart={("index_put", "index"): "F609"})
def index_put_then_its_gather(a: Tensor, i: Tensor, b: Tensor) -> Tensor:
    a[i] = b
    return a[i] * 2


@case(x(4, 4), TWICE, apart={("mul", "index_put"): "F609"})
def index_put_of_its_own_gather(a: Tensor, i: Tensor) -> None:
    a.index_put_((i,), a[i] * 2, accumulate=True)


@case(x(4, 4), TWICE, apart={("add", "index_put"): "F609"})
def assignment_of_its_own_gather(a: Tensor, i: Tensor) -> None:
    a[i] = a[i] * 2 + 1


@case(x(), TWICE, x(seed=1))
def gather_first(a: Tensor, i: Tensor, w: Tensor) -> Tensor:
    return (a[i] * w).relu()


@case(x(), TWICE, x(seed=1), apart={("index", "mul_1"): "F501"})
def gather_then_overwrite(a: Tensor, i: Tensor, w: Tensor) -> Tensor:
    y = a[i] * w
    a.mul_(2)
    return y


@case(x(), TWICE, apart={("mul", "copy"): "F102"})
def overwritten_with_its_gather(a: Tensor, i: Tensor) -> None:
    a.copy_(a[i] * 2)


@case(x(4, 4), x(4, 4, seed=1))
def one_row_for_many(a: Tensor, b: Tensor) -> Tensor:
    z = a[:1].expand(4, 4) * 1
    z.add_(b)
    return z


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.fn.__name__)
def test_as_eager(c: Case) -> None:
    captured = capture(c.fn, tuple(t.clone() for t in c.args))
    made = plan(captured.graph, target=get(PLANNED_FOR), expected_calls=FOREVER)
    for (a, b), code in c.apart.items():
        verdict = made.why(a, b).judgement.dependence
        assert (verdict.code, bool(verdict)) == (code, False), verdict
        assert "test_storage.py:" in verdict.message
    exe = build(Plan.from_json(made.to_json()), captured)
    assert len(exe.kernels) == c.kernels
    compare(captured, c.args, call(exe, c.args))
    compiled = compile(c.fn, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))
    for _ in range(2):
        compare(captured, c.args, call(compiled, c.args))
