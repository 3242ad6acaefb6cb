"""Errors of one output against a reference: sums and maxima over its parts, changes of class.

Large outputs are walked in pieces that stay in cache: the temporaries of a whole one would cost more than its
computation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from fusebound.analysis.numerics import beyond
from fusebound.analysis.tau import Difference, Tau
from fusebound.capture.encode import dtype_name
from fusebound.verify import classes
from fusebound.verify.bits import same_bits, ulp
from fusebound.verify.classes import ClassChange

_VECTOR = 16
"""Elements of a tail: the widest float32 vector that kernels use."""

_PIECE = 1 << 15
"""Elements that the framework handles on one thread, without entering a parallel region."""
_SPREAD = 8
"""How much wider than a sample of ten the places may lie of what is as good as equal."""
_LEAST, _MOST = 1e-280, 1e300
"""Sums of squares in which nothing was lost by underflow or overflow."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The values to compare with: float64 (integers in their own type), and where they come from a wider
    type the rest that float64 leaves out. `coarse` says that there is no wider reference and `value` is
    eager's own: then an element's ULP is at least that of the output's rms, since cancellation is
    unknown."""

    value: torch.Tensor
    residue: torch.Tensor | None = None
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """How far one result lies from another: the root of the sum of squares, the largest, and the largest in ULP of the
    element, at most `saturated`."""

    norm: float = 0.0
    largest: float = 0.0
    ulps: float = 0.0

    def merged(self, other: Gap) -> Gap:
        """The gap over the elements of both."""
        return Gap(
            math.hypot(self.norm, other.norm), max(self.largest, other.largest), max(self.ulps, other.ulps)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Gaps over a part of an output ("all", "tail", "last row"), of elements that are finite in both results: fused and
    eager against the reference, and fused against eager.

    `excess` is the largest fused error among elements beyond 4 ULP of themselves.
    """

    name: str
    count: int = 0
    fused: Gap = Gap()
    eager: Gap = Gap()
    apart: Gap = Gap()
    value_norm: float = 0.0
    excess: float = 0.0

    def merged(self, other: Part) -> Part:
        """The same part over the elements of both."""
        return Part(
            self.name,
            self.count + other.count,
            self.fused.merged(other.fused),
            self.eager.merged(other.eager),
            self.apart.merged(other.apart),
            math.hypot(self.value_norm, other.value_norm),
            max(self.excess, other.excess),
        )

    def rms(self, gap: Gap) -> float:
        """Root mean square of one of the gaps."""
        return gap.norm / math.sqrt(self.count) if self.count else 0.0

    @property
    def value_rms(self) -> float:
        return self.value_norm / math.sqrt(self.count) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Distinct:
    """The elements whose exact value no other one has, and of each value that several have (of a few elements, of all):
    the value, fused's error and eager's."""

    once: Part
    often: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one output of type `dtype`. `changes` are elements whose class (or integer value) is not eager's;
    `tau_share` is the distance from eager as a share of what a τ allows. `jumps` elements lie on a jump (`jumps.py`)
    and are left out of all else. `explained`: where fused breaks the rule, its errors are within what moving the
    program's intermediates by an ULP does, as another order of evaluation might. `distinct` are the numbers of a small
    output, where some have several elements (`luck.distinct`). `coarse`: eager stood for the reference, so that its
    own error is not known."""

    dtype: torch.dtype
    parts: tuple[Part, ...]
    equal: bool
    changes: tuple[ClassChange, ...] = ()
    tau_share: float = 0.0
    jumps: int = 0
    explained: bool = True
    distinct: Distinct | None = None
    coarse: bool = False

    @property
    def whole(self) -> Part:
        return self.parts[0]

    @property
    def step(self) -> float:
        """ULP at the output's rms; 0 for integers."""
        return step(self.whole.value_rms, self.dtype) if self.dtype.is_floating_point else 0.0

    def in_steps(self, gap: Gap) -> float:
        """The rms of one of the whole output's gaps in ULP at the output's rms."""
        return self.whole.rms(gap) / self.step if self.step else 0.0

    @property
    def forbidden(self) -> tuple[ClassChange, ...]:
        """Changes to a class that is neither the reference's nor eager's."""
        return tuple(c for c in self.changes if not c.ok)

    def merged(self, other: Errors) -> Errors:
        """The errors over the elements of both draws. Where the size depends on the data, a part that only one draw is
        large enough to have is taken as it is."""
        parts = {p.name: p for p in self.parts}
        for p in other.parts:
            parts[p.name] = parts[p.name].merged(p) if p.name in parts else p
        return Errors(
            self.dtype,
            tuple(parts.values()),
            self.equal and other.equal,
            classes.merged(self.changes, other.changes),
            max(self.tau_share, other.tau_share),
            self.jumps + other.jumps,
            self.explained and other.explained,
            coarse=self.coarse or other.coarse,
        )


