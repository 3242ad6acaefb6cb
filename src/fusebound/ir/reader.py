"""Reads the text form of graphs (see `ir.text`); every fault is a FormatError with its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fusebound.errors import FormatError
from fusebound.ir.builder import contiguous
from fusebound.ir.dtypes import BY_SHORT
from fusebound.ir.graph import (
    Attr,
    Dim,
    Graph,
    Input,
    Mutation,
    Node,
    Ref,
    Source,
    Sym,
    Token,
    UserOp,
    Value,
)
from fusebound.ir.lex import Lexeme, Text

T = TypeVar("T")

MAX_DEPTH = 32
"""Of nested lists: a damaged file must not exhaust Python's stack."""

_WORDS: dict[str, Attr] = {"None": None, "True": True, "False": False}


def parse_graph(text: str) -> Graph:
    """Read one graph. Raises FormatError (with line, column and the text around it) for anything else.

    The result is well-formed text, not yet a valid graph: `ir.spec.verify` checks its meaning.
    """
    return _Parser(Text(text)).graph()


@dataclass
class _Parser:
    text: Text
    name: str = ""
    inputs: list[Input] = field(default_factory=list[Input])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    nodes: list[Node] = field(default_factory=list[Node])
    user_ops: list[UserOp] = field(default_factory=list[UserOp])
    outputs: tuple[str, ...] | None = None
    mutations: list[Mutation] = field(default_factory=list[Mutation])

    def graph(self) -> Graph:
        started = False
        for row in range(len(self.text.lines)):
            line = _Line(self.text, row)
            if line.peek().kind == "end":
                continue
            if not started:
                self._title(line)
                started = True
            elif self.outputs is not None:
                self._mutation(line)
            else:
                self._statement(line)
            line.end()
        last = len(self.text.lines) - 1
        if not started:
            raise self.text.error(last, 0, 'no graph here: the first line must be: fusebound.graph 1 "name"')
        if self.outputs is None:
            raise self.text.error(last, 0, "the text ends without a return statement")
        return Graph(
            self.name, tuple(self.inputs), self.values, tuple(self.nodes), tuple(self.user_ops),
            self.outputs, tuple(self.mutations),
        )  # fmt: skip

    def _title(self, line: _Line) -> None:
        line.word("fusebound.graph")
        version = line.take("int")
        if version.text != "1":
            raise line.error(version, f"format version {version.text}; this fusebound reads version 1")
        self.name = line.take("string").text

    def _statement(self, line: _Line) -> None:
        first, second = line.peek(), line.peek(1)
        if second.text == ":" and second.kind == "mark":
            self._user_op(line)
        elif first.kind == "name" and first.text == "return":
            line.next()
            self.outputs = line.values_until_end()
        elif first.kind == "name" and first.text == "value":
            line.next()
            at = line.take("value")
            line.mark(":")
            self._define(line, at, line.type(at.text))
        elif line.is_input():
            self._input(line)
        else:
            self._node(line)

    def _define(self, line: _Line, at: Lexeme, v: Value) -> None:
        if v.id in self.values:
            raise line.error(at, f"%{v.id} is defined twice")
        self.values[v.id] = v

    def _input(self, line: _Line) -> None:
        at = line.take("value")
        line.mark("=")
        line.word("input")
        kind, target = line.name(), line.take("string").text
        line.mark(":")
        self._define(line, at, line.type(at.text))
        self.inputs.append(Input(at.text, kind, target))

    def _user_op(self, line: _Line) -> None:
        name = line.name()
        line.mark(":")
        target = line.name()
        args, kwargs = line.arguments()
        line.mark("->")
        outputs = line.results()
        kind = line.name()
        source, words = Source(), {"scope": "", "written": "", "why": ""}
        if line.accept("at"):
            file = line.take("string").text
            line.mark(":")
            number = int(line.take("int").text)
            code = line.next().text if line.peek().kind == "code" else ""
            source = Source(file, number, code)
        for key in words:
            if line.accept(key):
                words[key] = line.take("string").text
        self.user_ops.append(
            UserOp(
                name,
                target,
                args,
                kwargs,
                tuple(v.text for v in outputs),
                kind,
                words["scope"],
                source,
                words["written"],
                words["why"],
            )
        )

    def _node(self, line: _Line) -> None:
        results = line.results()
        line.mark("=")
        op = line.name()
        line.mark("(")
        inputs = line.separated(")", lambda: line.take("value").text)
        attrs = line.attributes() if line.accept("{") else ()
        for k, at in enumerate(results):
            line.mark("," if k else ":")
            self._define(line, at, line.type(at.text))
        outputs = tuple(v.text for v in results)
        id = line.name() if line.accept("as") else default_id(outputs)
        user = line.name() if line.accept("in") else self.user_ops[-1].name if self.user_ops else ""
        self.nodes.append(Node(id, op, inputs, outputs, user, attrs))

    def _mutation(self, line: _Line) -> None:
        line.word("mutate")
        target = line.take("value").text
        line.mark("<-")
        self.mutations.append(Mutation(target, line.take("value").text))


