"""A second set of faults and of suspicious right programs, by someone who has not read the verifier.

Here are the programs and what edits a tile program; `second_wrong` has the faults, `second_right` the variants. A
program carries its own oracle, so that a test can show without the verifier that a fault is one and a variant none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from tests.mutation.harness import Subject

from fusebound.codegen import tile
from fusebound.codegen.tile import Accumulator, Affine, Apply, Const, Finish, Load, Loop, Pass, Stmt

Args = tuple[Any, ...]
Calls = Callable[[], Iterator[Args]]
"""Yields the arguments of calls one after another; may write into tensors of earlier ones between two."""


@dataclass(frozen=True)
class Program:
    """A function, the arguments that it is captured with, and its oracle on float64 arguments (None: `fn` itself).

    Integer arguments lie in `integers`.
    """

    fn: Callable[..., Any]
    args: Args
    exact: Callable[..., Any] | None = None
    integers: tuple[int, int] = (0, 1)

    @property
    def name(self) -> str:
        return self.fn.__name__


@dataclass(frozen=True)
class Change:
    """A change of a program, by one of the three ways of `harness.Mutation`, and calls that show what it does."""

    program: str
    calls: Calls | None = None
    tile: Callable[[tile.Kernel], tile.Kernel] | None = None
    text: Callable[[str], str] | None = None
    wrap: Callable[[Subject], Callable[..., Any]] | None = None


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal values, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softmax(x: Any) -> Any:
    return torch.softmax(x * 0.5, -1)


def layer_norm(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x + y, (37,), w, b, 1e-5)


def rms_norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rope(x: Any, c: Any, s: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * c + torch.cat((-b, a), -1) * s


def take(x: Any, t: Any) -> Any:
    return x[t] * 2 + 1


def masked_mean(x: Any, m: Any) -> Any:
    return torch.where(m, x, 0.0).sum(-1) / m.sum(-1)


def adamw(p: Any, g: Any, m: Any, v: Any) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.mul_(0.99).addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def mirrored(x: Any) -> None:
    x.add_(x.flip(0) * 0.5)


def quantize(x: Any) -> Any:
    return torch.round(x * 16).clamp(-128, 127).to(torch.int8)


def unmoved(x: Any, y: Any) -> Any:
    return ((x * y + x) == x).to(torch.float32)


def picked(x: Any, t: Any) -> Any:
    return -x.gather(-1, t.unsqueeze(-1)).squeeze(-1)


def average(a: Any, b: Any) -> Any:
    return (a + b) // 2


def cleaned(x: Any, y: Any) -> Any:
    return torch.where(torch.isnan(x * 2), y, x)


def doubled_and_read(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y * 3 + x


def argmax(x: Any) -> Any:
    return (x * 2).argmax(-1)


def amax(x: Any) -> Any:
    return (x * 2).amax(-1)


def divide(a: Any, b: Any) -> Any:
    return a // b, a % b


def tanh_and_sum(x: Any, y: Any) -> Any:
    z = torch.tanh(x + y)
    return z, z.sum(-1)


def affine(x: Any, w: Any) -> Any:
    return x * w + w


def gain(x: Any, w: Any, b: Any) -> Any:
    return x * w + b


def opposite(x: Any, w: Any) -> Any:
    return -(x * w)


@cache
def programs() -> dict[str, Program]:
    """Every program by its function's name; rows of 37 or 33 leave a partial vector at any length of vectors."""
    table = randn(3, 17, seed=4)
    doubled = torch.cat((table, table), -1)  # both halves alike, as rotary tables are
    found = [
        Program(softmax, (randn(5, 37),)),
        Program(layer_norm, (randn(5, 37), randn(5, 37, seed=1), randn(37, seed=2), randn(37, seed=3))),
        Program(rms_norm, (randn(5, 37), randn(37, seed=1))),
        Program(rope, (randn(3, 34), doubled, doubled * 0.5)),
        Program(take, (randn(37), torch.arange(19)), integers=(-37, 36)),
        Program(masked_mean, (randn(5, 37), randn(5, 37, seed=1) > 0)),
        Program(adamw, (randn(37), randn(37, seed=1), randn(37, seed=2), randn(37, seed=3).abs())),
        Program(mirrored, (randn(37),)),
        Program(quantize, (randn(37),)),
        Program(unmoved, (randn(37).bfloat16(), randn(37, seed=1).bfloat16()), exact=_unmoved_by_hand),
        Program(picked, (randn(5, 37), torch.tensor([0, 3, 36, 2, 1])), integers=(0, 36)),
        Program(average, (small := torch.arange(37, dtype=torch.int8), small.clone()), integers=(-128, 127)),
        Program(cleaned, (randn(37), randn(37, seed=1))),
        Program(doubled_and_read, (randn(37), randn(37, seed=1))),
        Program(argmax, (randn(5, 37),)),
        Program(amax, (randn(5, 37),)),
        Program(divide, (torch.arange(-18, 19, dtype=torch.int32), torch.arange(1, 38, dtype=torch.int32)),
                integers=(-(2**31), 2**31 - 1)),
        Program(tanh_and_sum, (randn(5, 33), randn(5, 33, seed=1))),
        Program(affine, (randn(278001), randn(278001, seed=1))),
        Program(gain, (randn(37), randn(37, seed=1), randn(37, seed=2))),
        Program(opposite, (randn(37), randn(37, seed=1))),
    ]  # fmt: skip
    return {p.name: p for p in found}


