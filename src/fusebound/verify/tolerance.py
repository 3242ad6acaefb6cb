"""When a fused result is no worse than eager's: the rule of DESIGN §4.2, per output.

    rms(fused − fp64) ≤ max(1.25 · rms(eager − fp64), 2 ULP at the output's rms)
    max|fused − fp64| ≤ max(2 · max|eager − fp64|, 4 ULP of that element)

on the whole output and on its tails alone, and no change of class (NaN, +Inf, -Inf, finite, sign of zero)
against both the reference and eager. Integers and bools equal eager's except where the reference differs
from eager.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

RMS_SLACK, RMS_ULPS = 1.25, 2.0
MAX_SLACK, MAX_ULPS = 2.0, 4.0
_VECTOR = 16
"""Elements of a tail: the widest float32 vector that kernels use."""


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
        return _step(self.whole.value_rms, self.dtype) if self.dtype.is_floating_point else 0.0

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


@dataclass(frozen=True, slots=True)
class Ruling:
    """`verdict` is "equal", "nearer fp64", "as eager", "within τ", "worse" or "class changed"."""

    verdict: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict not in ("worse", "class changed")


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Unit in the last place of `dtype` at each of the float64 `values`; the subnormal step near zero."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(min=info.smallest_normal, max=info.max))
    return torch.ldexp(torch.full_like(values, info.eps), exponent - 1)


def measure(fused: torch.Tensor, eager: torch.Tensor, exact: Exact) -> Errors:
    """Errors of `fused` and `eager` (same shape and type) against the exact values."""
    if eager.is_complex():
        fused, eager = (torch.view_as_real(t.resolve_conj()) for t in (fused, eager))
        exact = replace(exact, value=torch.view_as_real(exact.value.resolve_conj()))
    if not eager.is_floating_point():
        return _integers(fused, eager, exact.value)
    return _floats(fused, eager, exact)


def _integers(fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> Errors:
    wrong = (fused != eager) & (fused != exact)
    count = int(wrong.sum())
    mismatch = ""
    if count:
        at = tuple(wrong.nonzero()[0].tolist())
        mismatch = f"{fused[at].item()} where eager has {eager[at].item()} at {list(at)}"
    empty = Part("all", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Errors(eager.dtype, (empty,), torch.equal(fused, eager), count, mismatch, 0.0, 0.0)


def _floats(fused: torch.Tensor, eager: torch.Tensor, given: Exact) -> Errors:
    exact = given.value.to(torch.float64)
    dtype = eager.dtype
    nearest = exact.to(dtype)
    wrong = _class_changes(fused, eager, nearest)
    count, mismatch = int(wrong.sum()), ""
    if count:
        at = tuple(wrong.nonzero()[0].tolist())
        mismatch = (
            f"{fused[at].item()} where eager has {eager[at].item()} and fp64 {exact[at].item()} at {list(at)}"
        )
    f, e = fused.to(torch.float64), eager.to(torch.float64)
    finite = f.isfinite() & e.isfinite() & nearest.isfinite()
    zero = torch.zeros((), dtype=torch.float64)
    exact = torch.where(finite, exact, zero)
    rest = zero if given.residue is None else given.residue
    f_error, e_error = (torch.where(finite, ((t - exact) - rest).abs(), zero) for t in (f, e))
    step = ulp(exact, dtype)
    if given.coarse and exact.numel():
        step = torch.maximum(step, ulp(exact.square().mean().sqrt(), dtype))
    distance = torch.where(finite, (f - e).abs(), zero)
    beyond = torch.where(f_error > MAX_ULPS * step, f_error, zero)
    parts = tuple(
        _part(name, *(_select(t, name) for t in (finite, f_error, e_error, exact, beyond)))
        for name in _part_names(eager.shape)
    )
    return Errors(
        dtype,
        parts,
        _same_bits(fused, eager),
        count,
        mismatch,
        _top(distance),
        _top(distance / step),
    )


def _class_changes(fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Elements whose class is neither the reference's (rounded to the output's type) nor eager's.

    Where eager overflows and the reference does not, any overflow of the fused result is no worse.
    """
    mine, exact, theirs = (_classes(t) for t in (fused, nearest, eager))
    zeros = (fused == 0) & (eager == 0) & (nearest == 0)
    sign = fused.signbit()
    flipped = zeros & (sign != eager.signbit()) & (sign != nearest.signbit())
    overflow = (theirs > 0) & (exact == 0) & (mine > 0)
    return ((mine != exact) & (mine != theirs) & ~overflow) | flipped


