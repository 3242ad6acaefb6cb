"""The graphs, code and figures in docs/ir.md and docs/textbook.md are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusebound import target
from fusebound.analysis.space import Space, unify
from fusebound.analysis.traffic import kernel_traffic
from fusebound.errors import FormatError
from fusebound.gates import pages
from fusebound.ir.graph import Graph
from fusebound.ir.spec import RULES, verify
from fusebound.ir.text import parse_graph, print_graph
from fusebound.textbook import example, table
from fusebound.textbook.policy import groups

DOCS = Path(__file__).parents[2] / "docs"
IR, TEXTBOOK = (DOCS / name for name in ("ir.md", "textbook.md"))


def _code(text: str, n: int = 0) -> str:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[n]


def _indented(text: str, start: str) -> str:
    """The indented block that begins with `start`."""
    lines = text[text.index("    " + start) :].split("\n")
    block = lines[: next(k for k, line in enumerate(lines) if line and not line.startswith("    "))]
    return "\n".join(line[4:] for line in block).rstrip("\n") + "\n"


def test_the_graph_in_the_ir_page_is_printed_as_shown() -> None:
    text = _indented(IR.read_text("utf-8"), 'fusebound.graph 1 "block"')
    g = parse_graph(text)
    verify(g)
    assert print_graph(g) == text


def test_the_fault_in_the_ir_page_is_reported_as_shown() -> None:
    said = _indented(IR.read_text("utf-8"), "E110: expected")
    quoted = [re.sub(r"^ *\d+ \| ", "", line) for line in said.splitlines() if re.match(r" *\d+ \| ", line)]
    with pytest.raises(FormatError) as e:
        parse_graph("\n".join(quoted))
    assert str(e.value) + "\n" == said


def test_the_code_in_the_ir_page_builds_a_valid_graph() -> None:
    names: dict[str, Graph] = {}
    exec(_code(IR.read_text("utf-8")), names)
    assert [u.name for u in names["g"].user_ops] == ["mul"]


def test_the_ir_page_lists_every_rule() -> None:
    rows = re.findall(r"^\| ([a-z][^|]*?) \| ", IR.read_text("utf-8").split("## Rules")[1], re.MULTILINE)
    assert rows == ["rule", *RULES]


def test_the_textbook_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = _code(TEXTBOOK.read_text("utf-8"))
    exec(code, {})
    (said,) = re.findall(r"# prints: (.*)\n", code)
    assert capsys.readouterr().out == said + "\n"


def test_the_textbook_page_shows_the_computed_table() -> None:
    text = TEXTBOOK.read_text("utf-8")
    for row in table.rows():
        assert f"| {' | '.join(row.cells)} |" in text


def test_the_traffic_of_the_three_policies_is_as_shown() -> None:
    g, t = example.graph(), target.get("cpu-avx2")
    tensor = 8192 * 2048 * 4

    def tensors(plan: list[tuple[str, ...]]) -> float:
        nodes = ([n.id for u in group for n in g.members[u]] for group in plan)
        return sum(kernel_traffic(g, ids).total for ids in nodes) / tensor

    assert [tensors(groups(g, strict, t)) for strict in (True, False)] == [9, 7]
    assert tensors([("relu", "add", "softmax", "mul")]) == 4
    for n, mb in ((9, 604), (7, 470), (4, 268)):
        assert round(n * tensor / 1e6) == mb and f"{mb} MB" in TEXTBOOK.read_text("utf-8")


def test_the_example_needs_as_many_registers_as_shown() -> None:
    g = example.graph()
    space = unify(g, [n.id for n in g.nodes])
    assert isinstance(space, Space)
    assert f"The whole example needs {space.live_vectors} vector registers" in TEXTBOOK.read_text("utf-8")


def test_codes_named_in_the_pages_exist() -> None:
    for path in (IR, TEXTBOOK):
        for code in re.findall(r"\bF[1-9]\d\d\b", path.read_text("utf-8")):
            assert code in pages.codes(), (path.name, code)