def default_id(outputs: Sequence[str]) -> str:
    """The node id that needs no mention: its only result's, or the stem of `stem#0, stem#1`."""
    if len(outputs) == 1:
        return outputs[0]
    stem = outputs[0].removesuffix("#0") if outputs else ""
    return stem if all(v == f"{stem}#{i}" for i, v in enumerate(outputs)) else ""


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: Text, row: int) -> None:
        self.text, self.row, self.at = text, row, 0
        self.lexemes = text.lexemes(row)

    def peek(self, ahead: int = 0) -> Lexeme:
        return self.lexemes[min(self.at + ahead, len(self.lexemes) - 1)]

    def next(self) -> Lexeme:
        got = self.peek()
        self.at += 1
        return got

    def error(self, at: Lexeme, what: str) -> FormatError:
        return self.text.error(self.row, at.column, what)

    def is_input(self) -> bool:
        """`%x = input KIND`, and not a node `%x = input(...)`."""
        kinds = [self.peek(k).kind for k in range(4)]
        return kinds[:3] == ["value", "mark", "name"] and self.peek(2).text == "input" and kinds[3] != "mark"

    def expected(self, what: str) -> FormatError:
        return self.error(self.peek(), f"expected {what}, found {self.peek()}")

    def take(self, kind: str) -> Lexeme:
        if self.peek().kind != kind:
            raise self.expected(
                {"value": "a value such as %x", "string": "a quoted string"}.get(kind, f"an {kind}")
            )
        return self.next()

    def accept(self, text: str) -> bool:
        """Step over a mark or bare word if it is next."""
        if self.peek().kind in ("mark", "name") and self.peek().text == text:
            self.at += 1
            return True
        return False

    def mark(self, text: str) -> None:
        if not (self.peek().kind == "mark" and self.accept(text)):
            raise self.expected(f"'{text}'")

    def word(self, text: str) -> None:
        if not (self.peek().kind == "name" and self.accept(text)):
            raise self.expected(f"'{text}'")

    def name(self) -> str:
        if self.peek().kind not in ("name", "string"):
            raise self.expected("a name")
        return self.next().text

    def end(self) -> None:
        if self.peek().kind != "end":
            raise self.expected("the end of the line")

    def separated(self, close: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Items between commas, up to and including the closing mark."""
        out: list[T] = []
        while not self.accept(close):
            if out:
                self.mark(",")
            out.append(item())
        return tuple(out)

    def results(self) -> list[Lexeme]:
        """`%a, %b` or `()`."""
        if self.accept("("):
            self.mark(")")
            return []
        out = [self.take("value")]
        while self.accept(","):
            out.append(self.take("value"))
        return out

    def values_until_end(self) -> tuple[str, ...]:
        return () if self.peek().kind == "end" else tuple(v.text for v in self.results())

    def arguments(self) -> tuple[tuple[Attr, ...], tuple[tuple[str, Attr], ...]]:
        """`(a, b, key=c)`."""
        args: list[Attr] = []
        kwargs: list[tuple[str, Attr]] = []

        def one() -> None:
            if (
                self.peek().kind in ("name", "string")
                and self.peek(1).text == "="
                and self.peek(1).kind == "mark"
            ):
                key = self.name()
                self.mark("=")
                kwargs.append((key, self.attr()))
            elif kwargs:
                raise self.expected("a keyword argument")
            else:
                args.append(self.attr())

        self.mark("(")
        self.separated(")", one)
        return tuple(args), tuple(kwargs)

    def attributes(self) -> tuple[tuple[str, Attr], ...]:
        """`key = value, …}`."""

        def one() -> tuple[str, Attr]:
            key = self.name()
            self.mark("=")
            return key, self.attr()

        return self.separated("}", one)

    def type(self, id: str) -> Value:
        """`f32[2, u0~16] strides [1, 2] on "cuda:0" scalar`, for the value `id`."""
        at = self.peek()
        word = self.name()
        if at.kind == "name" and word not in BY_SHORT:
            raise self.error(at, f"unknown element type {word}; known: {' '.join(BY_SHORT)}")
        dtype = BY_SHORT[word].name if at.kind == "name" else word
        shape = self.dims()
        strides = self.dims() if self.accept("strides") else contiguous(shape)
        device = self.take("string").text if self.accept("on") else "cpu"
        if len(strides) != len(shape):
            raise self.error(at, f"{len(shape)} sizes but {len(strides)} strides")
        return Value(id, shape, dtype, strides, device, self.accept("scalar"))

    def dims(self) -> tuple[Dim, ...]:
        self.mark("[")
        return self.separated("]", self.dim)

    def dim(self) -> Dim:
        return int(self.next().text) if self.peek().kind == "int" else self.symbol()

    def symbol(self) -> Sym:
        name = self.name()
        self.mark("~")
        return Sym(name, int(self.take("int").text))

    def attr(self, depth: int = 0) -> Attr:
        """One literal: None, bool, int, float, complex, string, %value, @token, symbol or [list]."""
        got, after = self.peek(), self.peek(1)
        if depth > MAX_DEPTH:
            raise self.expected(f"lists nested at most {MAX_DEPTH} deep")
        if after.kind == "mark" and after.text == "~":
            return self.symbol()
        if self.accept("["):
            return self.separated("]", lambda: self.attr(depth + 1))
        if got.kind == "name" and got.text == "complex":
            return self.complex()
        self.next()
        match got.kind:
            case "value":
                return Ref(got.text)
            case "token":
                return Token(got.text)
            case "string":
                return got.text
            case "int":
                return int(got.text)
            case "float":
                return float(got.text)
            case "name" if got.text in _WORDS:
                return _WORDS[got.text]
            case _:
                raise self.error(got, f"expected a literal, found {got}")

    def complex(self) -> complex:
        self.word("complex")
        self.mark("(")
        real = float(self.take("float").text)
        self.mark(",")
        imag = float(self.take("float").text)
        self.mark(")")
        return complex(real, imag)
