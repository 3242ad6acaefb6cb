"""Values to verify on: like the user's, and the special ones that break kernels."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import torch

from fusebound.verify.call import Leaf, has_memory, storage_key

GIVEN, LIKE = "given", "like"
PLAIN = (GIVEN, LIKE)
SPECIAL_SETS = (
    "special values", "nan at edges", "inf at edges", "large mean", "larger mean", "-inf rows", "wide range", "tiny",
    "tiny beside large", "subnormal", "small products", "large products", "equal values", "one value", "peaks", "zeros",
    "constants", "few numbers", "bit patterns", "one magnitude",
)  # fmt: skip
"""Sets applied to floating user inputs; parameters are drawn as in "like", but for `EVERYWHERE`."""
SMALL_STATE = "subnormal parameters"
"""The set for what "subnormal" leaves ordinary: parameters, buffers, and vectors beside matrices."""
FULL_RANGE = "full range"
"""The set for integers that only arithmetic reads: any value of their type."""
EVERYWHERE = ("zeros", "small products", "tiny beside large", "few numbers", "bit patterns", "one magnitude")
"""Sets that parameters, buffers and vectors beside matrices are drawn by as well."""
EDGES = {"nan at edges": (math.nan, math.nan), "inf at edges": (math.inf, -math.inf)}
BY_PLACE = ("peaks", "zeros", *EDGES)
"""Sets that put something into a few places only."""
RARE = (
    *BY_PLACE,
    "one magnitude",
    "wide range",
    "large products",
    "few numbers",
    "bit patterns",
    "one value",
)
"""Sets in which few elements meet what the set is for, so that larger tensors need several draws too."""
AS_A_WHOLE = ("larger mean", "one value", "one magnitude", *BY_PLACE)
"""Sets on which a row has one error, that of its mean or its peak: the tail or the last row alone is luck."""

_SIZES = 4
"""Sizes, the largest, whose bounds indices are tried at."""

_MASK = 1e30
"""Given values at least this large are masks and stay where they are."""


def floats(leaves: Sequence[Leaf]) -> bool:
    """Whether any user input is a floating tensor, so that the special sets say anything new."""
    return any(_is_data(leaf) for leaf in leaves)


def integer_sets(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """`FULL_RANGE` where there are integers of the user's that no operator takes for indices or sizes."""
    return (FULL_RANGE,) if any(leaf.free for leaf in leaves) else ()


