"""Errors of one output against a reference: sums and maxima over its parts, changes of class.

Large outputs are walked in pieces that stay in cache: the temporaries of a whole one would cost more than its
computation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

MAX_ULPS = 4.0
"""Errors up to this many ULP of an element are within what a correct kernel shows."""

_VECTOR = 16
"""Elements of a tail: the widest float32 vector that kernels use."""

_PIECE = 1 << 15
"""Elements that the framework handles on one thread, without entering a parallel region."""


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
class Part:
    """Error sums over a part of an output ("all", "tail", "last row"); squares and maxima are absolute.

    `excess` is the largest fused error among elements beyond 4 ULP of themselves.
    """

    name: str
    count: int
    fused_squares: float
    eager_squares: float
    value_squares: float
    fused_max: float
    eager_max: float
    excess: float

    def merged(self, other: Part) -> Part:
        """The same part over the elements of both."""
        return Part(
            self.name,
            self.count + other.count,
            self.fused_squares + other.fused_squares,
            self.eager_squares + other.eager_squares,
            self.value_squares + other.value_squares,
            max(self.fused_max, other.fused_max),
            max(self.eager_max, other.eager_max),
            max(self.excess, other.excess),
        )

    @property
    def fused_rms(self) -> float:
        return math.sqrt(self.fused_squares / self.count) if self.count else 0.0

    @property
    def eager_rms(self) -> float:
        return math.sqrt(self.eager_squares / self.count) if self.count else 0.0

    @property
    def value_rms(self) -> float:
        return math.sqrt(self.value_squares / self.count) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one output of type `dtype`. `mismatches` counts elements whose class (or integer value) is
    neither the reference's nor eager's; `distance` is max|fused − eager|, `distance_ulps` the same in ULP
    of the element."""

    dtype: torch.dtype
    parts: tuple[Part, ...]
    equal: bool
    mismatches: int
    mismatch: str
    distance: float
    distance_ulps: float

    @property
    def whole(self) -> Part:
        return self.parts[0]

    @property
    def step(self) -> float:
        """ULP at the output's rms; 0 for integers."""
        return step(self.whole.value_rms, self.dtype) if self.dtype.is_floating_point else 0.0

    def merged(self, other: Errors) -> Errors:
        """The errors over the elements of both draws."""
        first = self if self.mismatches else other
        return replace(
            first,
            parts=tuple(a.merged(b) for a, b in zip(self.parts, other.parts, strict=True)),
            equal=self.equal and other.equal,
            mismatches=self.mismatches + other.mismatches,
            distance=max(self.distance, other.distance),
            distance_ulps=max(self.distance_ulps, other.distance_ulps),
        )


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Unit in the last place of `dtype` at each of the float64 `values`; the subnormal step near zero."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(min=info.smallest_normal, max=info.max))
    return torch.ldexp(torch.full_like(values, info.eps), exponent - 1)


def step(value: float, dtype: torch.dtype) -> float:
    """ULP of `dtype` at one value."""
    return float(ulp(torch.tensor(value, dtype=torch.float64), dtype))


def measure(fused: torch.Tensor, eager: torch.Tensor, exact: Exact) -> Errors:
    """Errors of `fused` and `eager` (same shape and type) against the exact values."""
    if eager.is_complex():
        fused, eager = (torch.view_as_real(t.resolve_conj()) for t in (fused, eager))
        exact = replace(exact, value=torch.view_as_real(exact.value.resolve_conj()))
    if not eager.is_floating_point():
        return measure_integers(fused, eager, exact.value)
    return _floats(fused, eager, exact)


