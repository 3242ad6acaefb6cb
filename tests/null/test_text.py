"""The text form of graphs: exact round trips and located errors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusebound.errors import FormatError
from fusebound.ir.builder import Builder
from fusebound.ir.graph import (
    Attr,
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
from fusebound.ir.text import parse_graph, print_graph

GOLDEN = """\
fusebound.graph 1 "block"
%x = input user "x" : f32[8, 16]
%w = input param "ln.weight" : bf16[16, 8] strides [1, 16] on "cuda:0"
%n = input user "n" : i64[] scalar
relu: aten.relu.default(%x, [1, None], 1e-05, dtype=@torch.float32) -> %relu pointwise at "model.py":12 \
`y = x.relu()` scope "layers.0" written "aten.relu_.default"
  %relu = const() {value = -inf} : f32[]
  %relu.1 = maximum(%x, %relu) : f32[8, 16]
unique: aten._unique2.default(%x) -> %unique#0, %unique#1 opaque why "F602"
  %unique#0, %unique#1 = aten._unique2.default(%x) : f32[u0~16], i64[u0~16]
return %relu.1, %unique#0
mutate %x <- %relu.1
"""


def test_golden_text_reads_and_prints_back() -> None:
    g = parse_graph(GOLDEN)
    assert print_graph(g) == GOLDEN
    assert g.values["w"] == Value("w", (16, 8), "bfloat16", (1, 16), "cuda:0")
    assert g.values["unique#0"].shape == (Sym("u0", 16),)
    assert g.nodes[0].attr("value") == -math.inf
    assert g.nodes[2] == Node("unique", "aten._unique2.default", ("x",), ("unique#0", "unique#1"), "unique")
    assert g.user["relu"].kwargs == (("dtype", Token("torch.float32")),)
    assert g.user["relu"].source == Source("model.py", 12, "y = x.relu()")
    assert g.user["unique"].why == "F602"
    assert g.mutations == (Mutation("x", "relu.1"),)


NESTED = """\
fusebound.graph 1 "branch"
%p = input user "p" : b8[]
%x = input user "x" : f32[8]
graph "cond.true"
  %a = input user "a" : f32[8]
  graph "cond.true/inner"
    %b = input user "b" : f32[8]
    return %b
  end
  exp: aten.exp.default(%a) -> %exp pointwise at "model.py":3
    %exp = exp(%a) : f32[8]
  return %exp
end
graph "cond.false"
  %a = input user "a" : f32[8]
  return %a
end
cond: higher_order.cond(%p, @"module:cond.true", @"module:cond.false", [%x]) -> %cond opaque why "F603"
  %cond = higher_order.cond(%p, %x) : f32[8]
