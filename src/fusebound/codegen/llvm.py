"""From a tile program to LLVM IR text for a CPU with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusebound.codegen import math, reduction, strided, turned
from fusebound.codegen.annotations import Annotations
from fusebound.codegen.emit import Fn, Module, Reg
from fusebound.codegen.llvm_types import elem, lanes, vec
from fusebound.codegen.order import used_lanes
from fusebound.codegen.tile import (
    Accumulate,
    Accumulator,
    Apply,
    Collect,
    Const,
    Deposit,
    Draw,
    Finish,
    Iota,
    Keep,
    Kernel,
    Load,
    Loop,
    Nest,
    Part,
    Pass,
    Recall,
    Stmt,
    Store,
    Turn,
    statements,
)  # fmt: skip
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.maps import Affine

FRESH = ".fresh"
"""Suffix of the form for outputs in untouched memory: its zeroed pages lie in cache, where ordinary stores hit."""
PAGE = 4096
"""Bytes ahead that large kernels prefetch: a page fault of the output stops the hardware's own prefetching."""


def emit(k: Kernel, *, large: bool, isa: frozenset[str] = frozenset(), annotate: bool = False) -> str:
    """LLVM assembly with `void @NAME(ptr args, i32 threads)` and `void @NAME.tiles(ptr args, i64 lo, i64 hi)`.

    `args` is an array of the parameters' addresses followed by the address of an i32 flag word. A program with
    non-temporal stores has a second form `NAME.fresh` with ordinary ones. `large` says that the data exceed the
    caches: loads are then prefetched. `isa` names the CPU features that the vector mathematics may use beyond plain
    LLVM. `annotate` adds line information that `annotations.restore` turns into comments of the assembly.
    """
    m = Module(isa)
    forms = [(k.name, k.streams)] + [(k.name + FRESH, False)] * k.streams
    for name, streams in forms:
        notes = Annotations(k) if annotate and name == k.name else None
        _Tiles(m, k, name, notes, streams=streams, ahead=_ahead(k) if large else 0).run()
        _entry(m, k, name)
    return m.render()


def _ahead(k: Kernel) -> int:
    """How many bytes ahead to prefetch: a page, or two where a row is swept several times."""
    swept = any(isinstance(s, Pass) for n in k.nests for s in statements(n.body))
    return 2 * PAGE if swept else PAGE


def _entry(m: Module, k: Kernel, name: str) -> None:
    """A parallel region for every phase: its tiles split evenly over the threads of torch's OpenMP pool."""
    regions = [_region(m, name, number, lo, hi) for number, (lo, hi) in enumerate(k.phases)]
    entry = m.function(name, [("args", "ptr"), ("threads", "i32")])
    args, count = entry.parameters
    if k.parts:
        args = _with_parts(entry, k, args)
    serial, parallel = entry.label("serial"), entry.label("parallel")
    entry.branch_if(entry.icmp("sle", count, entry.const(1, "i32")), serial, parallel)
    entry.place(serial)
    entry.call(f"{name}.tiles", "void", args, entry.const(0, "i64"), entry.const(k.tiles, "i64"))
    entry.ret()
    entry.place(parallel)
    for region, (lo, hi) in zip(regions, k.phases, strict=True):
        if lo and hi - lo == 1:
            entry.call(f"{name}.tiles", "void", args, entry.const(lo, "i64"), entry.const(hi, "i64"))
        else:
            entry.call("GOMP_parallel", "void", region, args, count, entry.const(0, "i32"))
    entry.ret()


def _region(m: Module, name: str, number: int, lo: int, hi: int) -> Reg:
    """What each thread runs of the tiles of a phase."""
    body = m.function(f"{name}.part{number}", [("args", "ptr")])
    thread = body.cast("sext", body.value_of("omp_get_thread_num", "i32"), "i64")
    threads = body.cast("sext", body.value_of("omp_get_num_threads", "i32"), "i64")
    total, first = body.const(hi - lo, "i64"), body.const(lo, "i64")
    after = body.op("add", thread, body.const(1, "i64"))
    ends = [body.op("udiv", body.op("mul", total, t), threads) for t in (thread, after)]
    body.call(f"{name}.tiles", "void", body.parameters[0], *(body.op("add", first, e) for e in ends))
    body.ret()
    return Reg(f"@{name}.part{number}", "ptr")


