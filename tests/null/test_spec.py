"""Every rule of the graph IR, broken once, is named at the operator that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusebound.errors import GraphError
from fusebound.ir.spec import RULES, verify
from fusebound.ir.text import parse_graph

GOOD = """\
fusebound.graph 1 "good"
%x = input user "x" : f32[4, 8]
%i = input user "i" : i64[3]
%m = input buffer "m" : f32[4, 8]
graph "cond.true"
  %a = input user "a" : f32[4, 8]
  exp: aten.exp.default(%a) -> %exp pointwise
    %exp = exp(%a) : f32[4, 8]
  return %exp
end
graph "cond.false"
  %a = input user "a" : f32[4, 8]
  neg: aten.neg.default(%a) -> %neg pointwise
    %neg = neg(%a) : f32[4, 8]
  return %neg
end
softmax: aten.softmax.int(%x, -1) -> %softmax.5 reduce at "net.py":7
  %softmax = amax(%x) {axes = [1]} : f32[4]
  %softmax.1 = reshape(%softmax) : f32[4, 1]
  %softmax.2 = sub(%x, %softmax.1) : f32[4, 8]
  %softmax.3 = exp(%softmax.2) : f32[4, 8]
  %softmax.5 = div(%softmax.3, %softmax.3) : f32[4, 8]
select: aten.index_select.default(%x, 0, %i) -> %select gather
  %select = index_select(%x, %i) {dim = 0} : f32[3, 8]
half: aten.to.dtype(%x, @torch.bfloat16) -> %half pointwise
  %half = cast(%x) {user = True} : bf16[4, 8]
cmp: aten.lt.Tensor(%x, %m) -> %cmp pointwise
  %cmp = lt(%x, %m) : b8[4, 8]
  %cmp.1 = where(%cmp, %x, %m) : f32[4, 8]
moves: aten.flip.default(%x) -> %moves.5 move
  %moves = permute(%x) {perm = [1, 0]} : f32[8, 4]
  %moves.1 = slice(%moves) {dim = 0, start = 1, step = 2} : f32[4, 4]
  %moves.2 = pad(%moves.1) {lo = [0, 1], value = 0.0} : f32[4, 8]
  %moves.3 = cat(%moves.2, %x) {dim = 1} : f32[4, 16]
  %moves.4 = expand(%x) : f32[2, 4, 8]
  %moves.5 = flip(%x) {dims = [0, 1]} : f32[4, 8]
  %moves.6 = slice_scatter(%x, %moves.5) {dim = 0, start = 0, step = 1} : f32[4, 8]
unique: aten._unique2.default(%x) -> %unique#0 opaque why "F602"
  %unique#0, %unique#1 = aten._unique2.default(%x) : f32[u0~9], i64[u0~9]
any: aten.any.default(%cmp) -> %any reduce
  %any = any(%cmp) {axes = [0, 1]} : b8[]
cond: higher_order.cond(%any, @"module:cond.true", @"module:cond.false", [%x]) -> %cond opaque why "F603"
  %cond = higher_order.cond(%any, %x) : f32[4, 8]
