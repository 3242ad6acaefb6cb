"""Rules files: what they mean to the gates and the planner, and what they may not hold."""

from pathlib import Path

import pytest
from tests.unit.plan.graphs import chain

from fusebound.analysis.tau import Difference, Tau
from fusebound.errors import FormatError, UsageError
from fusebound.gates.base import Facts
from fusebound.gates.rules import NO_RULES, Bound, Rules, read_rules, rules_from_data, rules_of
from fusebound.ir.graph import Graph
from fusebound.plan.explain import can_fuse
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.plan.record import plan_from_json, plan_to_json
from fusebound.target import get

TARGET = get("cpu-avx512")

FILE = """
forbid = [["add", "mul"]]
require = [["mul", "tanh"]]

[[tau]]
operators = ["tanh"]
absolute = 1e-6
ulp = 4

[[tau]]
operators = ["layers.*", "mul"]
relative = 1e-5
"""


def kernels(p: Plan) -> list[tuple[str, ...]]:
    return [x.users for x in p.kernels if len(x.users) > 1]


def half() -> Graph:
    return chain("bfloat16")


def test_a_file_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(FILE)
    rules = read_rules(path)
    assert rules == Rules(
        (("add", "mul"),),
        (("mul", "tanh"),),
        (Bound(("tanh",), Tau(1e-6, ulp=4)), Bound(("layers.*", "mul"), Tau(relative=1e-5))),
    )
    assert (
        rules_from_data(rules.to_json(), "again") == rules == rules_of(str(path)) == rules_of(rules.to_json())
    )
    assert rules_of(None) is NO_RULES and NO_RULES.to_json() == {}
    assert list(rules.unmatched(half())) == ["layers.*"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("forbid = [['a']", "not TOML"),
        ("forbit = []", "unknown key 'forbit'"),
        ("forbid = [['a']]", "two operators are due, not 1"),
        ("forbid = 3", "a list is due"),
        ("require = [['a', 3]]", "named by strings"),
        ("tau = [3]", "a table is due"),
        ("[[tau]]\noperators = []\nulp = 1", "one or two operators"),
        ("[[tau]]\noperators = ['a']", "is no bound"),
        ("[[tau]]\noperators = ['a']\nulp = nan", "nan is no bound"),
        ("[[tau]]\noperators = ['a']\nulp = -1", "-1.0 is no bound"),
        ("[[tau]]\noperators = ['a']\nulp = 1" + "0" * 400, "is no bound"),
        ("[[tau]]\noperators = ['a']\nulp = '1'", "is no bound"),
        ("[[tau]]\noperators = ['a']\nupl = 1", "unknown key 'upl'"),
        ("x = " + "[" * 5000, "not TOML"),
    ],
)
def test_damaged_files_get_one_diagnostic(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(FormatError) as e:
        read_rules(path)
    assert what in e.value.what and str(path) in e.value.where


def test_a_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot read the rules"):
        read_rules(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="not UTF-8 text"):
        read_rules(tmp_path / "bytes.toml")


def test_the_first_bound_that_fits_takes_the_place_of_the_plans() -> None:
    g = half()
    add, mul, tanh = (g.user[n] for n in ("add", "mul", "tanh"))
    rules = Rules(tau=(Bound(("add", "mul"), Tau(1.0)), Bound(("mul",), Tau(2.0))))
    assert rules.tau_of((add, mul, tanh), None) == Tau(1.0)
    assert rules.tau_of((mul, tanh), Tau(3.0)) == Tau(2.0)
    assert rules.tau_of((tanh,), Tau(3.0)) == Tau(3.0)
    twice = Rules(tau=(Bound(("mul", "mul"), Tau(1.0)),))
    assert twice.tau_of((mul,), None) is None, "two patterns want two operators"


def test_a_bound_on_one_boundary_moves_that_boundary_only() -> None:
    """tanh's operand would lose a rounding: a tight τ there cuts there, and only there."""
    loose = kernels(plan(half(), target=TARGET, expected_calls=10**6))
    assert loose == [("add", "mul", "tanh")]
    tight = Rules(tau=(Bound(("mul", "tanh"), Tau(0.0)),))
    p = plan(half(), target=TARGET, expected_calls=10**6, rules=tight)
    assert kernels(p) == [("add", "mul")]
    assert [(c.producer, c.consumer, c.code) for c in p.cuts] == [("mul", "tanh", "F202")]
    assert "F202" in p.why("mul", "tanh").codes, "the question is answered by the plan's rules"


@pytest.mark.parametrize("kind", ["absolute", "relative", "ulp"])
def test_each_kind_of_tau_flips_at_the_figure_that_the_refusal_names(kind: str) -> None:
    g = half()
    tight = can_fuse(g, "mul", "tanh", Facts(TARGET, tau=Tau(**{kind: 1e-9}))).precision
    assert tight.code == "F202"
    figure = float(tight.counterfactual.split("tau ≥ ")[1].split()[0])
    assert kind == "absolute" or kind in tight.counterfactual
    assert can_fuse(g, "mul", "tanh", Facts(TARGET, tau=Tau(**{kind: 1.01 * figure}))).precision
    assert not can_fuse(g, "mul", "tanh", Facts(TARGET, tau=Tau(**{kind: 0.99 * figure}))).precision


def test_of_several_kinds_an_element_needs_one() -> None:
    import numpy as np

    eager, fused = np.array([0.0, 1000.0]), np.array([1e-7, 1000.5])
    d = Difference.between(eager, fused, "float32", Tau(1e-6, relative=1e-3))
    assert d.excess == pytest.approx(0.5) and d.relative == np.inf and d.absolute == 0.5
    assert Difference.between(eager, fused, "float32", Tau(1e-6)).excess > 1
    assert Difference.between(eager, eager, "float32", Tau()).excess == 0


def test_tau_as_written_and_as_shown() -> None:
    assert Tau.parse("1e-6") == Tau(1e-6) == Tau.of(1e-6)
    assert (
        Tau.parse("relative=1e-5, ulp=4") == Tau(relative=1e-5, ulp=4) == Tau.of({"relative": 1e-5, "ulp": 4})
    )
    assert str(Tau(relative=1e-5, ulp=4)) == "relative 1e-05, ulp 4" and str(Tau()) == "0"
    for bad in ("x", "ulp=", "upl=1", "nan", "-1", "inf", "absolute=-1"):
        with pytest.raises(UsageError):
            Tau.parse(bad)
    for bad in (True, "1", {}, {"absolute": True}):
        with pytest.raises(UsageError):
            Tau.of(bad)  # type: ignore[arg-type]


def test_rules_and_tau_are_saved_with_the_plan() -> None:
    rules = Rules((("add", "mul"),), (("mul", "tanh"),), (Bound(("tanh",), Tau(ulp=2)),))
    p = plan(half(), target=TARGET, expected_calls=10**6, tau=Tau(relative=1e-3), rules=rules)
    again = plan_from_json(plan_to_json(p))
    assert again.rules == rules and again.tau == p.tau
    assert any("rules: " in line for line in p.diff(plan(half(), target=TARGET)).lines())
    with pytest.raises(FormatError, match="unknown key"):
        plan_from_json(plan_to_json(p) | {"rules": {"forbit": []}})
    with pytest.raises(FormatError, match="no bound"):
        plan_from_json(plan_to_json(p) | {"tau": {"ulp": -1}})


def test_a_demanded_kernel_stays_although_it_measured_slower() -> None:
    from fusebound.plan.dissolve import Measured, dissolve

    p = plan(half(), target=TARGET, expected_calls=10**6, rules=Rules(require=(("add", "mul"),)))
    slow = {g.id: Measured(2.0, 1.0) for g in p.kernels}
    assert dissolve(p, slow, TARGET) is p
    assert dissolve(plan(half(), target=TARGET, expected_calls=10**6), slow, TARGET).kernels == ()


def test_textbook_policies_take_no_rules() -> None:
    with pytest.raises(UsageError, match="takes no rules"):
        plan(half(), target=TARGET, policy="textbook", rules=Rules(forbid=(("a", "b"),)))
