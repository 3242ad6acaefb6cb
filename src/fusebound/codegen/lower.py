"""From a group and its iteration space to a tile program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fusebound.analysis.interpret import rounded
from fusebound.analysis.numerics import kept_roundings
from fusebound.analysis.space import Space
from fusebound.codegen import tile
from fusebound.codegen.loops import Access, Loops, blocks, choose
from fusebound.codegen.regions import Region, regions
from fusebound.codegen.scratch import kept_sites
from fusebound.codegen.sites import Needed, Site, Walker
from fusebound.codegen.split import FEW, Split, split
from fusebound.codegen.staging import LONGEST, ROUNDS, chains
from fusebound.codegen.turned import LEAST, is_turned
from fusebound.ir.builder import contiguous
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Affine, Index, linear
from fusebound.ir.ops import OPS

HEAVY = 16
"""Statements above which a loop body is not unrolled: registers would run out."""
COLUMN_VECTORS = 4
"""Vectors that go down a column side by side: a row gives them neighbouring lines, and each adds up on its own."""
_Rows = Callable[[list[tile.Stmt], int, frozenset[int], Mapping[int, tuple[int, int]]], None]
"""Emits what is inside the outer loops: into a body, for a pass, with so many variables bound."""


def lower(
    g: Graph, nodes: Collection[str], space: Space, *, name: str, lanes: int, numerics: str, stream: bool
) -> tile.Kernel:
    """The tile program of a group.

    `lanes` is the vector length; `numerics="eager"` keeps every rounding of narrow types; `stream` asks for
    non-temporal stores where they are aligned.
    """
    made = _Lowering(g, frozenset(nodes), space, name, lanes, numerics, stream)
    program = made.run()
    if made.loops.has_columns(lanes):
        return _Lowering(g, frozenset(nodes), space, name, COLUMN_VECTORS * lanes, numerics, stream).run()
    return program


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value lies that was computed before; see `tile.Recall`."""

    scratch: int
    offset: Affine
    within: tuple[int, ...] = ()


