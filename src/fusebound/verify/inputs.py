"""Values to verify on: like the user's, and the special ones that break kernels."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from fusebound.verify.call import Leaf, has_memory, storage_key
from fusebound.verify.integers import any_integers, bools, integers, put_index
from fusebound.verify.rows import EDGES, PLACES, edge, mask_rows
from fusebound.verify.values import SPECIAL, Rule, fill_floats, least_normal, like, powers_of_two

GIVEN, LIKE = "given", "like"
PLAIN = (GIVEN, LIKE)
SPECIAL_SETS = tuple(SPECIAL)
"""Sets applied to floating user inputs; parameters are drawn as in "like", but for `EVERYWHERE`."""
SMALL_STATE = "subnormal parameters"
"""The set for what "subnormal" leaves ordinary: parameters, buffers, and vectors beside matrices."""
FULL_RANGE = "full range"
"""The set for integers that only arithmetic reads: any value of their type."""
EVERYWHERE = ("zeros", "small products", "tiny beside large", "few numbers", "bit patterns", "one magnitude")
"""Sets that parameters, buffers and vectors beside matrices are drawn by as well."""
BY_PLACE = ("peaks", "zeros", *EDGES)
"""Sets that put something into a few places only."""
RARE = (
    *BY_PLACE, "one magnitude", "wide range", "large products", "few numbers", "bit patterns", "one value"
)  # fmt: skip
"""Sets in which few elements meet what the set is for, so that larger tensors need several draws too."""
AS_A_WHOLE = ("larger mean", "one value", "one magnitude", *BY_PLACE)
"""Sets on which a row has one error, that of its mean or its peak: the tail or the last row alone is luck."""

_SIZES = 4
"""Sizes, the largest, whose bounds indices are tried at."""


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
        if not flat.is_floating_point():
            _fill_others(leaf, flat, kind, generator)
            continue
        leads = _leads(leaf, rank)
        rule = _rule_for(kind, leads)
        if kind == "one magnitude":
            rule, first = (rule if first == 0 else powers_of_two), first - 1
        fill_floats(leaf, flat, rule, generator, constants)
        if kind in EDGES and leads == (draw % 8 < PLACES or not state_sets(leaves)):
            edge(leaf.value.detach(), EDGES[kind], draw + len(seen), generator)
    if kind == "-inf rows":
        for leaf in leaves:
            if _is_data(leaf):
                mask_rows(leaf.value.detach())


def _rank(leaves: Sequence[Leaf]) -> int:
    return max((leaf.value.dim() for leaf in leaves if _is_data(leaf)), default=0)


def _leads(leaf: Leaf, rank: int) -> bool:
    """Whether a floating input is data: a vector beside matrices is a weight, a bias or a statistic, whatever the user
    calls it."""
    return _is_data(leaf) and leaf.value.dim() >= min(rank, 2)


def _rule_for(kind: str, leads: bool) -> Rule:
    """How one floating tensor is drawn in a set: special values come to data, in the sets `EVERYWHERE` to all, in
    `SMALL_STATE` to the others. Sets that are about integers or layouts have numbers like the given ones."""
    if kind == SMALL_STATE:
        return like if leads else least_normal
    if not (leads or kind in EVERYWHERE):
        return like
    return SPECIAL.get(kind, like)


def _is_float(leaf: Leaf) -> bool:
    kinds = ("user", "param", "buffer")
    return leaf.kind in kinds and leaf.is_tensor and leaf.value.is_floating_point()


def _is_data(leaf: Leaf) -> bool:
    return leaf.kind == "user" and leaf.is_tensor and leaf.value.is_floating_point()


def _is_integer(leaf: Leaf) -> bool:
    kind = leaf.value.dtype if leaf.is_tensor else torch.bool
    return not (kind.is_floating_point or kind.is_complex or kind == torch.bool)


def _fill_others(leaf: Leaf, flat: torch.Tensor, kind: str, generator: torch.Generator) -> None:
    """Bools, complex numbers and integers, which only the sets for integers know apart."""
    given, n = leaf.value.detach(), flat.numel()
    if flat.dtype == torch.bool:
        flat.copy_(bools(given, n, generator))
    elif flat.is_complex():
        flat.copy_(torch.complex(*(torch.randn(n, generator=generator) for _ in "ri")))
    elif kind == FULL_RANGE and leaf.free:
        flat.copy_(any_integers(flat.dtype, n, generator))
    else:
        flat.copy_(integers(given, n, generator))
        if kind.startswith("index") and leaf.kind == "user":
            put_index(given, int(kind.removeprefix("index")))
