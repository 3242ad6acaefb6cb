"""Small graphs for the tests of gates and plans, one call an operator."""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.ir.builder import Builder
from fusebound.ir.graph import Attr, Graph, Mutation, Ref, Source, Value
from fusebound.ir.spec import verify


class Sketch:
    """A builder whose operators carry a source line: the line of the operator is its number."""

    def __init__(self, name: str = "sketch") -> None:
        self.b = Builder(name)
        self._line = 0

    def input(self, id: str, *shape: int, dtype: str = "float32") -> str:
        return self.b.input(id, shape, dtype)

    def op(self, name: str, primitive: str, *inputs: str, kind: str = "pointwise", **attrs: Attr) -> str:
        """One user operator of one primitive."""
        self.b.begin(name)
        out = self.b.emit(primitive, *inputs, **attrs)  # type: ignore[arg-type]
        self._end(f"aten.{name}.default", inputs, out, kind)
        return out

    def view(self, name: str, primitive: str, x: str, strides: Sequence[int], **attrs: Attr) -> str:
        """A move whose result has the strides of a view."""
        self.b.begin(name)
        out = self.b.emit(primitive, x, **attrs)  # type: ignore[arg-type]
        self.b.restride(out, strides)
        self._end(f"aten.{name}.default", (x,), out, "move")
        return out

    def softmax(self, x: str, name: str = "softmax") -> str:
        """Over the last axis, as one composite."""
        shape = self.b.values[x].shape
        axis = len(shape) - 1
        self.b.begin(name)
        kept = (*shape[:-1], 1)
        top = self.b.emit("reshape", self.b.emit("amax", x, axes=(axis,)), shape=kept)
        e = self.b.emit("exp", self.b.emit("sub", x, top))
        total = self.b.emit("reshape", self.b.emit("sum", e, axes=(axis,)), shape=kept)
        out = self.b.emit("div", e, total)
        self._end("aten.softmax.int", (x,), out, "reduce")
        return out

    def opaque(self, name: str, *inputs: str, why: str = "F601", kind: str = "opaque") -> str:
        """An operator that the framework runs; its result is like its first operand."""
        self.b.begin(name)
        like = self.b.values[inputs[0]]
        (out,) = self.b.opaque(
            f"aten.{name}.default", inputs, [Value("", like.shape, like.dtype, like.strides)]
        )
        self._end(f"aten.{name}.default", inputs, out, kind, why)
        return out

    def _end(self, target: str, inputs: Sequence[str], out: str, kind: str, why: str = "") -> None:
        self._line += 1
        source = Source("model.py", self._line, "")
        args = tuple(Ref(i) for i in inputs)
        self.b.end(target, args, (), (out,), kind, source=source, why=why)

    def done(self, *outputs: str, mutations: Sequence[Mutation] = ()) -> Graph:
        g = self.b.finish(outputs, mutations)
        verify(g)
        return g


def nodes(g: Graph, *users: str) -> frozenset[str]:
    """The primitives of some user operators."""
    return frozenset(n.id for u in users for n in g.members[u])


def chain(dtype: str = "float32", rows: int = 4096, columns: int = 2048) -> Graph:
    """add → mul → tanh."""
    s = Sketch("chain")
    x, r = s.input("x", rows, columns, dtype=dtype), s.input("r", rows, columns, dtype=dtype)
    return s.done(s.op("tanh", "tanh", s.op("mul", "mul", s.op("add", "add", x, r), x)))


def triangle() -> Graph:
    """exp → sort → add and exp → add: exp and add would enclose sort."""
    s = Sketch("triangle")
    x = s.input("x", 4096, 1024)
    e = s.op("exp", "exp", x)
    return s.done(s.op("add", "add", e, s.opaque("sort", e)))


def siblings(rows: int, columns: int = 1 << 18) -> Graph:
    """Two poolings of one input, mean of mish and mean of gelu over each row: independent, and hard work."""
    s = Sketch("siblings")
    x = s.input("x", rows, columns)
    return s.done(_pooled(s, x, "mish"), _pooled(s, x, "gelu"))


def _pooled(s: Sketch, x: str, name: str) -> str:
    b = s.b
    b.begin(name)
    if name == "mish":
        out = b.emit("mul", x, b.emit("tanh", b.emit("log1p", b.emit("exp", x))))
    else:
        half = b.emit("mul", x, b.const(0.5, "float32"))
        scaled = b.emit("mul", x, b.const(0.7071067811865476, "float32"))
        out = b.emit("mul", half, b.emit("add", b.emit("erf", scaled), b.const(1.0, "float32")))
    s._end(f"aten.{name}.default", (x,), out, "pointwise")
    return s.op(f"{name}_sum", "sum", out, kind="reduce", axes=(1,))


def wide_sum(terms: int, rows: int = 256, columns: int = 1024) -> Graph:
    """All powers of x kept until a last operator adds them, smallest last: they are all live at once."""
    s = Sketch("wide_sum")
    x = s.input("x", rows, columns)
    s.b.begin("powers")
    powers = [x]
    for _ in range(terms):
        powers.append(s.b.emit("mul", powers[-1], x))
    total = powers[-1]
    for p in powers[-2:0:-1]:
        total = s.b.emit("add", total, p)
    s._end("aten.powers.default", (x,), total, "pointwise")
    return s.done(s.op("relu", "abs", total))
