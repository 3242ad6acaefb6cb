"""What each primitive demands of its attributes, element types and shapes (used by `ir.spec`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from fusebound.ir.builder import infer_dtype, infer_shape
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Attr, Dim, Graph, Node, hint
from fusebound.ir.ops import OPS
from fusebound.words import count

Shape = tuple[Dim, ...]


def _is_int(a: Attr) -> bool:
    return isinstance(a, int) and not isinstance(a, bool)


def _is_number(a: Attr) -> bool:
    return isinstance(a, (bool, int, float))


def _is_ints(a: Attr) -> bool:
    return isinstance(a, tuple) and all(map(_is_int, a))


def _is_bool(a: Attr) -> bool:
    return isinstance(a, bool)


_KINDS: dict[str, tuple[str, Callable[[Attr], bool]]] = {
    "axes": ("a list of ints", _is_ints),
    "perm": ("a list of ints", _is_ints),
    "dims": ("a list of ints", _is_ints),
    "lo": ("a list of ints", _is_ints),
    "dim": ("an int", _is_int),
    "start": ("a number", _is_number),
    "step": ("a number", _is_number),
    "value": ("a number", _is_number),
    "user": ("True or False", _is_bool),
    "draw": ("an int", _is_int),
    "word": ("an int", _is_int),
}


def attr_faults(g: Graph, n: Node) -> Iterator[str]:
    """Attributes present, known, typed, naming axes that exist. A cast's `user` may be left out (False)."""
    spec = OPS[n.op]
    given = dict(n.attrs)
    if len(given) != len(n.attrs):
        yield f"{n.op} has an attribute twice"
    for key in spec.attrs:
        if key not in given:
            if key != "user":
                yield f"{n.op} needs the attribute {key}"
        elif not _KINDS[key][1](given[key]):
            yield f"{n.op}'s {key} must be {_KINDS[key][0]}, not {given[key]!r}"
        else:
            yield from _range_faults(g, n, key, given[key])
    for key in given.keys() - set(spec.attrs):
        yield f"{n.op} has no attribute {key}"


def _range_faults(g: Graph, n: Node, key: str, a: Attr) -> Iterator[str]:
    rank = len(g.values[n.inputs[0] if n.inputs else n.out].shape)
    if (key == "dim" and n.op != "iota") or key in ("axes", "dims", "perm"):
        axes = cast(tuple[int, ...], a if isinstance(a, tuple) else (a,))
        if any(not 0 <= x < rank for x in axes) or len(set(axes)) != len(axes):
            yield f"{n.op}'s {key} {list(axes)} are not distinct axes of a tensor of rank {rank}"
    if key == "perm" and isinstance(a, tuple) and len(a) != rank:
        yield f"perm has {count(len(a), 'entry', 'entries')} for rank {rank}"
    if key == "lo" and isinstance(a, tuple) and len(a) != rank:
        yield f"lo has {count(len(a), 'entry', 'entries')} for rank {rank}"
    if key == "dim" and n.op == "iota" and not 0 <= cast(int, a) < max(len(g.values[n.out].shape), 1):
        yield f"iota's dim {a} is no axis of its result"
    if key == "word" and a not in (0, 1, 2, 3):
        yield f"{n.op} has the words 0 to 3, not {a!r}"
    if key == "draw" and isinstance(a, int) and not 0 <= a < 1 << 32:
        yield f"{n.op}'s draw {a} is no 32-bit number"
    if key in ("start", "step") and n.op != "iota" and not _is_int(a):
        yield f"{n.op}'s {key} must be an int, not {a!r}"
    if key == "step" and n.op != "iota" and isinstance(a, int) and a < 1:
        yield f"{n.op}'s step must be positive, not {a}"