def saturated(dtype: torch.dtype) -> float:
    """ULP from a value to one as far from it as zero; distances in ULP of an element count no further, since beside a
    value near zero they would say nothing."""
    return 1 / torch.finfo(dtype).eps


def step(value: float, dtype: torch.dtype) -> float:
    """ULP of `dtype` at one value."""
    return float(ulp(torch.tensor(value, dtype=torch.float64), dtype))


def measure(fused: torch.Tensor, eager: torch.Tensor, exact: Exact, tau: Tau | None = None) -> Errors:
    """Errors of `fused` and `eager` (same shape and type) against the exact values, and their distance by `tau`."""
    if eager.is_complex():
        fused, eager = (torch.view_as_real(t.resolve_conj()) for t in (fused, eager))
        exact = replace(exact, value=torch.view_as_real(exact.value.resolve_conj()))
    if not eager.is_floating_point():
        return measure_integers(fused, eager, exact.value)
    return _floats(fused, eager, exact, tau)


def measure_integers(
    fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor] = ()
) -> Errors:
    """Which integers or bools lie outside of what eager, the reference and references whose intermediates moved by an
    ULP (`shaken`) give, as on a tie or a jump; one of another shape excuses all.

    Where they give more than two values, as the place of the first of many equal scores, others may lie `_SPREAD` times
    as far apart.
    """
    wrong = torch.zeros_like(fused, dtype=torch.bool)
    if all(other.shape == exact.shape for other in shaken):
        given = torch.stack([t.to(torch.int64) for t in (eager, exact, *shaken)])
        least, most, mine = given.amin(0), given.amax(0), fused.to(torch.int64)
        many = ((given != least) & (given != most)).any(0)
        beyond = torch.where(many, (most - least) * _SPREAD, 0)
        wrong = (mine < least - beyond) | (mine > most + beyond)
    changes: tuple[ClassChange, ...] = ()
    if count := int(wrong.sum()):
        at = tuple(wrong.nonzero()[0].tolist())
        text = f"{fused[at].item()} where eager has {eager[at].item()} at {list(at)}"
        changes = (ClassChange("another value", count, text),)
    return Errors(eager.dtype, (Part("all"),), torch.equal(fused, eager), changes)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some elements of a part in float64, in which all types are alike, the 8-bit ones included, which have few
    operators of their own. `nearest` is the reference in the output's type, `rest` what float64 leaves out of it."""

    fused: torch.Tensor
    eager: torch.Tensor
    exact: torch.Tensor
    nearest: torch.Tensor
    rest: torch.Tensor | None


def _floats(fused: torch.Tensor, eager: torch.Tensor, given: Exact, tau: Tau | None) -> Errors:
    dtype, floor = eager.dtype, 0.0
    if given.coarse and eager.numel():
        floor = step(_norm(given.value.to(torch.float64)) / math.sqrt(eager.numel()), dtype)
    parts: list[Part] = []
    for name in _part_names(eager.shape):
        part = Part(name)
        for piece in _pieces(name, fused, eager, given):
            part = part.merged(_part(name, piece, dtype, floor))
        parts.append(part)
    lost = cache(lambda: max(_subnormal_error(p, dtype) for p in _pieces("all", fused, eager, given)))
    equal, share, changes = True, 0.0, tuple[ClassChange, ...]()
    for i, p in enumerate(_pieces("all", fused, eager, given)):
        equal = equal and same_bits(p.fused, p.eager)
        if tau is not None:
            finite = p.fused.isfinite() & p.eager.isfinite()
            share = max(share, _tau_share(p.fused[finite], p.eager[finite], dtype, tau))
        for kind, mask in classes.changes(p.fused, p.eager, p.nearest, dtype, lost):
            example = _words(i * _PIECE + int(mask.nonzero()[0]), fused, eager, given.value)
            changes = classes.merged(changes, (ClassChange(kind, int(mask.sum()), example),))
    return Errors(dtype, tuple(parts), equal, changes, share, coarse=given.coarse)


