"""The tile program: a kernel as loops over tiles, before any machine is chosen.

A kernel is a list of nests over disjoint parts of its space. The tiles of all nests form one parallel space whose
size depends on shapes alone. Inside a tile there are loops and straight-line statements on numbered results; one
loop is the vector loop. Offsets are affine in the loop variables and count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fusebound.ir.maps import Affine
from fusebound.words import count


@dataclass(frozen=True, slots=True)
class Param:
    """A pointer argument: the graph value whose elements it points at, and whether the kernel writes it.

    What an input becomes may be `partial`: only elements that change are stored, the memory holds the others before.
    """

    value: str
    dtype: str
    written: bool
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """dst = param[offset], plus `index · stride` along a gathered axis of `limit` elements (negative wraps not)."""

    dst: int
    param: int
    offset: Affine
    dtype: str
    index: int = -1
    stride: int = 0
    limit: int = 0
    index_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """dst = op(args): a pointwise primitive of `dtype`; `note` names the user's operator."""

    dst: int
    op: str
    args: tuple[int, ...]
    dtype: str
    arg_dtypes: tuple[str, ...]
    note: str = ""
    rounds: bool = False


@dataclass(frozen=True, slots=True)
class Const:
    """dst = value."""

    dst: int
    value: float | int | bool
    dtype: str


@dataclass(frozen=True, slots=True)
class Iota:
    """dst = start + step · expr, the coordinate of the point itself."""

    dst: int
    expr: Affine
    start: float | int
    step: float | int
    dtype: str


@dataclass(frozen=True, slots=True)
class Draw:
    """dst = word `word` of the random block of draw number `draw` at counter `expr`, under the key in `seed`."""

    dst: int
    seed: int
    expr: Affine
    draw: int
    word: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Keep:
    """scratch[offset] = src, to be recalled in a later pass over the same row.

    The variables `within`, if any, count from the start of their tile's block.
    """

    scratch: int
    offset: Affine
    src: int
    within: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recall:
    """dst = scratch[offset]; `within` as in `Keep`."""

    dst: int
    scratch: int
    offset: Affine
    dtype: str
    within: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """scratch[across · pitch + along] = param[offset] for the tile's block of `across`, along which memory lies side by
    side, and for `along` from lo to hi, or its block too; the other way where the parameter is written. Both count from
    the start of their blocks in scratch.
    """

    scratch: int
    param: int
    offset: Affine
    across: int
    along: int
    lo: int
    hi: int
    pitch: int
    blocked: bool

    @property
    def within(self) -> tuple[int, ...]:
        """The variables that count from the start of their blocks."""
        return (self.across, self.along) if self.blocked else (self.across,)

    @property
    def place(self) -> Affine:
        """Where in scratch an element lies."""
        start = Affine() if self.blocked else Affine(-self.lo)
        return start + Affine.var(self.across, self.pitch) + Affine.var(self.along)


@dataclass(frozen=True, slots=True)
class Accumulate:
    """acc ⊕= src; `where` is the flat position along the reduced axis, for argmax and argmin."""

    acc: int
    src: int
    where: Affine


@dataclass(frozen=True, slots=True)
class Finish:
    """dst = the accumulator's value, combined over lanes by a fixed tree."""

    dst: int
    acc: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Deposit:
    """parts[part][chunk, offset] = the accumulator over this tile's chunk of the row, combined over lanes."""

    part: int
    acc: int
    offset: Affine