def _classes(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 +Inf, 2 -Inf, 3 NaN."""
    return (t == float("inf")) + 2 * (t == float("-inf")) + 3 * t.isnan()


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
    return t.reshape(-1, t.shape[-1])[-1] if name == "last row" else t


def _part(
    name: str,
    finite: torch.Tensor,
    fused: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    beyond: torch.Tensor,
) -> Part:
    return Part(
        name,
        int(finite.sum()),
        float(fused.square().sum()),
        float(eager.square().sum()),
        float(exact.square().sum()),
        _top(fused),
        _top(eager),
        _top(beyond),
    )


def _top(t: torch.Tensor) -> float:
    return float(t.max()) if t.numel() else 0.0


def rule(
    errors: Errors, *, tau: float | None = None, numerics: str = "accurate", exact_ops: bool = False
) -> Ruling:
    """The verdict on one output.

    With `tau` the bound is max|fused − eager| ≤ τ. With `numerics="eager"` the output has to equal eager's
    bit for bit if the program has only correctly rounded operators (`exact_ops`), else within 2 ULP of it:
    each of the two is within 1 ULP of the true value. Otherwise the rule at the top of this file.
    """
    if errors.mismatches:
        return Ruling("class changed" if errors.dtype.is_floating_point else "worse", errors.mismatch)
    if errors.equal:
        return Ruling("equal")
    if not errors.dtype.is_floating_point:
        return Ruling("as eager", "differs only where fp64 differs from eager")
    if tau is not None:
        text = f"max|fused − eager| {errors.distance:.3g}, τ {tau:.3g}"
        return Ruling("within τ" if errors.distance <= tau else "worse", text)
    if numerics == "eager":
        return _as_eager(errors, exact_ops)
    for part in errors.parts:
        complaint = _complaint(part, errors)
        if complaint:
            return Ruling("worse", complaint)
    whole = errors.whole
    return Ruling("nearer fp64" if whole.fused_rms < 0.9 * whole.eager_rms else "as eager")


def _as_eager(errors: Errors, exact_ops: bool) -> Ruling:
    limit = 0.0 if exact_ops else 2.0
    text = f"{errors.distance_ulps:.3g} ULP from eager, limit {limit:g}"
    return Ruling("as eager" if errors.distance_ulps <= limit else "worse", text)


def _complaint(part: Part, errors: Errors) -> str:
    """What breaks the rule on `part`, with numbers, or nothing."""
    whole = errors.whole
    eager_rms = RMS_SLACK * part.eager_rms
    if part is not whole:
        # Eager's rms over n elements is itself random, with a relative deviation of about 1/√(2n).
        eager_rms *= 1 + 3 / math.sqrt(2 * max(part.count, 1))
        eager_rms = max(eager_rms, RMS_SLACK * whole.eager_rms)
    limit = max(eager_rms, RMS_ULPS * _step(part.value_rms, errors.dtype))
    if part.fused_rms > limit:
        return f"{part.name}: rms error {part.fused_rms:.3g}, eager {part.eager_rms:.3g}, limit {limit:.3g}"
    if part.excess > MAX_SLACK * whole.eager_max:
        return f"{part.name}: max error {part.excess:.3g}, eager {whole.eager_max:.3g}"
    return ""


def _step(value: float, dtype: torch.dtype) -> float:
    return float(ulp(torch.tensor(value, dtype=torch.float64), dtype))


def pooled(draws: Iterable[Errors]) -> Errors:
    """The errors of several draws of the same output as one; raises ValueError for none."""
    items = list(draws)
    if not items:
        raise ValueError("no draws to pool")
    total = items[0]
    for item in items[1:]:
        total = total.merged(item)
    return total