def _subnormal_error(p: _Piece, dtype: torch.dtype) -> float:
    return classes.subnormal_error(p.eager, p.nearest, dtype)


def _words(place: int, fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """One element three times."""
    at = tuple(int(k) for k in torch.unravel_index(torch.tensor(place), fused.shape))
    mine, theirs, true = (t[at].item() for t in (fused, eager, exact))
    return f"{mine} where eager has {theirs} and fp64 {true} at {list(at)}"


def _pieces(name: str, fused: torch.Tensor, eager: torch.Tensor, given: Exact) -> Iterator[_Piece]:
    """The part called `name`, piece by piece, at least one (of no elements)."""
    flat = [_select(t, name).reshape(-1) for t in (fused, eager, given.value)]
    rest = None if given.residue is None else _select(given.residue, name).reshape(-1)
    for start in range(0, max(len(flat[0]), 1), _PIECE):
        cut = slice(start, start + _PIECE)
        f, e, x = (t[cut].to(torch.float64) for t in flat)
        yield _Piece(f, e, x, x.to(eager.dtype).to(torch.float64), None if rest is None else rest[cut])


def _part(name: str, p: _Piece, dtype: torch.dtype, floor: float) -> Part:
    """What one piece adds. Where the reference alone is not finite, eager is the reference."""
    f, e, exact, rest = p.fused, p.eager, p.exact, p.rest
    if not bool((finite := f.isfinite() & e.isfinite()).all()):
        f, e, exact = f[finite], e[finite], exact[finite]
        rest = None if rest is None else rest[finite]
    if not bool((known := p.nearest[finite].isfinite()).all()):
        exact = torch.where(known, exact, e)
    f_error, e_error = f - exact, e - exact
    if rest is not None:
        f_error, e_error = f_error - rest, e_error - rest
    unit = ulp(exact, dtype)
    return Part(
        name,
        len(exact),
        _gap(f_error.abs_(), unit, dtype),
        _gap(e_error.abs_(), unit, dtype),
        _gap((f - e).abs_(), unit, dtype),
        _norm(exact),
        _top(beyond(f_error, unit.clamp_(min=floor))),
    )


def _gap(error: torch.Tensor, unit: torch.Tensor, dtype: torch.dtype) -> Gap:
    return Gap(_norm(error), _top(error), min(_top(error / unit), saturated(dtype)))


def _norm(t: torch.Tensor) -> float:
    """Root of the sum of squares; of very large or small numbers, whose squares float64 does not hold, scaled."""
    squares = float(t.square().sum())
    if _LEAST < squares < _MOST or not t.numel():
        return math.sqrt(squares)
    top = float(t.abs().max())
    return top * math.sqrt(float((t / top).square().sum())) if 0 < top < math.inf else top


def _tau_share(fused: torch.Tensor, eager: torch.Tensor, dtype: torch.dtype, tau: Tau) -> float:
    """max|fused − eager| as a share of what τ allows; infinite where it allows nothing."""
    return Difference.between(eager.numpy(), fused.numpy(), dtype_name(dtype), tau).excess


def _part_names(shape: Sequence[int]) -> tuple[str, ...]:
    if math.prod(shape) < 4 * _VECTOR:
        return ("all",)
    tail = ("tail",) if shape[-1] > _VECTOR else ()
    last = ("last row",) if len(shape) > 1 and math.prod(shape[:-1]) > 1 else ()
    return ("all", *tail, *last)


def _select(t: torch.Tensor, name: str) -> torch.Tensor:
    if name == "tail":
        return t[..., -(t.shape[-1] % _VECTOR or _VECTOR) :]
    return t[(-1,) * (t.dim() - 1)] if name == "last row" else t


def _top(t: torch.Tensor) -> float:
    return float(t.max()) if t.numel() else 0.0


def pooled(draws: Iterable[Errors]) -> Errors:
    """The errors of several draws of the same output as one; raises ValueError for none."""
    items = list(draws)
    if not items:
        raise ValueError("no draws to pool")
    total = items[0]
    for item in items[1:]:
        total = total.merged(item)
    return total
