"""What each gate says, and that it names the user's operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.plan.graphs import Sketch, chain, nodes

from fusebound.analysis.simulate import simulate
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict
from fusebound.gates.decide import Judgement, judge
from fusebound.gates.rules import Rules
from fusebound.ir.graph import Graph, Mutation
from fusebound.ir.reader import parse_graph
from fusebound.plan.explain import can_fuse
from fusebound.target import get

CPU = Facts(get("cpu-avx512"), expected_calls=10**6)


def pair(g: Graph, a: str, b: str, facts: Facts = CPU, rules: Rules | None = None) -> Judgement:
    return judge(Candidate(g, nodes(g, a), nodes(g, b)), replace(facts, rules=rules or Rules()))


def quantities(v: Verdict) -> dict[str, Evidence]:
    return {e.quantity: e for e in v.evidence}


def test_a_plain_chain_passes_all_four_with_evidence() -> None:
    j = pair(chain(), "add", "mul")
    assert bool(j) and j.codes == () and j.first is None
    assert [v.gate for v in j.verdicts] == ["dependence", "precision", "resources", "gain"]
    assert all(v.evidence for v in j.verdicts)
    assert quantities(j.dependence)["RAW on add"].value == "equal points"
    size = 4096 * 2048 * 4
    assert quantities(j.gain)["bytes saved"].value == 3 * size, "write and read of add, and one read of x"


def test_a_path_names_what_only_lies_in_one_kernel_with_the_next() -> None:
    """sin and cos feed one another nothing; as one kernel they stand between exp and the sum."""
    s = Sketch()
    x, y = s.input("x", 64), s.input("y", 64)
    e = s.op("exp", "exp", x)
    sin, cos = s.op("sin", "sin", e), s.op("cos", "cos", y)
    g = s.done(s.op("add", "add", e, s.op("neg", "neg", cos)), sin)
    kernel = nodes(g, "sin", "cos")
    c = Candidate(g, nodes(g, "exp"), nodes(g, "add"), dict.fromkeys(kernel, kernel))
    v = judge(c, CPU).dependence
    assert v.code == "F101" and v.message.endswith(
        ": exp (model.py:1) → sin (model.py:2), in one kernel with cos (model.py:3) → neg (model.py:4) → "
        "add (model.py:5)"
    )


BRANCH = """fusebound.graph 1 "branch"
%flag = input user "flag" : b8[]
%x = input user "x" : f32[4096, 1024]
graph "cond.true"
  %a = input user "a" : f32[4096, 1024]
  neg: aten.neg.default(%a) -> %neg pointwise
    %neg = neg(%a) : f32[4096, 1024]
  MORE
  return %last
end
graph "cond.false"
  %a = input user "a" : f32[4096, 1024]
  abs: aten.abs.default(%a) -> %abs pointwise
    %abs = abs(%a) : f32[4096, 1024]
  return %abs
end
exp: aten.exp.default(%x) -> %exp pointwise
  %exp = exp(%x) : f32[4096, 1024]
cond: higher_order.cond(%flag, @"module:cond.true", @"module:cond.false", [%exp]) -> %cond opaque why "F603"
  %cond = higher_order.cond(%flag, %exp) : f32[4096, 1024]
