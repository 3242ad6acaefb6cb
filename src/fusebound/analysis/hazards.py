"""WAR and WAW: an in-place write of a storage against other accesses of it, by their index maps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusebound.analysis.access import Region, whole
from fusebound.analysis.alias import storages
from fusebound.analysis.group import in_order
from fusebound.ir.graph import Graph, Node, hint
from fusebound.ir.ops import spec_of


@dataclass(frozen=True, slots=True)
class Hazard:
    """Why a kernel may not write `storage` in place; `read` and `write` show the two index maps."""

    code: str
    storage: str
    message: str
    read: str
    write: str
    nodes: tuple[str, ...]
    counterfactual: str


def hazard(g: Graph, nodes: Collection[str]) -> Hazard | None:
    """The first WAR or WAW inside a group, or None. The kernel writes a mutated input where it makes its new
    value.
    """
    inside = frozenset(nodes)
    for m in g.mutations:
        maker = g.producer.get(m.source)
        if maker is not None and maker.id in inside:
            found = _war(g, inside, m.target, maker) or _waw(g, inside, m.target, maker)
            if found is not None:
                return found
    return None


def _war(g: Graph, inside: frozenset[str], target: str, maker: Node) -> Hazard | None:
    """A read of the target at other points than those that the same iteration writes."""
    trail = _moved_read(g, inside, target, maker)
    if trail is None:
        return None
    node, how = trail
    writer, reader = g.user[maker.user], g.user[node.user]
    text = (
        f"{writer.label} writes {target} in place while {reader.label} reads it {how}: "
        f"an iteration would read what another has already written"
    )
    flip = f"write the result to a new tensor instead of {writer.written or writer.target}"
    return Hazard("F102", target, text, how, "its own point", (node.id, maker.id), flip)


def _moved_read(g: Graph, inside: frozenset[str], target: str, maker: Node) -> tuple[Node, str] | None:
    """Walk from the written value back to the target; the first node that moves points names the obstacle."""
    found: tuple[Node, str] | None = None
    seen: set[tuple[str, bool]] = set()
    stack: list[tuple[Node, tuple[Node, str] | None, tuple[Node, int] | None]] = [(maker, None, None)]
    while stack:
        n, moved, scatter = stack.pop()
        if (n.id, moved is not None) in seen:
            continue
        seen.add((n.id, moved is not None))
        for k, v in enumerate(n.inputs):
            here = moved
            placed = scatter
            step = _moves(g, n, k, scatter)
            if step == "placed":
                placed = (n, k)
            elif step == "undone":
                placed = None
            elif step and here is None:
                here = (n, step)
            p = g.producer.get(v)
            if v == target:
                if here is not None:
                    found = found or here
            elif p is not None and p.id in inside:
                stack.append((p, here, placed))
    return found


def _moves(g: Graph, n: Node, operand: int, scatter: tuple[Node, int] | None) -> str:
    """ "" when the operand is read at the result's own point, else how it is read.

    A slice assignment places its source ("placed"); the slice that takes the same points out undoes it
    ("undone").
    """
    if n.op == "slice_scatter":
        return "placed" if operand == 1 else ""
    if n.op == "slice":
        if scatter is not None and all(n.attr(a) == scatter[0].attr(a) for a in ("dim", "start", "step")):
            return "undone"
        return "sliced at other points" if g.values[n.out].shape != g.values[n.inputs[0]].shape else ""
    spec = spec_of(n.op)
    if spec is None or spec.cls == "gather":
        return "by data"
    if spec.cls == "reduce":
        return "over a whole axis"
    v, out = g.values[n.inputs[operand]], g.values[n.out]
    if n.op in ("permute", "flip"):
        return {"permute": "permuted", "flip": "flipped"}[n.op] if v.numel > 1 else ""
    if n.op in ("pad", "cat"):
        return "shifted"
    return "" if n.op == "reshape" or v.numel == out.numel else "broadcast"


def _waw(g: Graph, inside: frozenset[str], target: str, maker: Node) -> Hazard | None:
    """Two versions of one storage that must both reach memory, written at overlapping but unequal points."""
    writers = [n for n in in_order(g, inside) if n.op == "slice_scatter" and n.id != maker.id]
    owner = storages(g).base
    for n in writers:
        if n.out not in g.escaping or not _versions(g, n.out, maker.out):
            continue
        if _written(g, n) != _written(g, maker) and owner[n.out] != owner[maker.out]:
            a, b = g.user[n.user].label, g.user[maker.user].label
            text = (
                f"{a} and {b} both write {target}, at overlapping points of different maps, "
                f"and both results are kept"
            )
            flip = "keep only the last version"
            return Hazard(
                "F103", target, text, _show(_written(g, n)), _show(_written(g, maker)), (n.id, maker.id), flip
            )
    return None


def _versions(g: Graph, old: str, new: str) -> bool:
    """Whether `new` was made from `old` by further writes."""
    queue, seen = [new], {new}
    while queue:
        p = g.producer.get(queue.pop())
        for v in p.inputs if p is not None else ():
            if v == old:
                return True
            if v not in seen:
                seen.add(v)
                queue.append(v)
    return False


def _written(g: Graph, n: Node) -> Region:
    """The points that a node writes anew: the slice of a slice assignment, else everything."""
    if n.op != "slice_scatter":
        return whole(g.values[n.out])
    dim, start, step = n.attr("dim"), n.attr("start"), n.attr("step")
    assert isinstance(dim, int) and isinstance(start, int) and isinstance(step, int)
    size = hint(g.values[n.inputs[1]].shape[dim])
    region = list(whole(g.values[n.out]))
    region[dim] = (start, size, step)
    return tuple(region)


def _show(r: Region) -> str:
    return "[" + ", ".join(f"{a}:{a + n * s}" + (f":{s}" if s > 1 else "") for a, n, s in r) + "]"
