"""Random numbers by counter: each is a function of the call's seed, the draw's number and the element's place.

What a number is made of bits (docs/random.md) follows eager's distributions: 24 bits for a float32 uniform, 53 for a
float64 one, as many as the type has digits for the half-precision types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from fusebound.capture.lower.context import Ctx, T, Unlowered, lowering, wide_type

_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_WORD = 1 << 32
LARGEST = (1 << 31) - 1
"""The greatest word, and the greatest range of integers that are drawn from one."""


def _shape(c: Ctx) -> tuple[int, ...]:
    return tuple(int(n) for n in c.out.shape)  # type: ignore[arg-type]  # static: `check_supported`


def _own_generator(options: dict[str, object]) -> None:
    if options.get("generator") is not None:
        raise Unlowered("a generator of the user's own", "F606")


def _keep(c: Ctx, p: float) -> T:
    """True with probability p, to 2⁻³³."""
    if not 0 <= p <= 1:
        raise Unlowered(f"the probability {p}, which eager refuses", "F606")
    (bits,) = c.random(_shape(c), 1)
    below = round(p * _WORD) - (_WORD >> 1)  # how many of the words, which are signed, are kept
    return c("le", bits, below - 1) if below > -(_WORD >> 1) else c("gt", bits, LARGEST)


def _bits(c: Ctx, word: T, count: int) -> T:
    return c("and", word, (1 << count) - 1)


def _unit(c: Ctx, words: Sequence[T], dtype: torch.dtype) -> T:
    """Uniform in [0, 1), never 1: multiples of 2⁻²⁴ in float32, of 2⁻⁵³ in float64 (from two words)."""
    if dtype != torch.float64:
        digits = _DIGITS[dtype]
        return c.cast(_bits(c, words[0], digits), torch.float32) * 2.0**-digits
    high, low = (c.cast(_bits(c, w, n), dtype) for w, n in zip(words, (27, 26), strict=True))
    return (high * 2.0**26 + low) * 2.0**-53


def _words_of(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.float64 else 1


def _uniform(c: Ctx, low: float = 0.0, high: float = 1.0) -> T:
    """In [low, high): where rounding reaches `high`, `low` stands."""
    dtype = c.out_dtype
    if not dtype.is_floating_point or not math.isfinite(high - low) or low > high:
        raise Unlowered(f"numbers of {dtype} between {low} and {high}", "F606")
    unit = _unit(c, c.random(_shape(c), _words_of(dtype)), dtype)
    if (low, high) == (0.0, 1.0):
        return c.cast(unit, dtype)
    scaled = c.cast(unit * (high - low) + low, dtype)
    return c.where(scaled < high, scaled, low)


def _normal(c: Ctx, mean: float = 0.0, std: float = 1.0) -> T:
    """Box and Muller's radius times a sine, whose argument is folded to a quarter turn, where it is accurate."""
    dtype = c.out_dtype
    if not dtype.is_floating_point or not std >= 0:
        raise Unlowered(f"normal numbers of {dtype} with deviation {std}", "F606")
    wide = wide_type(dtype)
    n = _words_of(wide)
    words = c.random(_shape(c), 2 * n)
    radius = c("sqrt", c("log", 1.0 - _unit(c, words[:n], wide)) * -2.0)
    turn = _unit(c, words[n:], wide) - 0.5
    folded = c.where(turn > 0.25, 0.5 - turn, c.where(turn < -0.25, -0.5 - turn, turn))
    z = radius * c("sin", folded * (2 * math.pi))
    if (mean, std) != (0.0, 1.0):
        z = z * std + mean
    return c.cast(z, dtype)


def _integers(c: Ctx, low: int, high: int) -> T:
    """low + ⌊word · (high - low) / 2³²⌋: the upper half of a product, so that no value is favoured by more than
    2⁻³² of the range."""
    count = high - low
    if not 0 < count <= LARGEST:
        raise Unlowered(f"integers in a range of {count}", "F606")
    (word,) = c.random(_shape(c), 1)
    unsigned = c.cast(word, torch.int64) + (_WORD >> 1)
    return c.cast(c("shr", unsigned * count, 32) + low, c.out_dtype)


@lowering("aten.bernoulli.default")
def bernoulli_each(c: Ctx, p: T, **options: object) -> T:
    """A probability for each element."""
    _own_generator(options)
    wide = c.cast(p, wide_type(p.dtype))
    unit = _unit(c, c.random(_shape(c), _words_of(wide.dtype)), wide.dtype)
    return c.cast(unit < c("probability", wide), c.out_dtype)


@lowering("aten.bernoulli.p")
def bernoulli(c: Ctx, x: T, p: float, **options: object) -> T:
    _own_generator(options)
    return c.cast(_keep(c, p), c.out_dtype)


@lowering("fusebound.bernoulli.default")
def bernoulli_in_place(c: Ctx, size: object, stride: object, p: float = 0.5, **options: object) -> T:
    return c.cast(_keep(c, p), c.out_dtype)


@lowering("aten.rand.default", "aten.rand_like.default")
def rand(c: Ctx, like: object, **options: object) -> T:
    return _uniform(c)


@lowering("fusebound.uniform.default")
def uniform_in_place(
    c: Ctx, size: object, stride: object, low: float = 0.0, high: float = 1.0, **options: object
) -> T:
    return _uniform(c, low, high)


@lowering("aten.randn.default", "aten.randn_like.default")
def randn(c: Ctx, like: object, **options: object) -> T:
    return _normal(c)


@lowering("aten.normal.float_float")
def normal(c: Ctx, mean: float, std: float, size: object, **options: object) -> T:
    _own_generator(options)
    return _normal(c, mean, std)


@lowering("fusebound.normal.default")
def normal_in_place(
    c: Ctx, size: object, stride: object, mean: float = 0.0, std: float = 1.0, **options: object
) -> T:
    return _normal(c, mean, std)


@lowering("aten.randint.default", "aten.randint_like.default")
def randint(c: Ctx, first: object, second: object, **options: object) -> T:
    """`randint(high, size)` and `randint_like(x, high)`."""
    high = first if isinstance(first, int) else second
    if not isinstance(high, int):
        raise Unlowered("a bound that is known only at run time", "F602")
    return _integers(c, 0, high)


@lowering("aten.randint.low")
def randint_low(c: Ctx, low: int, high: int, size: object, **options: object) -> T:
    return _integers(c, low, high)


@lowering("aten.randint_like.low_dtype")
def randint_like_low(c: Ctx, x: object, low: int, high: int, **options: object) -> T:
    return _integers(c, low, high)