def _with_parts(entry: Fn, k: Kernel, args: Reg) -> Reg:
    """The arguments, with memory for partial results behind the flag word's address."""
    count = len(k.params) + 1
    copy = entry.alloca("ptr", count + len(k.parts))
    for i in range(count):
        entry.store(entry.load("ptr", entry.gep(args, "ptr", i), align=8), entry.gep(copy, "ptr", i), align=8)
    for i, p in enumerate(k.parts):
        place = entry.alloca("i64", p.chunks * p.rows * len(reduction.part_types(p.accumulator)))
        entry.store(place, entry.gep(copy, "ptr", count + i), align=8)
    return copy


@dataclass(slots=True)
class _Env:
    """What the statements being emitted may refer to; `vector` is the variable along which lanes lie."""

    vars: dict[int, Reg]
    regs: dict[int, Reg]
    vector: int
    copy: int = 0


class _Tiles:
    """Emits the function that runs a range of tiles."""

    def __init__(
        self, m: Module, k: Kernel, name: str, annotations: Annotations | None, *, streams: bool, ahead: int
    ) -> None:
        self.m, self.k, self.annotations = m, k, annotations
        self.streams, self.ahead = streams, ahead
        self.fn = m.function(f"{name}.tiles", [("args", "ptr"), ("lo", "i64"), ("hi", "i64")])
        self.blocks: dict[int, tuple[Reg, Reg]] = {}
        self.block_sizes: dict[int, int] = {}
        self.accs: dict[int, tuple[Accumulator, list[tuple[Reg, ...]]]] = {}
        vectorized = any(isinstance(s, Loop) and s.vector for n in k.nests for s in statements(n.body))
        self.width = k.lanes if vectorized else 1
        self.used = 0
        self.note = ""

    def run(self) -> None:
        fn = self.fn
        if self.annotations:
            fn.subprogram = self.annotations.subprogram
            fn.location = self.annotations.location("")
        args, lo, hi = fn.parameters
        self.pointers = [fn.load("ptr", fn.gep(args, "ptr", i), align=8) for i in range(len(self.k.params))]
        fn.flags = fn.load("ptr", fn.gep(args, "ptr", len(self.k.params)), align=8)
        shared = range(len(self.k.params) + 1, len(self.k.params) + 1 + len(self.k.parts))
        self.parts = [fn.load("ptr", fn.gep(args, "ptr", i), align=8) for i in shared]
        self.scratch = [fn.alloca(_scratch_type(s.dtype), s.elements) for s in self.k.scratch]
        start = 0
        for nest in self.k.nests:
            first = _clamp(fn, lo, start, "smax")
            last = _clamp(fn, hi, start + nest.tiles, "smin")
            with fn.loop(first, last) as tiles:
                self._nest(nest, fn.op("sub", tiles.index, fn.const(start, "i64")))
            start += nest.tiles
        if self.streams:
            fn.call("llvm.x86.sse.sfence", "void")
        fn.ret()
        if self.annotations:
            self.m.text(self.annotations.metadata())

    def _nest(self, nest: Nest, tile: Reg) -> None:
        """Decode the tile's coordinates, then run its body."""
        fn = self.fn
        env = _Env({}, {}, self.k.vector)
        self.blocks, self.block_sizes = {}, {a.var: a.block for a in nest.axes}
        for axis in reversed(nest.axes):
            count = fn.const(axis.count, "i64")
            at = tile if axis is nest.axes[0] else fn.op("urem", tile, count)
            tile = tile if axis is nest.axes[0] else fn.op("udiv", tile, count)
            lo = fn.op("add", fn.op("mul", at, fn.const(axis.block, "i64")), fn.const(axis.lo, "i64"))
            if axis.block == 1:
                env.vars[axis.var] = lo
            hi = _clamp(fn, fn.op("add", lo, fn.const(axis.block, "i64")), axis.hi, "smin")
            self.blocks[axis.var] = (lo, hi)
        self._body(nest.body, env)

    def _body(self, body: Sequence[Stmt], env: _Env) -> None:
        for s in body:
            self._statement(s, env)

    def _statement(self, s: Stmt, env: _Env) -> None:
        match s:
            case Loop():
                self._vector_loop(s, env) if s.vector else self._loop(s, env)
            case Pass():
                self._pass(s, env)
            case Accumulate():
                self._accumulate(s, env)
            case Finish():
                env.regs[s.dst] = self._finish(s)
            case Deposit():
                self._deposit(s, env)
            case Store():
                self._store(s, env)
            case Keep():
                self._keep(s, env)
            case Turn():
                self._turn(s, env)
            case _:
                env.regs[s.dst] = self._value(s, env)

    # loops

    def _bounds(self, s: Loop) -> tuple[Reg, Reg]:
        if s.blocked:
            return self.blocks[s.var]
        return self.fn.const(s.lo, "i64"), self.fn.const(s.hi, "i64")

    def _loop(self, s: Loop, env: _Env) -> None:
        lo, hi = self._bounds(s)
        with self.fn.loop(lo, hi) as it:
            self._body(s.body, _Env({**env.vars, s.var: it.index}, dict(env.regs), env.vector, env.copy))

    def _vector_loop(self, s: Loop, env: _Env) -> None:
        """Full vectors, several at once as the loop says; then one masked vector for what is left."""
        width, times = self.k.lanes, s.copies
        fn = self.fn
        lo, hi = self._bounds(s)
        at = lo
        for step in dict.fromkeys((width * times, width)):
            count = fn.op("udiv", fn.op("sub", hi, at), fn.const(step, "i64"))
            end = fn.op("add", at, fn.op("mul", count, fn.const(step, "i64")))
            with fn.loop(at, end, step) as it:
                for copy in range(step // width):
                    index = fn.op("add", it.index, fn.const(copy * width, "i64"))
                    self._body(s.body, _Env({**env.vars, s.var: index}, dict(env.regs), s.var, copy))
            at = end
        block = self.block_sizes[s.var] if s.blocked else width
        if (s.hi - s.lo) % width == 0 and block % width == 0:
            return
        with fn.when(fn.icmp("slt", at, hi)):
            left = fn.op("sub", hi, at)
            if (s.hi - s.lo) % width == 1:
                # Where LLVM 22 knows that one lane is active, it makes a masked store of 16-bit elements a
                # scalar one of 32 bits.
                left = fn.opaque(left)
            left = fn.splat(left, width)
            fn.active = fn.icmp("slt", fn.lane_ids("i64", width), left)
            self._body(s.body, _Env({**env.vars, s.var: at}, dict(env.regs), s.var))
            fn.active = None

    # reductions

    def _pass(self, s: Pass, env: _Env) -> None:
        copies = max((x.copies for x in statements(s.body) if isinstance(x, Loop) and x.vector), default=1)
        self.used = used_lanes(s.body, self.width)
        for a in s.accumulators:
            cells = [reduction.start(self.fn, a, self.width) for _ in range(copies)]
            self.accs[a.id] = (a, cells)
        self._body(s.body, env)

    def _accumulate(self, s: Accumulate, env: _Env) -> None:
        a, cells = self.accs[s.acc]
        src = self._wide(env.regs[s.src], self.width)
        where = self._index_vector(s.where, env, self.width) if a.kind in ("argmax", "argmin") else None
        reduction.step(self.fn, a, cells[env.copy], src, where)

    def _finish(self, s: Finish) -> Reg:
        a, cells = self.accs[s.acc]
        return reduction.finish(self.fn, a, cells, used=self.used, width=self.width)

    def _deposit(self, s: Deposit, env: _Env) -> None:
        fn, part = self.fn, self.k.parts[s.part]
        a, cells = self.accs[s.acc]
        total = reduction.combined(fn, a, cells, used=self.used, width=self.width)
        chunk = fn.op("udiv", self.blocks[part.var][0], fn.const(part.block, "i64"))
        at = fn.op("mul", chunk, fn.const(part.rows, "i64"))
        reduction.deposit(fn, total, self._places(part, fn.op("add", at, self._offset(s.offset, env))))

    def _places(self, part: Part, at: Reg) -> list[Reg]:
        """The addresses of a partial result: the value's and the position's."""
        fn, values = self.fn, part.chunks * part.rows
        types = reduction.part_types(part.accumulator)
        base = self.parts[part.id]
        bases = [base if i == 0 else fn.gep(base, "i64", values) for i in range(len(types))]
        return [fn.gep(b, reduction.stored(t), at) for b, t in zip(bases, types, strict=True)]

    # values

    def _value(self, s: Load | Apply | Const | Iota | Draw | Recall | Collect, env: _Env) -> Reg:
        fn = self.fn
        width = self.k.lanes if s.dst in self.k.vectors else 1
        match s:
            case Const():
                return fn.const(_fit(s.value, s.dtype), vec(math.compute_type(s.dtype), width))
            case Iota():
                index = self._index_vector(s.expr, env, width)
                scaled = math.convert(fn, index, "int64", s.dtype, width)
                step, start = (fn.const(x, scaled.type) for x in (s.step, s.start))
                mul, add = ("fmul", "fadd") if DTYPES[s.dtype].is_float else ("mul", "add")
                return fn.op(add, fn.op(mul, scaled, step), start)
            case Draw():
                self._annotate(s.note)
                index = self._index_vector(s.expr, env, width)
                return math.random_word(fn, self._wide(env.regs[s.seed], width), index, s.draw, s.word)
            case Load():
                return self._load(s, env, width)
            case Recall():
                return self._recall(s, env, width)
            case Collect():
                part = self.k.parts[s.part]
                places = self._places(part, self._offset(s.offset, env))
                return reduction.collect(fn, part.accumulator, places, part.rows, part.chunks, width)
            case Apply():
                return self._apply(s, env, width)

    def _apply(self, s: Apply, env: _Env, width: int) -> Reg:
        fn = self.fn
        self._annotate(s.note)
        args = [self._wide(env.regs[a], width) for a in s.args]
        if s.op == "cast":
            out = math.convert(fn, args[0], s.arg_dtypes[0], s.dtype, width)
        else:
            out = math.apply(fn, s.op, args, s.dtype, width, in_dtypes=s.arg_dtypes)
        return math.round_to(fn, out, s.dtype, width) if s.rounds and s.op != "cast" else out

    def _annotate(self, note: str) -> None:
        """Name the user's operator above the code that follows."""
        if note == self.note:
            return
        self.note = note
        self.fn.comment(note)
        if self.annotations:
            self.fn.location = self.annotations.location(note)

    def _wide(self, r: Reg, width: int) -> Reg:
        if lanes(r.type) == width:
            return r
        return self.fn.splat(self.fn.extract(r, 0), width)

    # memory

    def _offset(self, e: Affine, env: _Env) -> Reg:
        fn = self.fn
        total = fn.const(e.const, "i64")
        for v, c in e.terms:
            total = fn.op("add", total, fn.op("mul", env.vars[v], fn.const(c, "i64")))
        return total

    def _index_vector(self, e: Affine, env: _Env, width: int) -> Reg:
        """An affine expression as i64 lanes."""
        fn = self.fn
        base = fn.splat(self._offset(e, env), width)
        c = e.coef(env.vector)
        if width == 1 or c == 0:
            return base
        return fn.op("add", base, fn.op("mul", fn.lane_ids("i64", width), fn.const(c, vec("i64", width))))

    def _load(self, s: Load, env: _Env, width: int) -> Reg:
        fn = self.fn
        size = DTYPES[s.dtype].itemsize
        kind = math.storage_type(s.dtype)
        pointer = self.pointers[s.param]
        unit = s.offset.coef(env.vector)
        index = self._checked_index(s, env) if s.index >= 0 else None
        mask = fn.active if width > 1 else None
        if width == 1 or (unit == 1 and (index is None or lanes(index.type) == 1)):
            at = self._offset(s.offset, env)
            if index is not None:
                at = fn.op("add", at, fn.op("mul", fn.extract(index, 0), fn.const(s.stride, "i64")))
            place = fn.gep(pointer, kind, at)
            if self.ahead and width > 1:
                fn.prefetch(fn.gep(place, "i8", self.ahead))
            raw = fn.load(vec(kind, width), place, align=size, mask=mask)
        elif index is None and mask is None and strided.is_few(unit):
            place = fn.gep(pointer, kind, self._offset(s.offset, env))
            for k in range(unit if self.ahead else 0):
                fn.prefetch(fn.gep(place, "i8", self.ahead + k * size * width))
            raw = strided.load(fn, kind, place, unit, width, align=size)
        else:
            at = self._index_vector(s.offset, env, width)
            if index is not None:
                wide = self._wide(index, width)
                at = fn.op("add", at, fn.op("mul", wide, fn.const(s.stride, wide.type)))
            raw = fn.gather(kind, pointer, at, align=size, mask=mask)
        return math.load_convert(fn, raw, s.dtype, width)

    def _checked_index(self, s: Load, env: _Env) -> Reg:
        """The index as i64, flagged and replaced by 0 where it is out of range: memory is never touched there."""
        fn = self.fn
        r = env.regs[s.index]
        index = math.convert(fn, r, s.index_dtype, "int64", lanes(r.type))
        bad = fn.icmp("uge", index, fn.like(s.limit, index))
        fn.flag(bad if lanes(bad.type) > 1 else fn.extract(bad, 0), "index")
        return fn.select(bad, fn.like(0, index), index)

    def _store(self, s: Store, env: _Env) -> None:
        fn = self.fn
        param = self.k.params[s.param]
        unit = s.offset.coef(env.vector)
        width = self.width if unit and env.vector in env.vars else 1
        raw = math.store_convert(fn, self._wide(env.regs[s.src], width), param.dtype, width)
        size, kind = DTYPES[param.dtype].itemsize, elem(raw.type)
        mask = fn.active if width > 1 else None
        few = mask is None and strided.is_few(unit)
        if width > 1 and unit != 1 and not few:
            fn.scatter(
                raw, self.pointers[s.param], self._index_vector(s.offset, env, width), align=size, mask=mask
            )
            return
        pointer = fn.gep(self.pointers[s.param], kind, self._offset(s.offset, env))
        if width > 1 and few:
            strided.store(fn, raw, pointer, unit, align=size)
            return
        aligned = self.streams and s.streaming and mask is None and width > 1
        fn.store(raw, pointer, align=size * width if aligned else size, mask=mask, nontemporal=aligned)

    def _keep(self, s: Keep, env: _Env) -> None:
        """Scratch holds the computing type, so that keeping loses nothing.

        Whole vectors go in and out: what is behind a row's end is written before it is read, or not looked at. A masked
        store would have to reach the cache before it can be loaded.
        """
        place = self._scratch(s.scratch, self._counted(s.offset, s.within, env))
        self.fn.store(self._kept(self._wide(env.regs[s.src], self.width)), place, align=4)

    def _kept(self, r: Reg) -> Reg:
        return self.fn.cast("zext", r, vec("i8", lanes(r.type))) if elem(r.type) == "i1" else r

    def _recall(self, s: Recall, env: _Env, width: int) -> Reg:
        fn = self.fn
        kind = _scratch_type(s.dtype)
        raw = fn.load(
            vec(kind, width), self._scratch(s.scratch, self._counted(s.offset, s.within, env)), align=4
        )
        return fn.cast("trunc", raw, vec("i1", width)) if s.dtype == "bool" else raw

    def _counted(self, offset: Affine, within: Sequence[int], env: _Env) -> Reg:
        """An offset in scratch, in which some variables count from the start of their blocks."""
        fn, at = self.fn, self._offset(offset, env)
        for v in within:
            skipped = fn.op("mul", self.blocks[v][0], fn.const(offset.coef(v), "i64"))
            at = fn.op("sub", at, skipped)
        return at

    def _scratch(self, scratch: int, at: Reg) -> Reg:
        kind = _scratch_type(self.k.scratch[scratch].dtype)
        return self.fn.gep(self.scratch[scratch], kind, at)

    def _turn(self, s: Turn, env: _Env) -> None:
        """Tiles of a vector's lanes both ways; at the end of a loop one of the columns that are left."""
        fn, width = self.fn, self.k.lanes
        start, stop = self.blocks[s.across]
        lo, hi = self.blocks[s.along] if s.blocked else (fn.const(s.lo, "i64"), fn.const(s.hi, "i64"))
        left = (s.hi - s.lo) % width
        whole = fn.op("sub", hi, fn.op("urem", fn.op("sub", hi, lo), fn.const(width, "i64")))
        with fn.loop(start, stop, width) as rows:
            count = fn.splat(fn.op("sub", stop, rows.index), width)
            active = fn.icmp("slt", fn.lane_ids("i64", width), count)
            at = {**env.vars, s.across: rows.index}
            with fn.loop(lo, whole, width) as columns:
                self._turn_tile(s, _Env({**at, s.along: columns.index}, {}, s.across), width, active)
            if left:
                with fn.when(fn.icmp("slt", whole, hi)):
                    self._turn_tile(s, _Env({**at, s.along: whole}, {}, s.across), left, active)

    def _turn_tile(self, s: Turn, env: _Env, columns: int, active: Reg) -> None:
        fn, width, param = self.fn, self.k.lanes, self.k.params[s.param]
        size, kept = DTYPES[param.dtype].itemsize, vec(_scratch_type(param.dtype), width)
        kind = math.storage_type(param.dtype)
        first = self._offset(s.offset, env)
        apart = s.offset.coef(s.along)
        places = [
            fn.gep(self.pointers[s.param], kind, fn.op("add", first, fn.const(apart * j, "i64")))
            for j in range(columns)
        ]
        corner = self._counted(s.place, s.within, env)
        rows = [
            self._scratch(s.scratch, fn.op("add", corner, fn.const(s.pitch * i, "i64"))) for i in range(width)
        ]
        if not param.written:
            for p in places if self.ahead else ():
                fn.prefetch(fn.gep(p, kind, apart * width))
            loaded = (fn.load(vec(kind, width), p, align=size, mask=active) for p in places)
            tile = [self._kept(math.load_convert(fn, raw, param.dtype, width)) for raw in loaded]
            tile += [fn.undef(kept)] * (width - columns)
            for row, place in zip(turned.transposed(fn, tile), rows, strict=True):
                fn.store(row, place, align=4)
            return
        tile = turned.transposed(fn, [fn.load(kept, place, align=4) for place in rows])
        for column, place in zip(tile, places, strict=False):
            value = fn.cast("trunc", column, vec("i1", width)) if param.dtype == "bool" else column
            fn.store(math.store_convert(fn, value, param.dtype, width), place, align=size, mask=active)


def _scratch_type(dtype: str) -> str:
    """Scratch holds values as they are computed; masks take a byte."""
    kind = math.compute_type(dtype)
    return "i8" if kind == "i1" else kind


def _clamp(fn: Fn, r: Reg, limit: int, how: str) -> Reg:
    return fn.intrinsic(f"llvm.{how}", r, fn.const(limit, "i64"))


def _fit(value: float | int | bool, dtype: str) -> float | int | bool:
    kind = DTYPES[dtype].kind
    return float(value) if kind == "float" else bool(value) if kind == "bool" else int(value)