def _unmoved_by_hand(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`unmoved` on float64 arguments with bfloat16's rounding after each operator."""

    def rounded(t: torch.Tensor) -> torch.Tensor:
        return t.to(torch.float32).to(torch.bfloat16).double()

    return (rounded(rounded(x * y) + x) == x).double()


@cache
def subject(name: str) -> Subject:
    """The program as the harness captures, plans and builds it."""
    p = programs()[name]
    return Subject(p.name, p.fn, p.args)


class Editor:
    """Writes statements for a kernel under numbers of their own; `take` hands over what was written."""

    def __init__(self, kernel: tile.Kernel) -> None:
        self.kernel = kernel
        self.vectors = set(kernel.vectors)
        self.types: dict[int, str] = {}
        self.written: list[Stmt] = []
        kinds: dict[int, str] = {}
        for s in (s for nest in kernel.nests for s in tile.statements(nest.body)):
            match s:
                case Pass():
                    kinds |= {a.id: a.result for a in s.accumulators}
                case Finish():
                    self.types[s.dst] = kinds[s.acc]
                case Load() | Apply() | Const() | tile.Recall() | tile.Iota():
                    self.types[s.dst] = s.dtype
                case _:
                    pass
        self.next_accumulator = max(kinds, default=0) + 1

    def take(self) -> tuple[Stmt, ...]:
        """The statements since the last call."""
        done, self.written = tuple(self.written), []
        return done

    def new(self, dtype: str, *, vector: bool, dst: int = 0) -> int:
        """A number for a result; `dst` writes an old one again."""
        number = dst or max(self.types) + 1
        self.types[number] = dtype
        if vector:
            self.vectors.add(number)
        return number

    def const(self, value: float, dtype: str = "float32") -> int:
        number = self.new(dtype, vector=False)
        self.written.append(Const(number, value, dtype))
        return number

    def apply(self, op: str, *args: int, dtype: str = "", dst: int = 0) -> int:
        """A primitive of the operands' type (bool for comparisons)."""
        compares = op in ("eq", "lt", "gt", "le", "ge", "isnan")
        dtype = dtype or ("bool" if compares else self.types[args[-1]])
        number = self.new(dtype, vector=any(a in self.vectors for a in args), dst=dst)
        self.written.append(Apply(number, op, args, dtype, tuple(self.types[a] for a in args)))
        return number

    def cast(self, arg: int, dtype: str, dst: int = 0) -> int:
        return self.apply("cast", arg, dtype=dtype, dst=dst)

    def copy(self, body: Sequence[Stmt], at: Callable[[Affine], Affine] = lambda e: e) -> int:
        """Loads and primitives once more, with loads moved by `at`; returns the last result."""
        number, renamed = 0, dict[int, int]()
        for s in body:
            assert isinstance(s, (Load, Apply))
            number = renamed[s.dst] = self.new(s.dtype, vector=s.dst in self.vectors)
            if isinstance(s, Load):
                self.written.append(replace(s, dst=number, offset=at(s.offset)))
            else:
                self.written.append(replace(s, dst=number, args=tuple(renamed.get(a, a) for a in s.args)))
        return number

    def sum(self, dtype: str, result: str) -> Accumulator:
        """A new accumulator of a sum."""
        self.next_accumulator += 1
        return Accumulator(self.next_accumulator, "sum", dtype, result)

    def finish(self, a: Accumulator) -> int:
        number = self.new(a.result, vector=False)
        self.written.append(Finish(number, a.id))
        return number

    def rewritten(
        self, edit: Callable[[Stmt], Sequence[Stmt] | None], nest: int | None = None
    ) -> tile.Kernel:
        """The kernel with each statement replaced by what `edit` gives for it (None: as it was, looked into), in
        one nest or all."""
        nests = tuple(
            replace(n, body=edited(n.body, edit)) if nest is None or k == nest else n
            for k, n in enumerate(self.kernel.nests)
        )
        return replace(self.kernel, nests=nests, vectors=frozenset(self.vectors))


def edited(body: Sequence[Stmt], edit: Callable[[Stmt], Sequence[Stmt] | None]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        made = edit(s)
        if made is not None:
            out += made
        elif isinstance(s, (Loop, Pass)):
            out.append(replace(s, body=edited(s.body, edit)))
        else:
            out.append(s)
    return tuple(out)


def is_op(s: Stmt, op: str) -> bool:
    """Whether a statement applies this primitive."""
    return isinstance(s, Apply) and s.op == op


def applied(k: tile.Kernel, op: str, which: int = 0) -> Apply:
    """One of the statements that apply a primitive, in order."""
    found = [s for n in k.nests for s in tile.statements(n.body) if isinstance(s, Apply) and s.op == op]
    return found[which]


def at_op(
    op: str, write: Callable[[Editor, Apply], object], which: int | None = None
) -> Callable[..., tile.Kernel]:
    """A change of the statements that apply a primitive (or of one of them) into what `write` writes."""

    def change(k: tile.Kernel) -> tile.Kernel:
        e = Editor(k)
        wanted = None if which is None else applied(k, op, which)

        def edit(s: Stmt) -> Sequence[Stmt] | None:
            if not isinstance(s, Apply) or s.op != op or (wanted is not None and s != wanted):
                return None
            write(e, s)
            return e.take()

        return e.rewritten(edit)

    return change


def peeled(k: tile.Kernel, loop: Loop, split: int, tail: Sequence[Stmt]) -> tuple[Loop, Loop]:
    """A vector loop up to `split` of its points, and another one with a body of its own for the others."""
    return replace(loop, hi=split), replace(loop, lo=split, body=tuple(tail), copies=1)