return %cond
"""


@pytest.mark.parametrize("further", [0, 3])
def test_what_a_branch_runs_is_not_saved_with_the_launch_of_its_control_flow(further: int) -> None:
    more, last = "", "neg"
    for i in range(further):
        more += f"tanh{i}: aten.tanh.default(%{last}) -> %tanh{i} pointwise\n    "
        more += f"%tanh{i} = tanh(%{last}) : f32[4096, 1024]\n  "
        last = f"tanh{i}"
    g = parse_graph(BRANCH.replace("MORE", more).replace("%last", f"%{last}"))
    t = CPU.target
    found = quantities(pair(g, "exp", "cond").gain)["T_launch"].value
    assert found == pytest.approx(2 * t.framework_us - t.launch_us)


@pytest.mark.parametrize(
    ("why", "kind", "code", "text"),
    [
        ("", "scan", "F608", "scans"),
        ("", "contract", "F607", "library"),
        ("", "random", "F606", "random"),
        ("F602", "opaque", "F602", "data-dependent size"),
        ("F603", "opaque", "F603", "branches"),
        ("", "opaque", "F601", "not an operator that fusebound understands"),
    ],
)
def test_boundaries_say_what_they_are(why: str, kind: str, code: str, text: str) -> None:
    s = Sketch()
    x = s.input("x", 64)
    o = s.opaque("thing", s.op("exp", "exp", x), why=why, kind=kind)
    g = s.done(s.op("neg", "neg", o))
    for a, b in (("exp", "thing"), ("thing", "neg")):
        v = pair(g, a, b).dependence
        assert (v.state, v.code) == ("fail", code)
        assert "thing (model.py:2)" in v.message and text in v.message and v.counterfactual


def test_operators_without_common_data() -> None:
    s = Sketch()
    x, y = s.input("x", 64), s.input("y", 64)
    g = s.done(s.op("exp", "exp", x), s.op("neg", "neg", y))
    assert pair(g, "exp", "neg").dependence.code == "F107"


def test_readers_of_one_value_are_a_legal_pair() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    g = s.done(s.op("exp", "exp", x), s.op("neg", "neg", x))
    j = pair(g, "exp", "neg")
    assert bool(j) and "both read" in j.dependence.message


def test_a_domain_names_the_true_obstacle_not_missing_data() -> None:
    s = Sketch()
    x = s.input("x", 64, 128)
    e = s.op("exp", "exp", x)
    rows = s.op("rows", "sum", e, kind="reduce", axes=(1,))
    columns = s.op("columns", "sum", e, kind="reduce", axes=(0,))
    g = s.done(rows, columns)
    v = pair(g, "rows", "columns").dependence
    assert v.code.startswith("F5") and "(model.py:" in v.message


@pytest.mark.parametrize("primitive", ["permute", "slice", "sum", "expand"])
def test_kinds_of_reads(primitive: str) -> None:
    s = Sketch()
    x = s.op("exp", "exp", s.input("x", 64, 64))
    attrs: dict[str, object] = {
        "permute": {"perm": (1, 0)},
        "slice": {"shape": (64, 8), "dim": 1, "start": 0, "step": 1},
        "sum": {"axes": (1,)},
        "expand": {"shape": (4, 64, 64)},
    }[primitive]
    g = s.done(s.op("reader", primitive, x, kind="move", **attrs))  # type: ignore[arg-type]
    kinds = {"permute": "permuted", "slice": "sliced", "sum": "reduced", "expand": "broadcast"}
    evidence = pair(g, "exp", "reader").dependence.evidence
    assert any(e.value == kinds[primitive] for e in evidence)


def test_several_consumers_and_escape_are_facts_not_refusals() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    e = s.op("exp", "exp", x)
    g = s.done(s.op("neg", "neg", e), s.opaque("sort", e), e)
    j = pair(g, "exp", "neg")
    assert bool(j)
    found = quantities(j.dependence)
    assert found["consumers of exp (F106)"].value == 2
    assert found["exp escapes (F105)"].unit == "B"
    share, recompute, cut = (found[f"{w} exp"].value for w in ("sharing", "recomputing", "materialising"))
    assert isinstance(share, float) and isinstance(cut, float) and share < cut and recompute


def test_an_in_place_write_of_what_is_read_elsewhere() -> None:
    s = Sketch()
    b = s.input("b", 4096)
    r = s.op("flip", "flip", b, kind="move", dims=(0,))
    g = s.done(mutations=(Mutation(b, s.op("sub_", "sub", b, r)),))
    v = pair(g, "flip", "sub_").dependence
    assert v.code == "F102" and "sub_ (model.py:2)" in v.message and "[-1*i0 + 4095]" in v.message


def test_inputs_that_may_overlap_are_a_precondition() -> None:
    s = Sketch()
    x, y = s.input("x", 4096, 1024), s.input("y", 4096, 1024)
    m = s.op("mul", "mul", y, y)
    g = s.done(mutations=(Mutation(x, s.op("add_", "add", x, m)),))
    v = pair(g, "mul", "add_").dependence
    assert (v.state, v.code) == ("conditional", "F104") and bool(v)
    assert "x shares no memory with y" in v.message


def bf16_compare(dtype: str) -> Graph:
    s = Sketch()
    x, y = s.input("x", 4096, dtype=dtype), s.input("y", 4096, dtype=dtype)
    return s.done(s.op("eq", "eq", s.op("mul", "mul", x, y), y))


def test_a_rounding_before_a_comparison_is_kept() -> None:
    v = pair(bf16_compare("bfloat16"), "mul", "eq").precision
    assert (v.state, v.code) == ("conditional", "F201") and bool(v)
    assert "mul (model.py:1)" in v.message and "float32" in v.counterfactual
    assert quantities(v)["roundings that vanish"].value == 0
    plain = pair(bf16_compare("float32"), "mul", "eq").precision
    assert (plain.state, plain.code) == ("pass", "F000"), "float32 rounds nothing away"


def test_a_cast_of_the_users_keeps_its_rounding() -> None:
    s = Sketch()
    x = s.input("x", 4096)
    half = s.op("to", "cast", x, dtype="bfloat16", user=True)
    g = s.done(s.op("eq", "eq", half, half))
    v = pair(g, "to", "eq").precision
    assert bool(v) and quantities(v)["casts that the user wrote, kept (F203)"].value == 1


def test_an_overflow_that_fusing_removes_is_evidence() -> None:
    s = Sketch()
    x = s.input("x", 64, 64, dtype="float16")
    g = s.done(s.op("root", "sqrt", s.op("square", "mul", x, x)))
    found = simulate(g, nodes(g, "square", "root"))
    assert found is not None and found.finite_gained > 0 and not found.finite_lost
    j = pair(g, "square", "root", replace(CPU, simulated={nodes(g, "square", "root"): found}))
    assert bool(j.precision) and quantities(j.precision)["finiteness gained"].value == found.finite_gained


def test_an_overflow_that_fusing_introduces_is_evidence() -> None:
    """The root of mean(x²) − mean(x)² where another order of the sum makes it negative."""
    s = Sketch()
    b = s.b
    x = s.input("x", 4096, 1024)
    b.begin("shift")
    big = b.emit("add", x, b.const(1e4, "float32"))
    s._end("aten.add.Scalar", (x,), big, "pointwise")
    b.begin("spread")
    n = b.const(1024.0, "float32")
    square = b.emit("div", b.emit("sum", b.emit("mul", big, big), axes=(1,)), n)
    mean = b.emit("div", b.emit("sum", big, axes=(1,)), n)
    spread = b.emit("sqrt", b.emit("sub", square, b.emit("mul", mean, mean)))
    s._end("user.spread.default", (big,), spread, "reduce")
    g = s.done(spread)
    found = simulate(g, nodes(g, "shift", "spread"))
    assert found is not None and found.finite_lost > 0
    j = pair(g, "shift", "spread", replace(CPU, simulated={nodes(g, "shift", "spread"): found}))
    assert j.precision.code == "F204"
    assert quantities(j.precision)["finiteness lost"].value == found.finite_lost


def test_eager_numerics_leave_reductions_alone() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    g = s.done(s.softmax(s.op("mul", "mul", x, x)))
    eager = Facts(get("cpu-avx512"), numerics="eager")
    assert pair(g, "mul", "softmax", eager).precision.code == "F207"
    assert bool(pair(chain(), "add", "mul", eager).precision)
    accurate = quantities(pair(g, "mul", "softmax").precision)
    assert accurate["terms of the longest reordered reduction (F206)"].value == 1024


def test_gpu_evidence_holds_live_ranges_beside_the_textbook_sum() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    g = s.done(s.softmax(s.op("mul", "mul", x, x)))
    found = quantities(pair(g, "mul", "softmax", Facts(get("h100"))).resources)
    assert found["textbook register sum (F314)"].value == 8 + 32
    live = found["registers per thread by live ranges"]
    assert isinstance(live.value, int) and live.limit == 255 and live.margin == 255 - live.value


def test_a_measured_loss_outweighs_a_predicted_gain() -> None:
    g = chain()
    both = nodes(g, "add", "mul")
    target = get("cpu-avx512")
    lost = pair(g, "add", "mul", Facts(target, measured={both: (61.0, 48.0)}))
    assert lost.gain.code == "F405" and lost.gain.counterfactual == "a kernel faster by 13 µs"
    assert quantities(lost.gain)["measured time"].source == "measured"
    assert bool(pair(g, "add", "mul", Facts(target, measured={both: (40.0, 48.0)})))


def test_policies_refuse_what_they_do_not_allow() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    m = s.op("mul", "mul", x, x)
    soft = s.done(s.softmax(m))
    for policy, codes in (("none", "F900"), ("elementwise", "F900"), ("loop", "F900"), ("tile", "")):
        j = pair(soft, "mul", "softmax", Facts(get("cpu-avx512"), policy=policy, expected_calls=10**6))
        assert (j.first.code if j.first is not None else "") == codes
    pointwise = pair(chain(), "add", "mul", Facts(get("cpu-avx512"), policy="elementwise"))
    assert bool(pointwise)


@pytest.mark.parametrize("policy", ["none", "elementwise", "loop"])
@pytest.mark.parametrize(("a", "b"), [("add", "mul"), ("mul", "sum"), ("mul", "softmax")])
def test_the_policy_that_a_refusal_names_allows_the_merge(policy: str, a: str, b: str) -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    m = s.op("mul", "mul", s.op("add", "add", x, x), x)
    g = s.done(s.softmax(m), s.op("sum", "sum", m, axes=(1,)))
    refused = pair(g, a, b, Facts(get("cpu-avx512"), policy=policy)).override
    if refused is not None:
        named = refused.counterfactual.removeprefix("policy=")
        assert pair(g, a, b, Facts(get("cpu-avx512"), policy=named)).override is None
    else:
        assert (policy, b) in (("elementwise", "mul"), ("loop", "mul"), ("loop", "sum"))


def test_rules_forbid_and_require() -> None:
    g = chain(rows=8, columns=8)
    once = Facts(get("cpu-avx512"), expected_calls=1)
    assert pair(g, "add", "mul", once).first is not None
    demanded = pair(g, "add", "mul", once, Rules(require=(("mul", "add"),)))
    assert bool(demanded) and demanded.override is not None and demanded.override.code == "F902"
    banned = pair(g, "add", "mul", CPU, Rules(forbid=(("ad*", "mul"),), require=(("add", "mul"),)))
    assert not banned and banned.codes[0] == "F901"
    s = Sketch()
    x, y = s.input("x", 64), s.input("y", 64)
    apart = s.done(s.op("exp", "exp", x), s.op("neg", "neg", y))
    assert pair(apart, "exp", "neg", CPU, Rules(require=(("exp", "neg"),))).first is not None


def test_views_between_two_operators_belong_to_the_question() -> None:
    s = Sketch()
    x = s.input("x", 64, 128)
    t = s.view("t", "permute", s.op("exp", "exp", x), (1, 128), perm=(1, 0))
    g = s.done(s.op("neg", "neg", t))
    found = can_fuse(g, "exp", "neg", CPU)
    assert bool(found.dependence) and found.group == ("exp", "t", "neg")


def test_evidence_reads_as_a_sentence() -> None:
    e = Evidence.bound("registers", 40, 32, "")
    assert str(e) == "registers: 40 ≤ 32" and e.margin == -8
    assert str(Evidence("ΔT", 1.23456, unit="µs")) == "ΔT = 1.23 µs"
    assert Evidence.bound("ΔT", 5, 0, "µs", ">").margin == 5