def dtype_faults(g: Graph, n: Node) -> Iterator[str]:
    """Operands of one type where the builder wants one, and the result's type as the builder infers it."""
    spec = OPS[n.op]
    dtypes = [g.values[v].dtype for v in n.inputs]
    result = g.values[n.out].dtype
    if spec.floats and not all(DTYPES[d].kind in ("float", "complex") for d in dtypes):
        yield f"{n.op} of {', '.join(dtypes)}: cast to a float type first"
    if n.op == "where" and dtypes[0] != "bool":
        yield f"where chooses by {dtypes[0]}, not bool"
    if n.op in ("gather", "index_select") and not DTYPES[dtypes[1]].is_int:
        yield f"{n.op} indexes by {dtypes[1]}, not an integer type"
    if n.op == "random" and dtypes[0] != "int64":
        yield f"{n.op} is keyed by {dtypes[0]}, not int64"
    if spec.result == "given":
        return
    try:
        want = infer_dtype(spec, dtypes)
    except ValueError as e:
        yield str(e)
        return
    if result != want and not (spec.accumulates and DTYPES[result].itemsize >= DTYPES[want].itemsize):
        yield f"{n.op} of {', '.join(dict.fromkeys(dtypes))} is {want}, not {result}"


def shape_faults(g: Graph, n: Node) -> Iterator[str]:
    """The result's shape as the builder infers it; for shapes that are given, that the operand fills them."""
    shapes = [g.values[v].shape for v in n.inputs]
    out = g.values[n.out].shape
    try:
        want = infer_shape(OPS[n.op], list(shapes), out, dict(n.attrs))
    except (ValueError, IndexError) as e:
        yield f"{n.op}: {e}"
        return
    if want != out:
        yield f"{n.op} of {_show(*shapes)} is {_show(want)}, not {_show(out)}"
    elif n.op in _FITS and (why := _FITS[n.op](n, shapes, out)):
        yield f"{n.op} of {_show(*shapes)} cannot be {_show(out)}: {why}"


def _show(*shapes: Shape) -> str:
    return ", ".join(f"[{', '.join(map(str, s))}]" for s in shapes)


def _int(n: Node, key: str) -> int:
    return cast(int, n.attr(key))


def _expand(n: Node, shapes: list[Shape], out: Shape) -> str:
    (have,) = shapes
    if len(have) > len(out):
        return "an axis would vanish"
    tail = out[len(out) - len(have) :]
    return "" if all(a in (1, b) for a, b in zip(have, tail, strict=True)) else "only axes of size 1 expand"


def _slice(n: Node, shapes: list[Shape], out: Shape) -> str:
    return _window(n, shapes[0], out)


def _slice_scatter(n: Node, shapes: list[Shape], out: Shape) -> str:
    return _window(n, shapes[0], shapes[1])


def _window(n: Node, whole: Shape, part: Shape) -> str:
    """Is `part` the elements start, start + step, … of axis dim of `whole`?"""
    dim, start, step = _int(n, "dim"), _int(n, "start"), _int(n, "step")
    if len(whole) != len(part) or any(
        a != b for i, (a, b) in enumerate(zip(whole, part, strict=True)) if i != dim
    ):
        return f"only axis {dim} may differ"
    if start < 0 or (hint(part[dim]) and start + (hint(part[dim]) - 1) * step >= hint(whole[dim])):
        return f"start {start}, step {step} leave the axis"
    return ""


def _pad(n: Node, shapes: list[Shape], out: Shape) -> str:
    return "" if len(out) == len(shapes[0]) else "padding keeps the rank"


def _cat(n: Node, shapes: list[Shape], out: Shape) -> str:
    dim = _int(n, "dim")
    rest = {s[:dim] + s[dim + 1 :] for s in shapes}
    return "" if len(rest) == 1 else f"only axis {dim} may differ"


def _random(n: Node, shapes: list[Shape], out: Shape) -> str:
    return "" if shapes[0] == () else "the seed is 0-d"


def _gather(n: Node, shapes: list[Shape], out: Shape) -> str:
    return "" if len(shapes[0]) == len(shapes[1]) else "source and index have one rank"


_FITS: dict[str, Callable[[Node, list[Shape], Shape], str]] = {
    "expand": _expand,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "pad": _pad,
    "cat": _cat,
    "gather": _gather,
    "random": _random,
}