def measure_integers(
    fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor] = ()
) -> Errors:
    """How integers or bools differ from eager's where eager is not on a tie or a jump.

    It is on one where the reference differs from it, or where references whose intermediates moved by an ULP
    (`shaken`) differ from the reference, or have another shape: there other values are no worse.
    """
    wrong = (fused != eager) & (eager == exact)
    for other in shaken:
        wrong = wrong & (other == exact) if other.shape == exact.shape else torch.zeros_like(wrong)
    count = int(wrong.sum())
    mismatch = ""
    if count:
        at = tuple(wrong.nonzero()[0].tolist())
        mismatch = f"{fused[at].item()} where eager has {eager[at].item()} at {list(at)}"
    empty = Part("all", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Errors(eager.dtype, (empty,), torch.equal(fused, eager), count, mismatch, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one piece adds: its error sums, and how it differs from eager."""

    part: Part
    equal: bool
    wrong: int
    first_wrong: int
    distance: float
    distance_ulps: float


def _floats(fused: torch.Tensor, eager: torch.Tensor, given: Exact) -> Errors:
    floor = 0.0
    if given.coarse and eager.numel():
        floor = step(float(given.value.to(torch.float64).square().mean().sqrt()), eager.dtype)
    names = _part_names(eager.shape)
    whole = list(_pieces("all", fused, eager, given, floor))
    parts = [_merged(p.part for p in whole)]
    for name in names[1:]:
        parts.append(_merged(p.part for p in _pieces(name, fused, eager, given, floor)))
    return Errors(
        eager.dtype,
        tuple(parts),
        all(p.equal for p in whole),
        sum(p.wrong for p in whole),
        _mismatch(whole, fused, eager, given.value),
        max(p.distance for p in whole),
        max(p.distance_ulps for p in whole),
    )


def _pieces(
    name: str, fused: torch.Tensor, eager: torch.Tensor, given: Exact, floor: float
) -> Iterator[_Piece]:
    """The part called `name`, piece by piece, at least one (of no elements)."""
    flat = [_select(t, name).reshape(-1) for t in (fused, eager, given.value)]
    rest = None if given.residue is None else _select(given.residue, name).reshape(-1)
    for start in range(0, max(len(flat[0]), 1), _PIECE):
        cut = slice(start, start + _PIECE)
        f, e, x = (t[cut] for t in flat)
        yield _piece(name, f, e, x.to(torch.float64), None if rest is None else rest[cut], floor)


def _piece(
    name: str,
    fused: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    rest: torch.Tensor | None,
    floor: float,
) -> _Piece:
    dtype = eager.dtype
    # In float64 all types are alike, the 8-bit ones included, which have few operators of their own.
    f, e, nearest = (t.to(torch.float64) for t in (fused, eager, exact.to(dtype)))
    finite = f.isfinite() & e.isfinite() & nearest.isfinite()
    wrong = _flipped_zeros(f, e, nearest)
    equal = _same_bits(f, e)
    if not bool(finite.all()):
        wrong |= _class_changes(f, e, nearest)
        f, e, exact = f[finite], e[finite], exact[finite]
        rest = None if rest is None else rest[finite]
    f_error, e_error = f - exact, e - exact
    if rest is not None:
        f_error, e_error = f_error - rest, e_error - rest
    f_error, e_error = f_error.abs_(), e_error.abs_()
    part = Part(
        name,
        len(exact),
        float(f_error.square().sum()),
        float(e_error.square().sum()),
        float(exact.square().sum()),
        _top(f_error),
        _top(e_error),
        _excess(f_error, exact, dtype, floor),
    )
    far = (f - e).abs_()
    positions = wrong.nonzero()
    first = int(positions[0]) if len(positions) else -1
    return _Piece(
        part, equal, len(positions), first, _top(far), 0.0 if equal else _top(far / ulp(exact, dtype))
    )


def _excess(error: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, floor: float) -> float:
    """The largest error beyond 4 ULP of its element (of at least `floor`)."""
    # An ULP is more than half of the value times epsilon: few elements are left to look at closely.
    suspects = error > MAX_ULPS / 2 * torch.finfo(dtype).eps * exact.abs()
    error, exact = error[suspects], exact[suspects]
    return _top(error[error > MAX_ULPS * ulp(exact, dtype).clamp(min=floor)])


def _mismatch(pieces: Sequence[_Piece], fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """The first element whose class changed, in words."""
    for i, piece in enumerate(pieces):
        if piece.wrong:
            flat = torch.tensor(i * _PIECE + piece.first_wrong)
            at = tuple(int(k) for k in torch.unravel_index(flat, fused.shape))
            mine, theirs, true = (t[at].item() for t in (fused, eager, exact))
            return f"{mine} where eager has {theirs} and fp64 {true} at {list(at)}"
    return ""


def _merged(parts: Iterable[Part]) -> Part:
    items = list(parts)
    total = items[0]
    for item in items[1:]:
        total = total.merged(item)
    return total


def _class_changes(fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Elements whose class is neither the reference's (rounded to the output's type) nor eager's.

    Where eager overflows and the reference does not, any overflow of the fused result is no worse.
    """
    mine, exact, theirs = (_classes(t) for t in (fused, nearest, eager))
    overflow = (theirs > 0) & (exact == 0) & (mine > 0)
    return (mine != exact) & (mine != theirs) & ~overflow


def _flipped_zeros(fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Where all three are zeros and the sign is neither the reference's nor eager's."""
    zeros = (fused == 0) & (eager == 0) & (nearest == 0)
    if not bool(zeros.any()):
        return zeros
    sign = fused.signbit()
    return zeros & (sign != eager.signbit()) & (sign != nearest.signbit())


def _classes(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 +Inf, 2 -Inf, 3 NaN."""
    code = (t == float("inf")).to(torch.int8)
    code += (t == float("-inf")).to(torch.int8) * 2
    return code.add_(t.isnan().to(torch.int8) * 3)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal including the sign of zero; any NaN equals any other."""
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())


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