class _Lowering:
    def __init__(
        self,
        g: Graph,
        inside: frozenset[str],
        space: Space,
        name: str,
        lanes: int,
        numerics: str,
        stream: bool,
    ) -> None:
        self.g, self.inside, self.space, self.name = g, inside, space, name
        self.lanes, self.stream = lanes, stream
        self.rounds = kept_roundings(g, inside, numerics)
        self.params = [tile.Param(v, g.values[v].dtype, False) for v in space.inputs]
        self.regions, stay = regions(g, inside, space)
        self.params += [tile.Param(v, g.values[v].dtype, True, v in stay) for v in space.outputs]
        self.slot = {p.value: i for i, p in enumerate(self.params) if not p.written}
        self.out_slot = {p.value: i for i, p in enumerate(self.params) if p.written}
        self.mutated = {m.source for m in g.mutations}
        self.count = 0
        self.accumulators = 0
        self.scopes: list[dict[int, int]] = [{}]
        self.region = self.regions[0]
        self.vectors: set[int] = set()
        self.stages: list[tile.Scratch] = []
        self.staged: dict[int, _Place] = {}
        self.turned: dict[tuple[int, Affine], tile.Turn] = {}
        self.turned_part = False
        self.across = -1
        self.split: Split | None = None
        self.parts: dict[Site, tile.Part] = {}

    def run(self) -> tile.Kernel:
        self.loops = self._loops()
        self.lane = self.loops.vector
        nests = sorted((n for region in self.regions for n in self._nests(region)), key=lambda n: n.phase)
        if self.mutated.isdisjoint(self.out_slot):  # else what a nest may write in place is asked of it alone
            nests = joined(nests)
        rows = (tile.Scratch(i, self._row_elements(), self._dtype(s)) for s, i in self.kept.items())
        return tile.Kernel(
            self.name, tuple(self.params), (*rows, *self.stages), tuple(nests), self.lanes,
            self.loops.vector, frozenset(self.vectors), tuple(self.parts.values()),
        )  # fmt: skip

    # which loops

    def _loops(self) -> Loops:
        accesses: dict[Access, None] = {}
        others: dict[Affine, None] = {}
        passes: list[tuple[Walker, list[dict[Site, Needed]]]] = []
        for region in self.regions:
            self.region = region
            for w in region.walkers:
                for s, _ in w.stores():
                    accesses[Access(self._store_offset(s.value, s.index), self._size(s.value), True)] = None
                needed = [{n.site: n for n in w.order(self._targets(w, i))} for i in range(self.space.stages)]
                for site in (site for table in needed for site in table):
                    self._note_access(w, site, accesses, others)
                passes.append((w, needed))
        turning = all(len(r.walkers) == 1 for r in self.regions)
        loops = choose(self.space, accesses, others, self.lanes, turning=turning)
        row = frozenset(loops.inner)
        kept = [
            s for s in kept_sites(passes, self.space, self._depends, loops.vector, loops.across)
            if all(row <= w.deps[s] for w, _ in passes if s in w.deps)
        ]  # fmt: skip
        self.kept = {s: i for i, s in enumerate(kept)}
        return loops

    def _note_access(
        self, w: Walker, site: Site, accesses: dict[Access, None], others: dict[Affine, None]
    ) -> None:
        if site.kind == "load":
            accesses[Access(w.offset(site), self._size(site.id), False)] = None
        if site.kind != "node":
            return
        n = w.node(site)
        if OPS[n.op].cls == "gather":
            accesses[Access(w.offset(site), self._size(n.inputs[0]), False)] = None
        if n.op == "iota":
            others[site.at[_int(n.attr("dim"))]] = None
        if n.op == "random":
            others[self._counter(n, site.at)] = None
        if n.op in ("argmax", "argmin"):
            others[self._where(n, site.at)] = None

    def _where(self, n: Node, at: Index) -> Affine:
        """Flat position along the reduced axes of an operand point."""
        axes = n.attr("axes")
        assert isinstance(axes, tuple)
        shape = self.g.values[n.inputs[0]].shape
        flat = Affine()
        for k, e in enumerate(self.space.reductions[n.id, at]):
            if k in axes:
                flat = flat * _int(shape[k]) + e
        return flat

    def _counter(self, n: Node, at: Index) -> Affine:
        """An element's row-major place in the shape that was drawn, wherever its value lies."""
        return linear(at, [_int(s) for s in contiguous(self.g.values[n.out].shape)])

    def _size(self, value: str) -> int:
        return self.g.values[value].type.itemsize

    def _store_offset(self, value: str, index: Index) -> Affine:
        out = Affine()
        for e, s in zip(index, self.g.values[value].strides, strict=True):
            out = out + e * _int(s)
        return out

    # what each pass computes

    def _reductions(self, depth: int) -> list[Needed]:
        """Reductions of the region that pass number `depth` accumulates."""
        depths = self.space.depth
        return [r for r in self.region.reductions if depths[self.g.node[r.site.id].out] == depth + 1]

    def _stores(self, w: Walker, depth: int) -> list[tuple[Needed, int, Index]]:
        found = [(s, needed) for s, needed in w.stores() if self.space.depth[s.value] == depth]
        return [(needed, self.out_slot[s.value], s.index) for s, needed in found]

    def _targets(self, w: Walker, depth: int) -> list[Needed]:
        return [w.reduced(r) for r in self._reductions(depth)] + [s for s, _, _ in self._stores(w, depth)]

    def _depends(self, w: Walker, needed: Needed) -> frozenset[int]:
        """The loop variables on which a site's value depends."""
        site = needed.site
        found = w.deps.get(site)
        if found is None:
            found = w.deps[site] = self._find_deps(w, needed)
        return found

    def _find_deps(self, w: Walker, needed: Needed) -> frozenset[int]:
        site = needed.site
        if site.kind == "fill":
            return frozenset()
        if site.kind == "load":
            return w.offset(site).vars
        n = w.node(site)
        if OPS[n.op].cls == "reduce":
            return frozenset(v for e in site.at for v in e.vars)
        deps = frozenset(v for o in w.operands(needed) for v in self._depends(w, o))
        if OPS[n.op].cls == "gather":
            deps |= w.offset(site).vars
        if n.op == "iota":
            deps |= site.at[_int(n.attr("dim"))].vars
        if n.op == "random":
            deps |= self._counter(n, site.at).vars
        return deps

    def _bound_deps(self, w: Walker, needed: Needed) -> frozenset[int]:
        return frozenset(v for v in self._depends(w, needed) if v in self.loops.extent)

    # nests

    def _nests(self, region: Region) -> list[tile.Nest]:
        """The nest of a region, or where its rows are split those of all its phases."""
        self.region = region
        ranges = self.loops.ranges(region.segment)
        lo, hi = ranges.get(self.loops.across, (0, 0))
        self.across = self.loops.across if hi - lo >= LEAST else -1
        cut = blocks(self.loops, ranges, self.lanes, self.across)
        self.split = split(self.loops, ranges, cut, self.lanes) if self._may_split() else None
        if self.split is None:
            return [self._nest(cut, ranges, 0, self._passes)]
        chunk = (self.split.var, self.split.block)
        nests: list[tile.Nest] = []
        for depth in range(self.space.stages):
            nests.append(self._nest(cut, ranges, depth, self._whole_rows))
            nests.append(self._nest([*cut, chunk], ranges, depth, self._chunk))
        return [n for n in nests if n.body]

    def _may_split(self) -> bool:
        """Rows in one piece, of which nothing is kept for the next pass."""
        return self.across < 0 and len(self.regions) == len(self.region.walkers) == 1 and not self.kept

    def _nest(
        self, cut: Sequence[tuple[int, int]], ranges: Mapping[int, tuple[int, int]], depth: int, rows: _Rows
    ) -> tile.Nest:
        """Tiles of so many points of some loops; `rows` emits what is inside the outer loops."""
        single = [v for v, b in cut if ranges[v][1] - ranges[v][0] == b == 1]
        axes = tuple(tile.Axis(v, *ranges[v], b) for v, b in cut if v not in single)
        self.scopes, self.staged = [{}], {}
        fixed = frozenset(v for v, b in cut if b == 1)
        looped = [v for v in self.loops.outer if v not in fixed]
        blocked = {v: b for v, b in cut if b > 1}
        body: list[tile.Stmt] = []
        self._level(body, looped, fixed, ranges, blocked, depth, rows)
        for v in single:
            body = [tile.Loop(v, *ranges[v], False, False, tuple(body))]
        return tile.Nest(axes, tuple(body), depth)

    def _level(
        self, body: list[tile.Stmt], looped: list[int], bound: frozenset[int],
        ranges: Mapping[int, tuple[int, int]], blocked: Mapping[int, int], depth: int, rows: _Rows,
    ) -> None:  # fmt: skip
        """Hoist what the bound variables determine, then open the next outer loop or emit the rows."""
        if not looped:
            rows(body, depth, bound, ranges)
            return
        self._collect(body, depth, bound)
        self._hoist(body, depth, bound)
        v = looped[0]
        self._stage(body, v, looped[1:], bound, ranges, blocked)
        if v == self.across:
            self._turn(body, ranges, blocked)
        inside: list[tile.Stmt] = []
        self.scopes.append({})
        self._level(inside, looped[1:], bound | {v}, ranges, blocked, depth, rows)
        self.scopes.pop()
        if self.split is None or _acts(inside):
            body.append(self._loop(v, ranges, v in blocked, inside))
        if v == self.across:
            body += self.turned.values()

    def _turn(
        self, body: list[tile.Stmt], ranges: Mapping[int, tuple[int, int]], blocked: Collection[int]
    ) -> None:
        """Before the loop that memory lies along: what is loaded apart, turned; what is stored so is turned later."""
        (w,) = self.region.walkers
        self.turned, self.turned_part = {}, self.loops.vector in blocked
        for depth in range(self.space.stages):
            for n in w.order(self._targets(w, depth)):
                if (
                    n.site.kind == "load"
                    and self._is_turned(w.offset(n.site))
                    and w.form(n) not in self.staged
                ):
                    offset = self.loops.keep(w.offset(n.site))
                    t = self._turned(self.slot[n.site.id], offset, self._dtype(n.site), ranges)
                    self.staged[w.form(n)] = _Place(t.scratch, t.place, t.within)
                    body.append(t)

    def _is_turned(self, offset: Affine) -> bool:
        return self.across >= 0 and is_turned(offset, self.loops.vector, self.across)

    def _turned(
        self, slot: int, offset: Affine, dtype: str, ranges: Mapping[int, tuple[int, int]]
    ) -> tile.Turn:
        vector = self.loops.vector
        rows, columns = self.loops.turned
        pitch = columns + self.lanes
        number = len(self.kept) + len(self.stages)
        self.stages.append(tile.Scratch(number, rows * pitch, dtype))
        return tile.Turn(number, slot, offset, self.across, vector, *ranges[vector], pitch, self.turned_part)

    def _store(
        self,
        body: list[tile.Stmt],
        slot: int,
        offset: Affine,
        src: int,
        ranges: Mapping[int, tuple[int, int]],
    ) -> None:
        if not self._is_turned(offset):
            body.append(tile.Store(slot, offset, src, self._streams(slot, offset)))
            return
        if (slot, offset) not in self.turned:
            self.turned[slot, offset] = self._turned(slot, offset, self.params[slot].dtype, ranges)
        t = self.turned[slot, offset]
        body.append(tile.Keep(t.scratch, t.place, src, t.within))

    def _stage(
        self, body: list[tile.Stmt], v: int, within: list[int], bound: frozenset[int],
        ranges: Mapping[int, tuple[int, int]], blocked: Mapping[int, int],
    ) -> None:  # fmt: skip
        """Before the loop over `v` is opened: what it would compute again in every round, and what no vector would."""
        vector = self.loops.vector
        if v == vector or len(self.region.walkers) > 1 or self.split:
            return
        rounds = blocked.get(v, ranges[v][1] - ranges[v][0])
        if rounds >= ROUNDS:
            self._stage_along(vector, body, bound, ranges, blocked, 0)
        if rounds >= self.lanes // 2:
            inside = prod(ranges[x][1] - ranges[x][0] for x in (*within, *self.loops.inner))
            self._stage_along(v, body, bound, ranges, blocked, inside // self.lanes)

    def _stage_along(
        self, x: int, body: list[tile.Stmt], bound: frozenset[int],
        ranges: Mapping[int, tuple[int, int]], blocked: Mapping[int, int], beside: int,
    ) -> None:  # fmt: skip
        """A vector loop over `x` for the chains along it that are dear beside so many vectors."""
        (w,), (_, end) = self.region.walkers, ranges[x]
        targets = [t for depth in range(self.space.stages) for t in self._targets(w, depth)]
        found = [n for n, price in chains(w, targets, x, bound, self._bound_deps) if beside <= 4 * price]
        found = [n for n in found if w.form(n) not in self.staged]
        if not found or end > LONGEST:
            return
        inside: list[tile.Stmt] = []
        self.scopes.append({})
        self.lane = x
        for n in found:
            number = len(self.kept) + len(self.stages)
            self.stages.append(tile.Scratch(number, end + self.lanes, self._dtype(n.site)))
            inside.append(tile.Keep(number, Affine.var(x), self._site(inside, w, n)))
        self.lane = self.loops.vector
        self.scopes.pop()
        made = zip(found, self.stages[-len(found) :], strict=True)
        self.staged |= {w.form(n): _Place(s.id, Affine.var(x)) for n, s in made}
        body.append(tile.Loop(x, *ranges[x], True, x in blocked, tuple(inside)))

    def _loop(
        self, v: int, ranges: Mapping[int, tuple[int, int]], blocked: bool, body: list[tile.Stmt]
    ) -> tile.Loop:
        lo, hi = ranges[v]
        vector = v == self.loops.vector
        copies = unrolled(body, (hi - lo) // self.lanes) if vector else 1
        return tile.Loop(v, lo, hi, vector, blocked, tuple(body), copies)

    def _hoist(self, body: list[tile.Stmt], depth: int, bound: frozenset[int]) -> None:
        for w in self.region.walkers:
            self._hoist_from(body, w, depth, bound)

    def _hoist_from(self, body: list[tile.Stmt], w: Walker, depth: int, bound: frozenset[int]) -> None:
        """Compute what the bound variables determine of the values that a pass needs."""
        for needed in w.order(self._targets(w, depth), self.staged):
            if self._bound_deps(w, needed) <= bound and self._ready(w, needed):
                self._site(body, w, needed)

    def _ready(self, w: Walker, needed: Needed) -> bool:
        site = needed.site
        return site.kind != "node" or OPS[w.node(site).op].cls != "reduce"

    def _passes(
        self, body: list[tile.Stmt], first: int, bound: frozenset[int], ranges: Mapping[int, tuple[int, int]]
    ) -> None:
        """All passes over a row."""
        kept: list[set[Site]] = [set() for _ in self.region.walkers]
        for depth in range(first, self.space.stages):
            self._hoist(body, depth, bound)
            self._row_stores(body, depth, ranges)
            for r, acc in self._pass(body, depth, bound, ranges, kept).items():
                body.append(tile.Finish(self._new(self.region.walkers[0], r), acc.id, self._note(r.site)))

    def _pass(
        self, body: list[tile.Stmt], depth: int, bound: frozenset[int],
        ranges: Mapping[int, tuple[int, int]], kept: list[set[Site]],
    ) -> dict[Needed, tile.Accumulator]:  # fmt: skip
        """One pass over a row, or over its chunk, and the accumulators that it leaves."""
        accs = {r: self._accumulator(r) for r in self._reductions(depth)}
        inside: list[tile.Stmt] = []
        for w, part, held in zip(self.region.walkers, self.region.parts, kept, strict=True):
            rows = {k: v for k, v in self.loops.ranges(part).items() if k in self.loops.inner}
            self.scopes.append({})
            self._row(inside, w, depth, list(self.loops.inner), bound, {**ranges, **rows}, accs, held)
            self.scopes.pop()
            held |= {s for n in w.order(self._targets(w, depth)) if (s := n.site) in self.kept}
        if inside:
            body.append(tile.Pass(tuple(accs.values()), tuple(inside)))
        return accs

    # rows that are split

    def _whole_rows(
        self, body: list[tile.Stmt], depth: int, bound: frozenset[int], ranges: Mapping[int, tuple[int, int]]
    ) -> None:
        """What is stored once per row, after earlier phases."""
        made: list[tile.Stmt] = []
        self._collect(made, depth, bound)
        self._hoist(made, depth, bound)
        self._row_stores(made, depth, ranges)
        body += made if _acts(made) else ()

    def _chunk(
        self, body: list[tile.Stmt], depth: int, bound: frozenset[int], ranges: Mapping[int, tuple[int, int]]
    ) -> None:
        """The pass of one phase over a chunk."""
        assert self.split is not None
        made: list[tile.Stmt] = []
        self._collect(made, depth, bound)
        self._hoist(made, depth, bound)
        accs = self._pass(made, depth, bound, ranges, [set()])
        for r, acc in accs.items():
            rows = prod(self.loops.extent[v] for v in self.loops.outer)
            part = tile.Part(len(self.parts), acc, self.split.var, self.split.block, self.split.chunks, rows)
            self.parts[r.site] = part
            made.append(tile.Deposit(part.id, acc.id, self._row_number()))
        body += made if _acts(made) else ()

    def _collect(self, body: list[tile.Stmt], depth: int, bound: frozenset[int]) -> None:
        """Reductions of earlier phases that this one needs, once the bound variables say of which row."""
        (w, *_) = self.region.walkers
        for needed in w.order(self._targets(w, depth)) if self.parts else ():
            part = self.parts.get(needed.site)
            if part is None or not self._bound_deps(w, needed) <= bound or self._known(w.form(needed)):
                continue
            dst = self._new(w, needed)
            body.append(tile.Collect(dst, part.id, self._row_number(), self._note(needed.site)))

    def _row_number(self) -> Affine:
        number, step = Affine(), 1
        for v in reversed(self.loops.outer):
            number = number + Affine.var(v, step)
            step *= self.loops.extent[v]
        return number

    def _row_stores(self, body: list[tile.Stmt], depth: int, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Stores of values that the reduced axes do not index: once per row."""
        done: set[tuple[int, Affine]] = set()
        for w in self.region.walkers:
            for needed, slot, index in self._stores(w, depth):
                offset = self.loops.keep(self._store_offset(self.params[slot].value, index))
                if self._in_row(w, needed, offset) or (slot, offset) in done:
                    continue
                done.add((slot, offset))
                self._store(body, slot, offset, self._site(body, w, needed), ranges)

    def _in_row(self, w: Walker, needed: Needed, offset: Affine) -> bool:
        """Whether a store belongs inside the loops over the reduced axes."""
        return not (offset.vars | self._bound_deps(w, needed)).isdisjoint(self.loops.inner)

    def _row(
        self, body: list[tile.Stmt], w: Walker, depth: int, looped: list[int], bound: frozenset[int],
        ranges: Mapping[int, tuple[int, int]], accs: Mapping[Needed, tile.Accumulator], kept: set[Site],
    ) -> None:  # fmt: skip
        if looped:
            v = looped[0]
            self._hoist_from(body, w, depth, bound)
            inside: list[tile.Stmt] = []
            self.scopes.append({})
            self._row(inside, w, depth, looped[1:], bound | {v}, ranges, accs, kept)
            self.scopes.pop()
            if any(isinstance(s, (tile.Store, tile.Keep, tile.Accumulate, tile.Loop)) for s in inside):
                body.append(self._loop(v, ranges, self.split is not None and v == self.split.var, inside))
            return
        for r, acc in accs.items():
            src = self._site(body, w, w.reduced(r), kept)
            where = self.loops.keep(self._where(w.node(r.site), r.site.at))
            body.append(tile.Accumulate(acc.id, src, where))
        for needed, slot, index in self._stores(w, depth):
            offset = self.loops.keep(self._store_offset(self.params[slot].value, index))
            if self._in_row(w, needed, offset):
                self._store(body, slot, offset, self._site(body, w, needed, kept), ranges)

    # statements

    def _site(self, body: list[tile.Stmt], w: Walker, needed: Needed, kept: Collection[Site] = ()) -> int:
        """The number of a site's result, emitting what is missing in the innermost scope."""
        site, form = needed.site, w.form(needed)
        if known := self._known(form):
            return known
        if form in self.staged or site in kept:
            dst = self._new(w, needed)
            place = self.staged.get(form) or _Place(self.kept[site], self._scratch_offset())
            body.append(tile.Recall(dst, place.scratch, place.offset, self._dtype(site), place.within))
            return dst
        args = tuple(self._site(body, w, o, kept) for o in w.operands(needed))
        dst = self._new(w, needed)
        body.append(self._statement(w, site, args, dst))
        if site in self.kept:
            body.append(tile.Keep(self.kept[site], self._scratch_offset(), dst))
        return dst

    def _known(self, form: int) -> int:
        """The number of a form's result in the scopes around; 0 for none."""
        return next((scope[form] for scope in reversed(self.scopes) if form in scope), 0)

    def _new(self, w: Walker, needed: Needed) -> int:
        self.count += 1
        self.scopes[-1][w.form(needed)] = self.count
        if self.lane in self._bound_deps(w, needed):
            self.vectors.add(self.count)
        return self.count

    def _statement(self, w: Walker, site: Site, args: tuple[int, ...], dst: int) -> tile.Stmt:
        if site.kind == "fill":
            return tile.Const(dst, site.fill, self.g.values[site.id].dtype)
        if site.kind == "load":
            return tile.Load(
                dst, self.slot[site.id], self.loops.keep(w.offset(site)), self.g.values[site.id].dtype
            )
        n = w.node(site)
        dtype = self.g.values[n.out].dtype
        if n.op == "const":
            value = _number(n.attr("value"))
            return tile.Const(
                dst, float(rounded(np.asarray(value), dtype)) if n.out in self.rounds else value, dtype
            )
        if n.op == "iota":
            expr = self.loops.keep(site.at[_int(n.attr("dim"))])
            return tile.Iota(dst, expr, _number(n.attr("start")), _number(n.attr("step")), dtype)
        if n.op == "random":
            expr = self.loops.keep(self._counter(n, site.at))
            draw, word = (_int(n.attr(k)) for k in ("draw", "word"))
            return tile.Draw(dst, args[0], expr, draw, word, self._note(site))
        if OPS[n.op].cls == "gather":
            source, dim = self.g.values[n.inputs[0]], _int(n.attr("dim"))
            return tile.Load(
                dst, self.slot[n.inputs[0]], self.loops.keep(w.offset(site)), dtype, args[0],
                _int(source.strides[dim]), _int(source.shape[dim]), self.g.values[n.inputs[1]].dtype,
            )  # fmt: skip
        kinds = tuple(self.g.values[v].dtype for v in n.inputs)
        return tile.Apply(dst, n.op, args, dtype, kinds, self._note(site), n.out in self.rounds)

    def _note(self, site: Site) -> str:
        user = self.g.user[self.g.node[site.id].user]
        return user.name if not user.source.line else f"{user.name}, {user.source}"

    def _dtype(self, site: Site) -> str:
        return self.g.values[self.g.node[site.id].out if site.kind == "node" else site.id].dtype

    def _accumulator(self, r: Needed) -> tile.Accumulator:
        n = self.g.node[r.site.id]
        self.accumulators += 1
        return tile.Accumulator(
            self.accumulators, n.op, self.g.values[n.inputs[0]].dtype, self.g.values[n.out].dtype
        )  # fmt: skip

    # memory

    def _scratch_offset(self) -> Affine:
        """A row's elements in loop order; under an outer vector loop each holds one element per lane.

        Whole vectors are kept, so one may reach behind the end of its loop: into the next part of the row, which is
        written after it, or into room that is left there.
        """
        offset = Affine()
        step = 1 if self.loops.vector in self.loops.inner else self.lanes
        for v in reversed(self.loops.inner):
            offset = offset + Affine.var(v, step)
            step *= self._room(v)
        return offset

    def _row_elements(self) -> int:
        row = prod(self._room(v) for v in self.loops.inner)
        return row * (1 if self.loops.vector in self.loops.inner else self.lanes)

    def _room(self, v: int) -> int:
        return self.loops.extent[v] + (self.lanes if v == self.loops.vector else 0)

    def _streams(self, slot: int, offset: Affine) -> bool:
        """Whether a non-temporal store is aligned: unit stride, everything else a multiple of a vector.

        What an input becomes may be written into the input itself, whose address is the user's.
        """
        if not self.stream or offset.coef(self.loops.vector) != 1 or self.params[slot].value in self.mutated:
            return False
        rest = [c for v, c in offset.terms if v != self.loops.vector]
        low = [r for cut in (self.space.cuts.get(v, ()) for v in self.space.cuts) for r in cut]
        return all(c % self.lanes == 0 for c in (offset.const, *rest, *low))


def joined(nests: Iterable[tile.Nest]) -> list[tile.Nest]:
    """Neighbours that run over the same tiles as one nest, so that what they share of memory is in the cache of one
    core; few tiles stay apart, for threads."""
    found: list[tile.Nest] = []
    for n in nests:
        last = found[-1] if found else None
        if last is not None and (last.axes, last.phase) == (n.axes, n.phase) and n.tiles >= FEW:
            found[-1] = replace(last, body=(*last.body, *n.body))
        else:
            found.append(n)
    return found


def _acts(body: Iterable[tile.Stmt]) -> bool:
    """Whether anything in a body leaves a trace."""
    return any(isinstance(s, (tile.Store, tile.Deposit)) for s in tile.statements(body))


def unrolled(body: Iterable[tile.Stmt], vectors: int) -> int:
    """How many vectors of a loop of so many run at once: more where the body is light, one where loops are inside."""
    light = list(tile.statements(body))
    if any(isinstance(x, (tile.Pass, tile.Loop)) for x in light) or vectors < 4:
        return 1
    return 4 if len(light) <= 4 else 2 if len(light) <= HEAVY else 1


def _int(a: object) -> int:
    assert isinstance(a, int)
    return a


def _number(a: object) -> float | int | bool:
    assert isinstance(a, (int, float))
    return a
