"""Reads the text form of graphs (see `ir.text`); every fault is a FormatError with its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusebound.ir.cursor import MAX_DEPTH, Line
from fusebound.ir.graph import Graph, Input, Mutation, Node, Source, UserOp, Value
from fusebound.ir.lex import Lexeme, Text


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
    subgraphs: dict[str, Graph] = field(default_factory=dict[str, Graph])

    def graph(self) -> Graph:
        """The graph that fills the whole text."""
        self._read(0, nested=0)
        return self._made()

    def _read(self, row: int, nested: int) -> int:
        """Read statements from `row` on, to the end of the text or, in a subgraph, to its `end`; the next row."""
        started = bool(nested)
        while row < len(self.text.lines):
            line = Line(self.text, row)
            row += 1
            if line.peek().kind == "end":
                continue
            if not started:
                self._title(line)
                started = True
            elif self.outputs is not None:
                if nested and line.accept("end"):
                    line.end()
                    return row
                self._mutation(line)
            elif line.is_subgraph():
                row = self._subgraph(line, row, nested)
            else:
                self._statement(line)
            line.end()
        last = len(self.text.lines) - 1
        if not started:
            raise self.text.error(last, 0, 'no graph here: the first line must be: fusebound.graph 1 "name"')
        if self.outputs is None:
            raise self.text.error(last, 0, "the text ends without a return statement")
        if nested:
            raise self.text.error(last, 0, "the text ends inside a subgraph: `end` is missing")
        return row

    def _made(self) -> Graph:
        return Graph(
            self.name, tuple(self.inputs), self.values, tuple(self.nodes), tuple(self.user_ops),
            self.outputs or (), tuple(self.mutations), self.subgraphs,
        )  # fmt: skip

    def _subgraph(self, line: Line, row: int, nested: int) -> int:
        """`graph "name"`, the statements of a graph, `end`; the row after it."""
        line.next()
        at = line.take("string")
        if at.text in self.subgraphs:
            raise line.error(at, f"the subgraph {at.text} is defined twice")
        if nested >= MAX_DEPTH:
            raise line.error(at, f"subgraphs nested more than {MAX_DEPTH} deep")
        inner = _Parser(self.text, at.text)
        row = inner._read(row, nested + 1)
        self.subgraphs[at.text] = inner._made()
        return row

    def _title(self, line: Line) -> None:
        line.word("fusebound.graph")
        version = line.take("int")
        if version.text != "1":
            raise line.error(version, f"format version {version.text}; this fusebound reads version 1")
        self.name = line.take("string").text

    def _statement(self, line: Line) -> None:
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

    def _define(self, line: Line, at: Lexeme, v: Value) -> None:
        if v.id in self.values:
            raise line.error(at, f"%{v.id} is defined twice")
        self.values[v.id] = v

    def _input(self, line: Line) -> None:
        at = line.take("value")
        line.mark("=")
        line.word("input")
        kind, target = line.name(), line.take("string").text
        line.mark(":")
        self._define(line, at, line.type(at.text))
        self.inputs.append(Input(at.text, kind, target))

    def _user_op(self, line: Line) -> None:
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

    def _node(self, line: Line) -> None:
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

    def _mutation(self, line: Line) -> None:
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
