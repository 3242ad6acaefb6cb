"""A cursor over one line of the graph's text form: names, literals, types (the grammar is in docs/ir.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fusebound.errors import FormatError
from fusebound.ir.builder import contiguous
from fusebound.ir.dtypes import BY_SHORT
from fusebound.ir.graph import Attr, Dim, Ref, Sym, Token, Value
from fusebound.ir.lex import Lexeme, Text
from fusebound.words import count

T = TypeVar("T")

MAX_DEPTH = 32
"""Of nested lists: a damaged file must not exhaust Python's stack."""

_WORDS: dict[str, Attr] = {"None": None, "True": True, "False": False}


class Line:
    """The tokens of one line; methods step over what they name, or raise FormatError at the place."""

    def __init__(self, text: Text, row: int) -> None:
        self.text, self.row, self.at = text, row, 0
        self.lexemes = text.lexemes(row)

    def peek(self, ahead: int = 0) -> Lexeme:
        """The next token (or one further ahead), without stepping over it."""
        return self.lexemes[min(self.at + ahead, len(self.lexemes) - 1)]

    def next(self) -> Lexeme:
        """Step over any token."""
        got = self.peek()
        self.at += 1
        return got

    def error(self, at: Lexeme, what: str) -> FormatError:
        """A FormatError at a token."""
        return self.text.error(self.row, at.column, what)

    def is_input(self) -> bool:
        """`%x = input KIND`, and not a node `%x = input(...)`."""
        kinds = [self.peek(k).kind for k in range(4)]
        return kinds[:3] == ["value", "mark", "name"] and self.peek(2).text == "input" and kinds[3] != "mark"

    def is_subgraph(self) -> bool:
        """`graph "name"`: the subgraph's own lines follow."""
        first, second = self.peek(), self.peek(1)
        return (first.kind, first.text) == ("name", "graph") and second.kind == "string"

    def expected(self, what: str) -> FormatError:
        """A FormatError that says what should stand here, and what does."""
        return self.error(self.peek(), f"expected {what}, found {self.peek()}")

    def take(self, kind: str) -> Lexeme:
        """Step over a token of this kind."""
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
        """Step over a punctuation mark."""
        if not (self.peek().kind == "mark" and self.accept(text)):
            raise self.expected(f"'{text}'")

    def word(self, text: str) -> None:
        """Step over a bare word."""
        if not (self.peek().kind == "name" and self.accept(text)):
            raise self.expected(f"'{text}'")

    def name(self) -> str:
        """A bare or quoted name."""
        if self.peek().kind not in ("name", "string"):
            raise self.expected("a name")
        return self.next().text

    def end(self) -> None:
        """Nothing may follow."""
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
        """Values separated by commas, or nothing."""
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
            raise self.error(at, f"{count(len(shape), 'size')} but {count(len(strides), 'stride')}")
        return Value(id, shape, dtype, strides, device, self.accept("scalar"))

    def dims(self) -> tuple[Dim, ...]:
        """`[8192, u0~16]`."""
        self.mark("[")
        return self.separated("]", self.dim)

    def dim(self) -> Dim:
        """A size: a number or a symbol."""
        return int(self.next().text) if self.peek().kind == "int" else self.symbol()

    def symbol(self) -> Sym:
        """`u0~16`."""
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
        """`complex(1.0, -inf)`."""
        self.word("complex")
        self.mark("(")
        real = float(self.take("float").text)
        self.mark(",")
        imag = float(self.take("float").text)
        self.mark(")")
        return complex(real, imag)