@dataclass(frozen=True, slots=True)
class Collect:
    """dst = what an earlier phase left in parts[part][:, offset], chunk after chunk."""

    dst: int
    part: int
    offset: Affine
    note: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """param[offset] = src, converted to the parameter's type."""

    param: int
    offset: Affine
    src: int
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A running reduction of `kind` over elements of `dtype`, with a result of `result` type."""

    id: int
    kind: str
    dtype: str
    result: str


@dataclass(frozen=True, slots=True)
class Pass:
    """One sweep over the reduced axes: accumulators start, the body runs, results are finished after it."""

    accumulators: tuple[Accumulator, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """for var in range(lo, hi); a blocked loop covers only its tile's block; `vector` runs lanes at once.

    A vector loop takes `copies` vectors a step, each with accumulators of its own, then single vectors, then a
    masked one for what is left.
    """

    var: int
    lo: int
    hi: int
    vector: bool
    blocked: bool
    body: tuple[Stmt, ...]
    copies: int = 1


Stmt = (
    Load
    | Apply
    | Const
    | Iota
    | Draw
    | Keep
    | Recall
    | Turn
    | Accumulate
    | Finish
    | Deposit
    | Collect
    | Store
    | Pass
    | Loop
)


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate of the tile index: `count` tiles of `block` points of `var`, from lo to hi."""

    var: int
    lo: int
    hi: int
    block: int

    @property
    def count(self) -> int:
        return -(-(self.hi - self.lo) // self.block)


@dataclass(frozen=True, slots=True)
class Nest:
    """Tiles over `axes` (outermost first); an axis with block 1 is fixed in the tile, a larger one is looped.

    They start when all tiles of earlier phases are done."""

    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    phase: int = 0

    @property
    def tiles(self) -> int:
        n = 1
        for a in self.axes:
            n *= a.count
        return n


@dataclass(frozen=True, slots=True)
class Scratch:
    """Thread-private memory of `elements` × `dtype` that lives in the first-level cache."""

    id: int
    elements: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Part:
    """Memory that all threads share: a reduction over each chunk of rows whose loop over `var` is cut into blocks, for
    so many rows."""

    id: int
    accumulator: Accumulator
    var: int
    block: int
    chunks: int
    rows: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A whole tile program, its nests in the order of their phases. `lanes` is the vector length that it was scheduled
    for."""

    name: str
    params: tuple[Param, ...]
    scratch: tuple[Scratch, ...]
    nests: tuple[Nest, ...]
    lanes: int
    vector: int
    vectors: frozenset[int]
    parts: tuple[Part, ...] = ()

    @property
    def tiles(self) -> int:
        return sum(n.tiles for n in self.nests)

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """The range of tiles of each phase."""
        ends = list(accumulate(n.tiles for n in self.nests))
        last = {n.phase: end for n, end in zip(self.nests, ends, strict=True)}
        return tuple(pairwise((0, *last.values())))

    @property
    def streams(self) -> bool:
        """Whether any store is non-temporal."""
        return any(isinstance(s, Store) and s.streaming for n in self.nests for s in statements(n.body))


def statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, loops and passes included, in order."""
    for s in body:
        yield s
        if isinstance(s, (Loop, Pass)):
            yield from statements(s.body)


def show(k: Kernel) -> str:
    """The program as text for people: one line a statement, the user's operators as comments."""
    params = ", ".join(f"{'out' if p.written else 'in'} {p.value}: {p.dtype}" for p in k.params)
    lines = [f"kernel {k.name}({params})  # {count(k.tiles, 'tile')}, {count(k.lanes, 'lane')}"]
    lines += [f"  scratch s{s.id}: {s.dtype}[{s.elements}]" for s in k.scratch]
    lines += [
        f"  part p{p.id}: {p.accumulator.kind}[{p.chunks}, {p.rows}], every {p.block} of i{p.var}"
        for p in k.parts
    ]
    for nest in k.nests:
        axes = ", ".join(f"i{a.var} in {a.lo}:{a.hi} by {a.block}" for a in nest.axes) or "one tile"
        phase = f", phase {nest.phase}" if len(k.phases) > 1 else ""
        lines.append(f"  parallel {axes}  # {count(nest.tiles, 'tile')}{phase}")
        lines += _show(nest.body, k, "    ")
    return "\n".join(lines) + "\n"


def _show(body: Iterable[Stmt], k: Kernel, pad: str) -> list[str]:
    lines: list[str] = []
    for s in body:
        match s:
            case Loop():
                kind = "vector for" if s.vector else "for"
                times = f", {s.copies} vectors at once" if s.copies > 1 else ""
                lines.append(
                    f"{pad}{kind} i{s.var} in {'block of ' if s.blocked else ''}{s.lo}:{s.hi}{times}"
                )
                lines += _show(s.body, k, pad + "  ")
            case Pass():
                accs = ", ".join(f"a{a.id} = {a.kind}<{a.dtype}>" for a in s.accumulators)
                lines.append(f"{pad}pass {accs}".rstrip())
                lines += _show(s.body, k, pad + "  ")
            case _:
                lines.append(pad + _line(s, k))
    return lines


def _line(s: Stmt, k: Kernel) -> str:
    match s:
        case Load():
            at = f"{s.offset}" + (f" + t{s.index}*{s.stride}" if s.index >= 0 else "")
            return f"t{s.dst} = {k.params[s.param].value}[{at}]"
        case Apply():
            text = f"t{s.dst} = {s.op}({', '.join(f't{a}' for a in s.args)}) : {s.dtype}"
            return text + (f"  # {s.note}" if s.note else "")
        case Const():
            return f"t{s.dst} = {s.value!r} : {s.dtype}"
        case Iota():
            return f"t{s.dst} = {s.start} + {s.step}*({s.expr}) : {s.dtype}"
        case Draw():
            text = f"t{s.dst} = random(t{s.seed}, draw {s.draw}, {s.expr})[{s.word}] : int32"
            return text + (f"  # {s.note}" if s.note else "")
        case Keep():
            return f"s{s.scratch}[{s.offset}] = t{s.src}"
        case Recall():
            return f"t{s.dst} = s{s.scratch}[{s.offset}]"
        case Turn():
            p = k.params[s.param]
            sides = f"s{s.scratch}[{s.pitch}*i{s.across} + i{s.along}]", f"{p.value}[{s.offset}]"
            left, right = reversed(sides) if p.written else sides
            of = "block of " if s.blocked else ""
            return f"turn {left} = {right}  # block of i{s.across}, i{s.along} in {of}{s.lo}:{s.hi}"
        case Accumulate():
            return f"a{s.acc} += t{s.src}"
        case Finish():
            return f"t{s.dst} = finish a{s.acc}" + (f"  # {s.note}" if s.note else "")
        case Deposit():
            return f"p{s.part}[{s.offset}] = a{s.acc}"
        case Collect():
            return f"t{s.dst} = collect p{s.part}[{s.offset}]" + (f"  # {s.note}" if s.note else "")
        case Store():
            return f"{k.params[s.param].value}[{s.offset}] = t{s.src}" + (
                "  # streaming" if s.streaming else ""
            )
        case Pass() | Loop():
            raise AssertionError("compound statements are shown by _show")