return %cond
"""


def test_subgraphs_read_and_print_back() -> None:
    g = parse_graph(NESTED)
    assert print_graph(g) == NESTED
    assert list(g.subgraphs) == ["cond.true", "cond.false"]
    assert list(g.subgraphs["cond.true"].subgraphs) == ["cond.true/inner"]
    moved = parse_graph(NESTED.replace("model.py", "other.py"))
    assert moved != g and moved.key == g.key, "lines are no part of the key, in subgraphs either"
    assert parse_graph(NESTED.replace("exp(%a)", "neg(%a)")).key != g.key


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("  return %a\nend\n", "  return %a\n", "expected 'mutate'"),
        ('"cond.false"\n', '"cond.true"\n', "the subgraph cond.true is defined twice"),
        ("  return %exp\n", "", "expected"),
        ('graph "cond.true"\n', 'graph "cond.true"\n' * 40, "nested more than"),
    ],
)
def test_damaged_subgraphs_are_named(old: str, new: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_graph(NESTED.replace(old, new, 1))


def test_blank_lines_comments_and_crlf_do_not_matter() -> None:
    noisy = "# a graph\r\n\r\n" + GOLDEN.replace("\n", "  # why\r\n")
    assert parse_graph(noisy) == parse_graph(GOLDEN)


def test_builder_graph_round_trips() -> None:
    b = Builder("m")
    x = b.input("x", (4, Sym("s0", 8)), "float32", strides=(1, 4))
    b.begin("softmax")
    m = b.emit("amax", x, axes=(1,))
    k = b.emit("reshape", m, shape=(4, 1))
    y = b.emit("exp", b.emit("sub", x, k))
    b.end("aten.softmax.int", (Ref(x), -1, None), (), (y,), "reduce", scope="attn")
    g = b.finish((y,))
    assert parse_graph(print_graph(g)) == g
    assert parse_graph(print_graph(g)).key == g.key


@pytest.mark.parametrize(
    "old, new, line, said",
    [
        ("f32[8, 16]", "f33[8, 16]", 2, "unknown element type f33"),
        ("return %relu.1, %unique#0", "return %relu.1 %unique#0", 10, "expected the end of the line"),
        ("1e-05", "1e-05;", 5, "unexpected character ';'"),
        ("fusebound.graph 1", "fusebound.graph 2", 1, "format version 2"),
        ("fusebound.graph 1", "fusebound.plan 1", 1, "expected 'fusebound.graph'"),
        ("%relu.1 = maximum", "%relu = maximum", 7, "%relu is defined twice"),
        ("maximum(%x, %relu)", "maximum(%x, relu)", 7, "expected a value"),
        ("[1, None]", "[1, Nine]", 5, "expected a literal"),
        ("strides [1, 16]", "strides [1]", 3, "2 sizes but 1 stride"),
        ("mutate %x <- ", "mutate %x = ", 11, "expected '<-'"),
        ('"ln.weight"', '"ln\\q"', 3, "unknown escape"),
        ('"ln.weight"', '"ln\\u{ffffff}"', 3, "chr()"),
        ("[1, None]", "[" * 40 + "]" * 40, 5, "nested at most"),
        ("[8, 16]", "[" + "9" * 5000 + "]", 2, "5000 digits"),
        ("dtype=@torch.float32", "dtype=@torch.float32, 3", 5, "expected a keyword argument"),
    ],
)
def test_faults_name_their_line(old: str, new: str, line: int, said: str) -> None:
    assert old in GOLDEN
    with pytest.raises(FormatError) as e:
        parse_graph(GOLDEN.replace(old, new, 1))
    assert said in e.value.what
    assert e.value.where.startswith(f"line {line},")
    assert f"{line:5} | " in e.value.what and "^" in e.value.what


@pytest.mark.parametrize("text", ["", "# nothing\n", 'fusebound.graph 1 "g"\n'])
def test_missing_parts_are_named(text: str) -> None:
    with pytest.raises(FormatError, match=r"no graph here|without a return"):
        parse_graph(text)


_any = st.text(st.characters(exclude_categories=()), max_size=6)
_id = st.one_of(st.sampled_from(["x", "add.1", "s#0", "input", "return", "in", "inf", "nan", "1", ""]), _any)
_sym = st.builds(Sym, _id, st.integers(-3, 99))
_dim = st.one_of(st.integers(-3, 9), _sym)
_attr: st.SearchStrategy[Attr] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        _any,
        _sym,
        st.complex_numbers(allow_nan=False),
        st.builds(Ref, _id),
        st.builds(Token, _id),
    ),
    lambda a: st.lists(a, max_size=3).map(tuple),
    max_leaves=5,
)
_attrs = st.lists(st.tuples(_id, _attr), max_size=3).map(tuple)


@st.composite
def _value(draw: st.DrawFn, id: str) -> Value:
    shape = tuple(draw(st.lists(_dim, max_size=3)))
    strides = tuple(draw(st.lists(_dim, min_size=len(shape), max_size=len(shape))))
    return Value(
        id,
        shape,
        draw(st.sampled_from(["float32", "bool", "odd kind"])),
        strides,
        draw(_id),
        draw(st.booleans()),
    )


@st.composite
def _graph(draw: st.DrawFn) -> Graph:
    """Graphs with odd names everywhere; well-formed as text, not valid as graphs."""
    ids = draw(st.lists(_id, min_size=6, max_size=6, unique=True))
    refs = st.lists(st.sampled_from(ids), max_size=3).map(tuple)
    user_ops = draw(
        st.lists(
            st.builds(
                UserOp, _id, _id, st.lists(_attr, max_size=3).map(tuple), _attrs, refs, _id, _any,
                st.builds(Source, _any, st.integers(-2, 99), _any), _any, _any,
            ),
            max_size=3, unique_by=lambda u: u.name,
        )
    )  # fmt: skip
    users = st.sampled_from([*(u.name for u in user_ops), "elsewhere"])
    shares = [(ids[0],), (ids[1], ids[2]), ()]
    nodes = tuple(Node(draw(_id), draw(_id), draw(refs), out, draw(users), draw(_attrs)) for out in shares)
    return Graph(
        draw(_any), (Input(ids[3], draw(_id), draw(_any)),), {i: draw(_value(i)) for i in ids}, nodes,
        tuple(user_ops), draw(refs), tuple(draw(st.lists(st.builds(Mutation, _id, _id), max_size=2))),
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(_graph())
def test_every_graph_round_trips(g: Graph) -> None:
    text = print_graph(g)
    back = parse_graph(text)
    assert back == g
    assert print_graph(back) == text  # also tells 1 from True and 0.0 from -0.0, which compare equal


def test_nan_survives() -> None:
    g = parse_graph(GOLDEN.replace("-inf", "nan"))
    assert math.isnan(g.nodes[0].attr("value"))  # type: ignore[arg-type]
    assert "{value = nan}" in print_graph(g)


def test_a_broken_graph_still_prints() -> None:
    g = parse_graph(GOLDEN)
    text = print_graph(replace(g, values={}))
    assert "%relu = const() {value = -inf} : ?" in text
