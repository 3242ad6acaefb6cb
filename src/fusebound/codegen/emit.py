"""A small text emitter of LLVM IR: explicit vectors, structured loops, automatic declarations.

`Module` collects functions; `Fn` builds one function body a line at a time and hands out typed `Reg`s.
Nothing here knows of tiles or of mathematics. Types are LLVM text ("float", "<8 x i1>"); pointers are opaque.
Every misuse (operands of different types, a value stored as another type) raises `BuildError` while emitting,
so that LLVM's parser sees well-typed text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from fusebound.codegen.llvm_types import elem, lanes, literal, mangle, mask_type, vec
from fusebound.errors import BuildError
from fusebound.ir.ops import FAULTS, Fault


@dataclass(frozen=True, slots=True)
class Reg:
    """A value of the function: `name` is operand text (a register or a constant), `type` its LLVM type. `exact` is what
    a constant was before it was rounded to the type."""

    name: str
    type: str
    exact: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


class Fn:
    """Builds the body of one function.

    `parameters` are `(name, type)` pairs, or `(name, type, attributes)` ("noalias readonly"). `block` is
    the label of the block that is being filled. `location` and `subprogram` are debug information (empty, or
    ", !dbg !7" and " !dbg !3") that instructions and the function carry. `active` is the mask of the lanes
    that hold real elements (None: all), and `flags` points at an i32 that `flag` sets; the loop emitter
    maintains both. `isa` names the CPU features that the code may use ("avx512f", …; empty: plain LLVM only).
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Sequence[str]],
        result: str = "void",
        isa: frozenset[str] = frozenset(),
    ) -> None:
        spec = [(p[0], p[1], p[2] if len(p) > 2 else "") for p in parameters]
        self.name = name
        self.result = result
        self.isa = isa
        self.parameters = tuple(Reg(f"%{n}", t) for n, t, _ in spec)
        self.declarations: set[str] = set()
        self.attributes = "nounwind"
        self.linkage = ""
        self.block = "entry"
        self.location = ""
        self.subprogram = ""
        self.active: Reg | None = None
        self.flags: Reg | None = None
        self._signature = ", ".join(f"{t} {a} %{n}" if a else f"{t} %{n}" for n, t, a in spec)
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._count = 0

    # -- text ------------------------------------------------------------------------------------------------

    def render(self) -> str:
        """The function's definition, without the declarations that it needs."""
        linkage = f"{self.linkage} " if self.linkage else ""
        head = f"define {linkage}{self.result} @{self.name}({self._signature}) {self.attributes}{self.subprogram} {{"
        return "\n".join([head, "entry:", *self._allocas, *self._lines, "}"])

    def comment(self, text: str) -> None:
        """A comment line in the generated text (the user's operator, say)."""
        self._lines.extend(f"  ; {line}" for line in text.splitlines())

    def raw(self, text: str) -> None:
        """One instruction without a result, verbatim."""
        self._lines.append(f"  {text}{self.location}")

    def emit(self, text: str, type: str) -> Reg:
        """One instruction with a result of `type`."""
        reg = self._fresh(type)
        self._lines.append(f"  {reg.name} = {text}{self.location}")
        return reg

    def _fresh(self, type: str) -> Reg:
        self._count += 1
        return Reg(f"%v{self._count}", type)

    # -- constants -------------------------------------------------------------------------------------------

    def const(self, value: float | int | bool, type: str) -> Reg:
        """A constant, exact (floats as bits of the value rounded to the type); vectors are splats."""
        return Reg(literal(value, type), type, float(value) if elem(type)[0] != "i" else None)

    def like(self, value: float | int | bool, reg: Reg) -> Reg:
        """A constant of `reg`'s type."""
        return self.const(value, reg.type)

    def undef(self, type: str) -> Reg:
        """A value that is never looked at."""
        return Reg("poison", type)

    def lane_ids(self, element: str, count: int) -> Reg:
        """The constant vector 0, 1, …, count - 1 of an integer `element` type."""
        return Reg("<" + ", ".join(f"{element} {i}" for i in range(count)) + ">", vec(element, count))

    # -- arithmetic ------------------------------------------------------------------------------------------

    def op(self, opcode: str, *args: Reg) -> Reg:
        """A unary or binary instruction whose result has the operands' type (`fadd`, `shl`, `fneg`, …)."""
        self._same(opcode, *args)
        return self.emit(f"{opcode} {args[0].type} {', '.join(a.name for a in args)}", args[0].type)

    def fma(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """a * b + c with one rounding."""
        return self.intrinsic("llvm.fma", a, b, c)

    def icmp(self, predicate: str, a: Reg, b: Reg) -> Reg:
        """An integer comparison; the result is i1, or a vector of it."""
        self._same(f"icmp {predicate}", a, b)
        return self.emit(f"icmp {predicate} {a}, {b.name}", mask_type(a.type))

    def fcmp(self, predicate: str, a: Reg, b: Reg) -> Reg:
        """A floating-point comparison (`olt`, `uno`, …); the result is i1, or a vector of it."""
        self._same(f"fcmp {predicate}", a, b)
        return self.emit(f"fcmp {predicate} {a}, {b.name}", mask_type(a.type))

    def select(self, condition: Reg, a: Reg, b: Reg) -> Reg:
        """`a` where `condition` (i1, or a vector of it) holds, else `b`."""
        self._same("select", a, b)
        return self.emit(f"select {condition}, {a}, {b}", a.type)

    def cast(self, opcode: str, a: Reg, type: str) -> Reg:
        """A conversion instruction (`fpext`, `sitofp`, `bitcast`, `zext`, …) to `type`; none if it has it."""
        return a if a.type == type else self.emit(f"{opcode} {a} to {type}", type)

    def freeze(self, a: Reg) -> Reg:
        """`a`, with poison replaced by an arbitrary but fixed value."""
        return self.emit(f"freeze {a}", a.type)

    def opaque(self, a: Reg) -> Reg:
        """`a` as a value of which the optimizer knows nothing."""
        return self.emit(f'call {a.type} asm "", "=r,0"({a})', a.type)

    # -- vectors ---------------------------------------------------------------------------------------------

    def splat(self, scalar: Reg, count: int) -> Reg:
        """The vector that holds `scalar` in each of its `count` lanes; a constant stays one."""
        if not scalar.name.startswith(("%", "poison")):
            return Reg(f"splat ({scalar})", vec(scalar.type, count), scalar.exact)
        first = self.insert(self.undef(vec(scalar.type, count)), scalar, 0)
        return self.shuffle(first, first, [0] * count)

    def shuffle(self, a: Reg, b: Reg, picks: Sequence[int]) -> Reg:
        """The lanes `picks` of `a` followed by `b`; -1 means that the lane is not looked at."""
        self._same("shufflevector", a, b)
        index = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in picks)
        text = f"shufflevector {a}, {b}, <{len(picks)} x i32> <{index}>"
        return self.emit(text, vec(elem(a.type), len(picks)))

    def extract(self, vector: Reg, lane: int | Reg) -> Reg:
        """One lane as a scalar; of a constant, a constant."""
        if vector.name.startswith("splat ("):
            return Reg(vector.name[len("splat (") : -1].split(" ", 1)[1], elem(vector.type), vector.exact)
        at = f"i32 {lane}" if isinstance(lane, int) else str(lane)
        return self.emit(f"extractelement {vector}, {at}", elem(vector.type))

    def insert(self, vector: Reg, scalar: Reg, lane: int | Reg) -> Reg:
        """`vector` with one lane replaced."""
        at = f"i32 {lane}" if isinstance(lane, int) else str(lane)
        return self.emit(f"insertelement {vector}, {scalar}, {at}", vector.type)

    def halves(self, vector: Reg) -> tuple[Reg, Reg]:
        """The lower and the upper half of the lanes."""
        n = lanes(vector.type)
        low = self.shuffle(vector, vector, list(range(n // 2)))
        return low, self.shuffle(vector, vector, list(range(n // 2, n)))

    def join(self, low: Reg, high: Reg) -> Reg:
        """The lanes of `low` followed by those of `high`."""
        return self.shuffle(low, high, list(range(2 * lanes(low.type))))

    def any(self, mask: Reg) -> Reg:
        """Whether any lane of a mask holds (i1)."""
        if mask.type == "i1":
            return mask
        bits = self.emit(f"bitcast {mask} to i{lanes(mask.type)}", f"i{lanes(mask.type)}")
        return self.icmp("ne", bits, self.like(0, bits))

    # -- memory ----------------------------------------------------------------------------------------------

    def alloca(self, type: str, count: int = 1, align: int = 64) -> Reg:
        """`count` elements of `type` on the stack, allocated on entry."""
        reg = self._fresh("ptr")
        self._allocas.append(f"  {reg.name} = alloca {type}, i64 {count}, align {align}")
        return reg

    def gep(self, pointer: Reg, element: str, index: Reg | int) -> Reg:
        """The address of element `index` of an array of `element`."""
        at = f"i64 {index}" if isinstance(index, int) else str(index)
        return self.emit(f"getelementptr {element}, {pointer}, {at}", "ptr")

    def load(self, type: str, pointer: Reg, *, align: int, mask: Reg | None = None) -> Reg:
        """A value of `type` at `pointer`; lanes outside `mask` are not read and hold zero."""
        if mask is None:
            return self.emit(f"load {type}, {pointer}, align {align}", type)
        zero = self.const(0, type)
        return self._call(f"llvm.masked.load.{mangle(type)}.p0", type, [pointer, _i32(align), mask, zero])

    def store(
        self, value: Reg, pointer: Reg, *, align: int, mask: Reg | None = None, nontemporal: bool = False
    ) -> None:
        """Store `value`; lanes outside `mask` are not written. Non-temporal stores need full alignment."""
        if mask is None:
            hint = ", !nontemporal !0" if nontemporal else ""
            self.raw(f"store {value}, {pointer}, align {align}{hint}")
            return
        self.call(f"llvm.masked.store.{mangle(value.type)}.p0", "void", value, pointer, _i32(align), mask)

    def prefetch(self, pointer: Reg) -> None:
        """Ask for the cache line at `pointer`, which need not be valid memory."""
        hints = (Reg("0", "i32"), Reg("3", "i32"), Reg("1", "i32"))
        self.call("llvm.prefetch.p0", "void", pointer, *hints)

    def gather(self, element: str, base: Reg, index: Reg, *, align: int, mask: Reg | None = None) -> Reg:
        """The elements `base[index]` for a vector of i64 indices; lanes outside `mask` are zero."""
        n = lanes(index.type)
        type = vec(element, n)
        where = self.emit(f"getelementptr {element}, {base}, {index}", vec("ptr", n))
        every = mask or self.const(True, vec("i1", n))
        name = f"llvm.masked.gather.{mangle(type)}.{mangle(where.type)}"
        return self._call(name, type, [where, _i32(align), every, self.const(0, type)])

    def scatter(self, value: Reg, base: Reg, index: Reg, *, align: int, mask: Reg | None = None) -> None:
        """Store the lanes of `value` at `base[index]` for a vector of i64 indices."""
        n = lanes(index.type)
        where = self.emit(f"getelementptr {elem(value.type)}, {base}, {index}", vec("ptr", n))
        every = mask or self.const(True, vec("i1", n))
        name = f"llvm.masked.scatter.{mangle(value.type)}.{mangle(where.type)}"
        self.call(name, "void", value, where, _i32(align), every)

    # -- calls -----------------------------------------------------------------------------------------------

    def intrinsic(self, name: str, *args: Reg) -> Reg:
        """An intrinsic that is overloaded on, and returns, its first operand's type (`llvm.fma`)."""
        self._same(name, *args)
        return self._call(f"{name}.{mangle(args[0].type)}", args[0].type, list(args))

    def call(self, name: str, result: str, *args: Reg) -> Reg | None:
        """A call of an external function or intrinsic, declared on the way; None if it returns nothing."""
        if result == "void":
            self._declare(name, result, args)
            self.raw(f"call void @{name}({', '.join(map(str, args))})")
            return None
        return self._call(name, result, list(args))

    def value_of(self, name: str, result: str, *args: Reg) -> Reg:
        """Like `call`, of a function that does return something."""
        return self._call(name, result, list(args))

    def _call(self, name: str, result: str, args: Sequence[Reg]) -> Reg:
        self._declare(name, result, args)
        return self.emit(f"call {result} @{name}({', '.join(map(str, args))})", result)

    def _declare(self, name: str, result: str, args: Sequence[Reg]) -> None:
        self.declarations.add(f"declare {result} @{name}({', '.join(a.type for a in args)})")

    # -- control ---------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """A label that is unique in this function."""
        self._count += 1
        return f"{name}{self._count}"

    def place(self, label: str) -> None:
        """Start the block `label`."""
        self._lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        """Jump to `label`."""
        self.raw(f"br label %{label}")

    def branch_if(self, condition: Reg, then: str, otherwise: str) -> None:
        """Jump to `then` where the i1 `condition` holds, else to `otherwise`."""
        self.raw(f"br {condition}, label %{then}, label %{otherwise}")

    def phi(self, type: str, arms: Sequence[tuple[Reg, str]]) -> Reg:
        """The value that belongs to the block from which control came."""
        return self.emit(f"phi {type} {', '.join(f'[{r.name}, %{b}]' for r, b in arms)}", type)

    def ret(self, value: Reg | None = None) -> None:
        """Return from the function."""
        self.raw("ret void" if value is None else f"ret {value}")

    def loop(self, lo: Reg | int, hi: Reg | int, step: Reg | int = 1, carry: Sequence[Reg] = ()) -> Loop:
        """`for index in range(lo, hi, step)` with a positive step and i64 bounds; see `Loop`."""
        return Loop(self, _i64(lo), _i64(hi), _i64(step), tuple(carry))

    def when(self, condition: Reg, keep: Sequence[Reg] = ()) -> When:
        """A block that runs where the i1 `condition` holds; see `When`."""
        return When(self, condition, tuple(keep))

    def flag(self, condition: Reg, fault: Fault) -> None:
        """Note `fault` in the kernel's flag word if `condition` holds in any active lane; changes no value."""
        if self.flags is None:
            raise BuildError(f"the kernel {self.name} has no flag word", hint="set Fn.flags")
        if self.active is not None and self.active.type == condition.type:
            condition = self.op("and", condition, self.active)
        with self.when(self.any(condition)):
            self.raw(f"store atomic i32 {1 + FAULTS.index(fault)}, {self.flags} monotonic, align 4")

    # -- checks ----------------------------------------------------------------------------------------------

    def _same(self, what: str, *args: Reg) -> None:
        if any(a.type != args[0].type for a in args):
            raise BuildError(f"{what} of different types: {', '.join(a.type for a in args)}", where=self.name)


class Loop:
    """A counted loop, used as `with fn.loop(0, n, 16, carry=(acc,)) as it:`.

    Inside, `it.index` is the i64 induction variable and `it.values` are the carried values; `it.update(...)`
    hands the next values on (once, with as many). After the block `it.results` are the final values.
    """

    def __init__(self, fn: Fn, lo: Reg, hi: Reg, step: Reg, carry: tuple[Reg, ...]) -> None:
        self._fn, self._lo, self._hi, self._step, self._carry = fn, lo, hi, step, carry
        self._next = carry
        self.index = Reg("", "i64")
        self.values: tuple[Reg, ...] = ()
        self.results: tuple[Reg, ...] = ()

    def __enter__(self) -> Loop:
        fn = self._fn
        self._body, self._exit, self._before = fn.label("loop"), fn.label("done"), fn.block
        fn.branch_if(fn.icmp("slt", self._lo, self._hi), self._body, self._exit)
        fn.place(self._body)
        self._phis = len(fn._lines)  # the phis need the latch's values: filled in on exit
        self.index = fn._fresh("i64")
        self.values = tuple(fn._fresh(c.type) for c in self._carry)
        return self

    def update(self, *values: Reg) -> None:
        """The carried values of the next iteration."""
        if [v.type for v in values] != [c.type for c in self._carry]:
            raise BuildError("a loop carries values of other types than it was given", where=self._fn.name)
        self._next = values

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        fn, latch = self._fn, self._fn.block
        if self._carry and self._next is self._carry:
            raise BuildError("a loop with carried values needs `update`", where=fn.name)
        after = fn.emit(f"add nsw {self.index}, {self._step.name}", "i64")
        fn.branch_if(fn.icmp("slt", after, self._hi), self._body, self._exit)
        cycle = zip((self.index, *self.values), (self._lo, *self._carry), (after, *self._next), strict=True)
        fn._lines[self._phis : self._phis] = [
            f"  {reg.name} = phi {reg.type} [{first.name}, %{self._before}], [{later.name}, %{latch}]"
            for reg, first, later in cycle
        ]
        fn.place(self._exit)
        pairs = zip(self._carry, self._next, strict=True)
        self.results = tuple(fn.phi(a.type, [(a, self._before), (b, latch)]) for a, b in pairs)


class When:
    """A conditional block, used as `with fn.when(cond, keep=(x,)) as arm:`.

    `arm.update(...)` replaces the kept values where the condition holds; `arm.results` are theirs afterwards.
    """

    def __init__(self, fn: Fn, condition: Reg, keep: tuple[Reg, ...]) -> None:
        self._fn, self._condition, self._keep = fn, condition, keep
        self._then = keep
        self.results: tuple[Reg, ...] = keep

    def __enter__(self) -> When:
        fn = self._fn
        body, self._exit, self._before = fn.label("then"), fn.label("end"), fn.block
        fn.branch_if(self._condition, body, self._exit)
        fn.place(body)
        return self

    def update(self, *values: Reg) -> None:
        """The kept values' replacements."""
        if [v.type for v in values] != [k.type for k in self._keep]:
            raise BuildError("a conditional block yields values of other types", where=self._fn.name)
        self._then = values

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        fn, last = self._fn, self._fn.block
        fn.branch(self._exit)
        fn.place(self._exit)
        pairs = zip(self._keep, self._then, strict=True)
        self.results = tuple(fn.phi(a.type, [(a, self._before), (b, last)]) for a, b in pairs)


class Module:
    """Functions, their declarations and the metadata that they name; `isa` is handed to each function."""

    def __init__(self, isa: frozenset[str] = frozenset()) -> None:
        self.isa = isa
        self.functions: list[Fn] = []
        self.texts: list[str] = []

    def function(self, name: str, parameters: Iterable[Sequence[str]], result: str = "void") -> Fn:
        """A new function of this module."""
        fn = Fn(name, parameters, result, self.isa)
        self.functions.append(fn)
        return fn

    def text(self, definition: str) -> None:
        """Further top-level text (a global, a hand-written helper)."""
        self.texts.append(definition)

    def render(self) -> str:
        """The module as LLVM assembly."""
        defined = {f.name for f in self.functions}
        declared = sorted({d for f in self.functions for d in f.declarations})
        needed = [d for d in declared if d.split("@", 1)[1].split("(", 1)[0] not in defined]
        bodies = [f.render() for f in self.functions]
        return "\n\n".join(["\n".join(needed), *self.texts, *bodies, "!0 = !{i32 1}"]) + "\n"


def _i32(value: int) -> Reg:
    return Reg(str(value), "i32")


def _i64(value: Reg | int) -> Reg:
    return Reg(str(value), "i64") if isinstance(value, int) else value