def state_sets(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """`SMALL_STATE` where there are parameters, buffers or vectors beside matrices."""
    rank = _rank(leaves)
    return (SMALL_STATE,) if any(_is_float(leaf) and not _leads(leaf, rank) for leaf in leaves) else ()


def index_sets(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """Sets "index n" that put n into each integer tensor of the user's, for the last and the first index that is no
    longer one of every axis that occurs, from the start and from the end."""
    integers = [leaf.value for leaf in leaves if leaf.kind == "user" and _is_integer(leaf)]
    sizes = sorted({n for leaf in leaves if leaf.is_tensor for n in leaf.value.shape})[-_SIZES:]
    signed = any(t.dtype != torch.uint8 for t in integers)
    places = [i for n in sizes for i in ((n - 1, n, -n, -n - 1) if signed else (n - 1, n))]
    return (
        tuple(f"index {i}" for i in dict.fromkeys((0, -1, *places) if signed else (0, *places)))
        if integers
        else ()
    )


def fill(
    leaves: Sequence[Leaf], kind: str, seed: int, constants: Sequence[float] = (), draw: int = 0
) -> None:
    """Overwrite the tensors of a call in place with the values of set `kind`; constants keep theirs.

    Types, shapes, strides and shared memory stay. Integers are drawn over the range that the present values
    span, so that indices stay valid; variance-like tensors stay positive; masks (huge or infinite) stay. `constants`
    are the numbers in the program; `draw` counts the draws of a set, over which special values move on.
    """
    generator = torch.Generator().manual_seed(seed + zlib.crc32(kind.encode()))
    seen: set[int] = set()
    rank = _rank(leaves)
    first = draw % max(sum(_is_float(leaf) for leaf in leaves), 1)
    for leaf in leaves:
        if not leaf.is_tensor or leaf.kind in ("const", "other") or not has_memory(leaf.value):
            continue
        key = storage_key(leaf.value)
        if key in seen or not leaf.value.numel():
            continue
        seen.add(key)
        flat = torch.empty(0, dtype=leaf.value.dtype).set_(leaf.value.untyped_storage())
        leads = _leads(leaf, rank)
        chosen = _kind_for(kind, leads)
        if kind == "one magnitude" and _is_float(leaf):
            chosen, first = ("one magnitude" if first == 0 else "powers of two"), first - 1
        _fill_flat(leaf, flat, chosen, generator, constants)
        if kind in EDGES and _is_float(leaf) and leads == (draw % 8 < _PLACES or not state_sets(leaves)):
            _edge(leaf.value.detach(), EDGES[kind], draw + len(seen), generator)
    if kind == "-inf rows":
        for leaf in leaves:
            _mask_rows(leaf)


def _rank(leaves: Sequence[Leaf]) -> int:
    return max((leaf.value.dim() for leaf in leaves if _is_data(leaf)), default=0)


def _leads(leaf: Leaf, rank: int) -> bool:
    """Whether a floating input is data: a vector beside matrices is a weight, a bias or a statistic, whatever the user
    calls it."""
    return _is_data(leaf) and leaf.value.dim() >= min(rank, 2)


def _kind_for(kind: str, leads: bool) -> str:
    """How one tensor is drawn in a set: special values come to data, in the sets `EVERYWHERE` to all, in `SMALL_STATE`
    to the others."""
    if kind in EDGES:
        return LIKE
    if kind == SMALL_STATE:
        return LIKE if leads else "least normal"
    return kind if leads or kind in (*EVERYWHERE, FULL_RANGE) or kind.startswith("index") else LIKE


def _is_float(leaf: Leaf) -> bool:
    kinds = ("user", "param", "buffer")
    return leaf.kind in kinds and leaf.is_tensor and leaf.value.is_floating_point()


def _is_data(leaf: Leaf) -> bool:
    return leaf.kind == "user" and leaf.is_tensor and leaf.value.is_floating_point()


def _is_integer(leaf: Leaf) -> bool:
    kind = leaf.value.dtype if leaf.is_tensor else torch.bool
    return not (kind.is_floating_point or kind.is_complex or kind == torch.bool)


def _fill_flat(
    leaf: Leaf, flat: torch.Tensor, kind: str, generator: torch.Generator, constants: Sequence[float]
) -> None:
    given = leaf.value.detach()
    if flat.dtype == torch.bool:
        flat.copy_(_bools(flat.numel(), _row(given), generator))
    elif flat.is_complex():
        flat.copy_(torch.complex(*(torch.randn(flat.shape, generator=generator) for _ in "ri")))
    elif not flat.is_floating_point():
        free = kind == FULL_RANGE and leaf.free
        flat.copy_(_any_integers(flat, generator) if free else _integers(given, flat.shape, generator))
        if kind.startswith("index") and leaf.kind == "user":
            bounds = torch.iinfo(given.dtype)
            given[(-1,) * given.dim()] = min(max(int(kind.removeprefix("index")), bounds.min), bounds.max)
    else:
        _fill_floats(leaf, flat, kind if not kind.startswith("index") else LIKE, generator, constants)


def _bools(n: int, row: int, generator: torch.Generator) -> torch.Tensor:
    """Rows that are mixed, all true, all false, or true once."""
    places = torch.arange(n)
    which = (places // row + int(torch.randint(0, 5, (), generator=generator))) % 5
    once = torch.randint(0, row, (n // row + 1,), generator=generator)[places // row] == places % row
    mixed = torch.rand(n, generator=generator) < 0.5
    return torch.where(which == 2, True, torch.where(which == 3, False, torch.where(which == 4, once, mixed)))


def _integers(given: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Integers over the range of the given ones; where some are negative, of the given ones themselves:
    they may be marks, such as the index that a loss ignores."""
    low, high = int(given.min()), int(given.max())
    if low < 0:
        return given.reshape(-1)[torch.randint(0, given.numel(), shape, generator=generator)]
    return torch.randint(low, high + 1, shape, generator=generator).to(given.dtype)


def _any_integers(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Over all of a type: of every magnitude, and next to its bounds, to zero, and to what float32 and float64 still
    count. Zero alone is left out: a division by it raises in eager, and then says nothing of the others."""
    info = torch.iinfo(like.dtype)
    near = [
        b + d for b in (info.min, info.max, 0, 2**24, -(2**24), 2**53, -(2**53)) for d in (-2, -1, 0, 1, 2)
    ]
    levels = torch.tensor([n for n in near if n and info.min <= n <= info.max], dtype=like.dtype)
    edges = levels[torch.randint(0, len(levels), like.shape, generator=generator)]
    bits = torch.randint(-(2**63), 2**63 - 1, like.shape, generator=generator)
    drawn = (bits >> torch.randint(64 - info.bits, 64, like.shape, generator=generator)).to(like.dtype)
    drawn = torch.where(torch.rand(like.shape, generator=generator) < 0.5, edges, drawn)
    return torch.where(drawn == 0, 1, drawn).to(like.dtype)


def _fill_floats(
    leaf: Leaf, flat: torch.Tensor, kind: str, generator: torch.Generator, constants: Sequence[float]
) -> None:
    keep = ~(flat.abs().to(torch.float64) < _MASK)
    values = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
    if kind == "large mean":
        values = values + 1e4
    elif kind == "larger mean":  # float32 itself rounds such a mean by some per cent of the deviation
        values = values + (1e6 if torch.finfo(flat.dtype).eps < 1e-6 else 1e2)
    elif kind == "wide range":
        reach = min(30.0, math.log2(torch.finfo(flat.dtype).max) * 0.6)
        power = (torch.rand(flat.shape, generator=generator, dtype=torch.float64) * 2 - 1) * reach
        values = values.sign() * torch.exp2(power)
    elif kind == "tiny":
        values = values * 1e-7
    elif kind == "tiny beside large":
        values = values * _vanishing(flat, generator)
    elif kind == "small products":  # of two values: about the least normal number
        power = torch.randint(-3, 4, flat.shape, generator=generator)
        values = values * torch.exp2(power + math.log2(torch.finfo(flat.dtype).smallest_normal) // 2)
    elif kind == "large products":
        values = values * _half_of_the_largest(leaf.value, generator)
    elif kind == "few numbers":
        values = _pool(flat, generator)
    elif kind == "bit patterns":
        values = _patterns(flat, generator)
    elif kind == "one magnitude":
        values = _one_magnitude(values, generator)
    elif kind == "powers of two":  # small beside one magnitude: they leave its digits as they are
        values = torch.exp2(torch.randint(-15, -11, flat.shape, generator=generator)).copysign(values)
    elif kind == "subnormal":
        values = _subnormal(values, flat.dtype, _row(leaf.value), generator)
    elif kind == "least normal":
        values = values * torch.finfo(flat.dtype).smallest_normal
    elif kind == "equal values":
        values = _few(flat, generator)
    elif kind == "one value":
        row = (len(values), _row(leaf.value))[int(torch.randint(0, 2, (), generator=generator))]
        values = values[torch.arange(len(values)) // row * row]
    elif kind == "peaks":
        values = _peaked(values, _row(leaf.value), generator)
    elif kind == "zeros":
        values = _zeroed(values, _row(leaf.value), generator)
    elif kind == "constants":
        sizes = torch.tensor((1.0, 0.5, *constants, *(1 / c for c in constants)), dtype=torch.float64)
        levels = torch.cat([sizes, -sizes, torch.zeros(1)])
        values = levels[torch.randint(0, len(levels), flat.shape, generator=generator)]
    elif kind == "special values":
        values = _sprinkled(values, flat.dtype, _row(leaf.value), generator)
    elif kind == LIKE:
        values = _like(leaf, values)
    flat.copy_(torch.where(keep, flat.to(torch.float64), values))


def _half_of_the_largest(t: torch.Tensor, generator: torch.Generator) -> float:
    """A factor for products of two values, or sums of them over one of the axes, to come next to the largest number: in
    some orders parts of a sum overflow. A sum of n terms with random signs is √n times as large as one."""
    sizes = (1, *t.shape)
    n = sizes[int(torch.randint(len(sizes), (), generator=generator))]
    return math.sqrt(torch.finfo(t.dtype).max) / n**0.25


def _row(t: torch.Tensor) -> int:
    """Elements of a row in memory, for the kinds of special values to alternate; 16 where there is one
    row."""
    return t.shape[-1] if t.dim() > 1 and t.stride(-1) == 1 else 16


def _like(leaf: Leaf, noise: torch.Tensor) -> torch.Tensor:
    """Normal values of the given mean and deviation; positive where the given ones are, or by the name."""
    given = leaf.value.detach().to(torch.float64)
    given = given[given.abs() < _MASK]
    if not given.numel():
        return noise
    mean = float(given.mean())
    deviation = float(given.std()) if given.numel() > 1 else 0.0
    values = noise * (deviation or 0.5 * abs(mean) or 1.0) + mean
    name = leaf.name.rsplit(".", 1)[-1]
    variance = "var" in name or name.endswith("_sq")
    if variance or (float(given.min()) >= 0 and float(given.max()) > 0):
        return values.abs() + (0.1 if variance else 0.0)
    return values


def _few(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zero and large powers of two: equal operands, differences that vanish, sums without rounding. What is added or
    multiplied wrongly by a part in a million stands out."""
    size = 2.0 ** (12 if torch.finfo(like.dtype).max > 1e5 else 4)
    levels = torch.tensor((-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0), dtype=torch.float64) * size
    return levels[torch.randint(0, len(levels), like.shape, generator=generator)]


def _vanishing(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One, or about an ULP of one: what a sum with the other ones rounds away, wholly or in part."""
    eps = torch.finfo(like.dtype).eps
    small = eps * torch.exp2(torch.randint(-3, 3, like.shape, generator=generator))
    return torch.where(torch.rand(like.shape, generator=generator) < 0.5, 1.0, small)


def _pool(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A dozen numbers that meet, cancel, vanish and overflow, and a few that are not finite."""
    info = torch.finfo(like.dtype)
    least = info.smallest_normal
    pool = (
        0.0,
        -0.0,
        least / 4,
        -least / 4,
        least,
        1.0,
        -1.0,
        1.0 + 2 * info.eps,
        0.05,
        300.0,
        -info.max / 256,
    )
    rare = (math.inf, -math.inf, math.nan)
    drawn, special = (
        torch.tensor(levels, dtype=torch.float64)[torch.randint(len(levels), like.shape, generator=generator)]
        for levels in (pool, rare)
    )
    return torch.where(torch.rand(like.shape, generator=generator) < 0.01, special, drawn)


def _patterns(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every pattern of bits alike: numbers of every magnitude, infinities and NaN."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[like.dtype.itemsize]
    span = torch.iinfo(integers)
    drawn = torch.randint(span.min, span.max, like.shape, generator=generator, dtype=integers)
    return drawn.view(like.dtype).to(torch.float64)


def _one_magnitude(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One number, 1.5 to 1.75, with either sign among zeros: exact in eager where nothing is rounded.

    An ULP of a constant is two of the product, and the zeros bring the rms, by which errors are judged, just below the
    power of two under it."""
    level, which = torch.rand((), generator=generator), torch.randint(0, 2, (), generator=generator)
    some = torch.rand(values.shape, generator=generator) < (0.3, 0.6)[int(which)]
    return torch.where(some, (1.5 + 0.25 * level.double()).copysign(values), 0.0)


_PLACES = 4
"""Edges of a row: its last element, the last of its last full vector, the first after that, its first."""
_LANES = 16
"""Elements of the widest float32 vector."""


def _edge(t: torch.Tensor, values: Sequence[float], turn: int, generator: torch.Generator) -> None:
    """One special value in each row, or in three of four where there are several, at an edge: from row to row and
    from draw to draw at another one."""
    if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True)) or not t.dim():
        return
    row = t.shape[-1]
    full = row - row % _LANES
    places = torch.tensor((row - 1, max(full, 1) - 1, full if full < row else row - 1, 0))
    rows = t.numel() // row
    at = torch.arange(rows)
    chosen = torch.tensor(values, dtype=torch.float64)[
        torch.randint(0, len(values), (rows,), generator=generator)
    ]
    shape = t.shape[:-1]
    place = places[(at + turn) % _PLACES].reshape(*shape, 1)
    hit = (torch.arange(row) == place) & (((at + turn // _PLACES) % _PLACES > 0) | (rows == 1)).reshape(
        *shape, 1
    )
    t.copy_(torch.where(hit, chosen.reshape(*shape, 1), t.to(torch.float64)))


def _subnormal(
    values: torch.Tensor, dtype: torch.dtype, row: int, generator: torch.Generator
) -> torch.Tensor:
    """About the least normal number, and every second row a few of the least subnormal one."""
    info = torch.finfo(dtype)
    steps = torch.randint(-3, 4, values.shape, generator=generator).to(values.dtype)
    few = torch.arange(len(values)) // row % 2 == 1
    return torch.where(few, steps * (info.smallest_normal * info.eps), values * info.smallest_normal)


def _zeroed(values: torch.Tensor, row: int, generator: torch.Generator) -> torch.Tensor:
    """Half of the rows are zero: with either sign all over, or with both."""
    which = torch.randint(0, 6, (-(-len(values) // row),), generator=generator)
    which = which.repeat_interleave(row)[: len(values)]
    either = torch.randint(0, 2, values.shape, generator=generator) * 2 - 1
    signs = torch.where(which == 0, 1, torch.where(which == 1, -1, either))
    return torch.where(which < 3, torch.zeros_like(values).copysign(signs), values)


def _peaked(values: torch.Tensor, row: int, generator: torch.Generator) -> torch.Tensor:
    """Wide rows with one value far above (in half of them far below) the others, so far that exponentials overflow,
    vanish or are subnormal: in turn the last, the first, and any two. Half of the rows lie far from zero."""

    def chance(n: int) -> torch.Tensor:
        return torch.rand(n, generator=generator, dtype=torch.float64)

    count = -(-len(values) // row)
    rows = torch.arange(count) + int(torch.randint(0, 4, (), generator=generator))
    anywhere = (chance(count) * row).to(torch.int64)
    place = torch.where(rows % 4 == 0, row - 1, torch.where(rows % 4 == 1, 0, anywhere))
    height = (torch.arange(row) == place[:, None]) * (100 + 250 * chance(count))[:, None]
    base, sign = torch.where(chance(count) < 0.5, -400.0, 0.0), torch.where(chance(count) < 0.5, -1.0, 1.0)
    levels = sign[:, None] * (base[:, None] + height)
    return 15 * values + levels.reshape(-1)[: len(values)]


def _sprinkled(
    values: torch.Tensor, dtype: torch.dtype, row: int, generator: torch.Generator
) -> torch.Tensor:
    """One value in twelve replaced, by kinds that alternate with the rows: none, NaN, ±Inf, zeros and
    subnormals; a NaN in every row would say nothing about the other values."""
    info = torch.finfo(dtype)
    tiny = info.smallest_normal
    zeros = (0.0, -0.0, tiny * info.eps, -tiny / 2, -tiny * info.eps)
    kinds = torch.tensor([zeros, (math.nan,) * 5, (math.inf, -math.inf) * 2 + (0.0,)], dtype=torch.float64)
    which = torch.arange(len(values)) // row % 4
    choice = torch.randint(0, 12 * 5, values.shape, generator=generator)
    special = kinds[(which - 1).clamp(min=0), choice.clamp(max=4)]
    return torch.where((which > 0) & (choice < 5), special, values)


def _mask_rows(leaf: Leaf) -> None:
    """Every third row (last axis) of a floating user input becomes -Inf."""
    t = leaf.value
    if not _is_data(leaf) or t.dim() < 2:
        return
    if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True)):
        return
    t.detach()[..., ::3, :] = float("-inf")