return %softmax.5, %select, %unique#0
mutate %m <- %softmax.5
"""


def test_a_good_graph_passes_every_rule() -> None:
    verify(parse_graph(GOOD))


@pytest.mark.parametrize(
    "rule, old, new, said",
    [
        (
            "names are unique",
            "%cmp.1 = where(%cmp, %x, %m) : f32[4, 8]",
            "%cmp.1 = where(%cmp, %x, %m) : f32[4, 8] as cmp",
            "2 nodes are called cmp",
        ),
        ("names are unique", "half: aten", "cmp: aten", "2 user operators are called cmp"),
        ("values are defined before use", "exp(%softmax.2)", "exp(%softmax.5)", "defined only later"),
        ("values are defined before use", "exp(%softmax.2)", "exp(%sofmax.2)", "did you mean softmax"),
        (
            "types are sound",
            "%half = cast(%x) {user = True} : bf16",
            '%half = cast(%x) {user = True} : "bfloat17"',
            "unknown element type 'bfloat17'",
        ),
        ("types are sound", '%i = input user "i" : i64[3]', '%i = input user "i" : i64[-3]', "negative size"),
        (
            "nodes belong to user operators",
            "dims = [0, 1]} : f32[4, 8]",
            "dims = [0, 1]} : f32[4, 8] in mooves",
            "no user operator 'mooves' (did you mean moves?)",
        ),
        (
            "nodes belong to user operators",
            "%half = cast(%x) {user = True} : bf16[4, 8]",
            "%half = cast(%x) {user = True} : bf16[4, 8]\n  %h2 = aten.exp.default(%x) : f32[4, 8]",
            "only node of half",
        ),
        ("user operators are sound", "%half pointwise", "%half pointless", "unknown class 'pointless'"),
        (
            "user operators are sound",
            "-> %half pointwise",
            "-> %halve pointwise",
            "output %halve is not defined",
        ),
        ("user operators are sound", "(%x, 0, %i)", "(%x, [0, %j])", "argument %j is not defined"),
        ("arity", "sub(%x, %softmax.1)", "sub(%x)", "sub takes 2 operands, not 1"),
        ("arity", "cat(%moves.2, %x)", "cat()", "cat needs at least one operand"),
        (
            "arity",
            "%half = cast(%x) {user = True} : bf16[4, 8]",
            "%half, %h2 = cast(%x) {user = True} : bf16[4, 8], bf16[4, 8]",
            "cast has one result, not 2",
        ),
        ("attributes", "amax(%x) {axes = [1]}", "amax(%x)", "amax needs the attribute axes"),
        ("attributes", "{axes = [1]}", "{axes = 1}", "axes must be a list of ints, not 1"),
        ("attributes", "{axes = [1]}", "{axes = [2]}", "not distinct axes of a tensor of rank 2"),
        ("attributes", "{perm = [1, 0]}", "{perm = [1]}", "perm has 1 entry for rank 2"),
        ("attributes", "{user = True}", "{user = 1}", "user must be True or False"),
        ("attributes", "{dims = [0, 1]}", "{dims = [0, 1], k = 3}", "flip has no attribute k"),
        ("attributes", "start = 1, step = 2", "start = 1, step = 0", "step must be positive"),
        ("attributes", "lo = [0, 1]", "lo = [0]", "lo has 1 entry for rank 2"),
        (
            "element types",
            "lt(%x, %m) : b8[4, 8]",
            "lt(%x, %m) : f32[4, 8]",
            "lt of float32 is bool, not float32",
        ),
        ("element types", "where(%cmp, %x, %m)", "where(%x, %x, %m)", "where chooses by float32"),
        ("element types", "index_select(%x, %i)", "index_select(%x, %softmax)", "indexes by float32"),
        ("element types", "sub(%x, %softmax.1)", "sub(%x, %i)", "mixed types float32, int64"),
        ("element types", "exp(%softmax.2) : f32", "exp(%softmax.2) : bf16", "exp of float32 is float32"),
        (
            "shapes",
            "sub(%x, %softmax.1) : f32[4, 8]",
            "sub(%x, %softmax.1) : f32[8, 4]",
            "is [4, 8], not [8, 4]",
        ),
        ("shapes", "sub(%x, %softmax.1)", "sub(%x, %softmax)", "do not broadcast"),
        ("shapes", "{dim = 0} : f32[3, 8]", "{dim = 0} : f32[4, 8]", "is [3, 8], not [4, 8]"),
        ("shapes", "start = 1, step = 2", "start = 2, step = 2", "leave the axis"),
        ("shapes", "expand(%x) : f32[2, 4, 8]", "expand(%x) : f32[2, 5, 8]", "only axes of size 1 expand"),
        ("shapes", "reshape(%softmax) : f32[4, 1]", "reshape(%softmax) : f32[4, 2]", "reshape of"),
        ("results are defined", "return %softmax.5", "return %softmax.4", "returns %softmax.4"),
        ("mutations fit their inputs", "mutate %m", "mutate %cmp", "target %cmp is not an input"),
        ("mutations fit their inputs", "<- %softmax.5", "<- %softmax.4", "source %softmax.4 is not defined"),
        ("mutations fit their inputs", "<- %softmax.5", "<- %half", "would become bfloat16"),
        ("mutations fit their inputs", "<- %softmax.5", "<- %x\nmutate %m <- %x", "mutated twice"),
        (
            "subgraphs are sound",
            "%neg = neg(%a)",
            "%neg = neg(%b)",
            "in 'cond.false': %b is used here but defined",
        ),
        ("subgraphs are sound", "return %neg\n", "return %neg\n  mutate %a <- %neg\n", "mutates its inputs"),
        ("subgraphs are sound", 'cond.false", [%x]', 'cond.true", [%x]', "is run by 2 operators, not by one"),
        ("subgraphs are sound", ", [%x]) ->", ", [%x, %m]) ->", "but is given float32[4, 8], float32[4, 8]"),
        (
            "subgraphs are sound",
            "return %neg\n",
            "return %neg, %a\n",
            "returns float32[4, 8], float32[4, 8], not",
        ),
    ],
)
def test_a_broken_rule_is_named_at_its_operator(rule: str, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(GraphError) as e:
        verify(parse_graph(GOOD.replace(old, new, 1)))
    assert f"rule '{rule}'" in e.value.what
    assert said in e.value.what
    marked = e.value.what.split("\n      ^ ")
    assert said in marked[1], "the message stands under a line of IR"


def test_every_rule_has_a_broken_graph_above() -> None:
    (mark,) = test_a_broken_rule_is_named_at_its_operator.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(RULES)


def test_the_fault_is_shown_under_the_users_operator() -> None:
    with pytest.raises(GraphError) as e:
        verify(parse_graph(GOOD.replace("exp(%softmax.2) : f32[4, 8]", "exp(%softmax.2) : f32[4, 9]")))
    assert "softmax (net.py:7)" in e.value.where
    lines = e.value.what.splitlines()
    (at,) = (k for k, line in enumerate(lines) if "%softmax.3 = exp" in line)
    assert lines[at + 1].startswith("      ^ exp of [4, 8] is [4, 8], not [4, 9]")


def test_values_without_definition_or_own_name_are_found() -> None:
    g = parse_graph(GOOD)
    with pytest.raises(GraphError, match="calls itself %x"):
        verify(replace(g, values={**g.values, "i": g.values["x"]}))
    with pytest.raises(GraphError, match="has a type but no definition"):
        verify(replace(g, values={**g.values, "z": replace(g.values["x"], id="z")}))
    with pytest.raises(GraphError, match="input %x is listed twice"):
        verify(replace(g, inputs=(*g.inputs, g.inputs[0])))
