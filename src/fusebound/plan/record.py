"""Plans as JSON (`fusebound.plan/1`): written for review, read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from fusebound.analysis.alias import preconditions
from fusebound.analysis.group import boundary
from fusebound.analysis.tau import Tau
from fusebound.errors import FormatError, GraphError, UsageError
from fusebound.files import read_text
from fusebound.gates.base import GATES, Evidence, Verdict
from fusebound.gates.decide import Judgement
from fusebound.gates.rules import rules_from_data
from fusebound.ir.graph import Graph
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph, print_graph
from fusebound.plan.plan import FORMAT, Cut, Decision, Dissolved, Group, Plan

_GROUP = ("id", "kind", "users", "nodes", "inputs", "outputs", "predicted_us", "bytes_before", "bytes_after",
          "launches_before")  # fmt: skip
_CUT = ("producer", "consumer", "value", "code", "message", "bytes", "cost_us")
_DISSOLVED = ("users", "nodes", "fused_us", "eager_us")
_PLAIN = ("policy", "numerics", "target", "expected_calls", "predicted_us", "eager_us",
          "lower_bound_us", "gap", "peak_bytes")  # fmt: skip

Json = dict[str, object]


def plan_to_json(plan: Plan) -> Json:
    """Plain data; tuples become lists."""
    return {"format": FORMAT, **_body(plan), "graph": print_graph(plan.graph).splitlines()}


def _body(plan: Plan) -> Json:
    """All but the graph, which that of a nested plan's parent contains."""
    data: Json = {"graph_key": plan.graph_key}
    data.update({k: getattr(plan, k) for k in _PLAIN})
    data["tau"] = None if plan.tau is None else plan.tau.given
    data["rules"] = plan.rules.to_json()
    data["preconditions"] = _preconditions(plan.graph)
    data["groups"] = [_fields(g, _GROUP) for g in plan.groups]
    data["cuts"] = [_fields(c, _CUT) for c in plan.cuts]
    data["decisions"] = [_decision(d) for d in plan.decisions]
    if plan.dissolved:
        data["dissolved"] = [_fields(x, _DISSOLVED) for x in plan.dissolved]
    if plan.nested:
        data["nested"] = {name: _body(p) for name, p in plan.nested.items()}
    return data


def _preconditions(graph: Graph) -> list[Json]:
    """Inputs that are written, and those that they must share no memory with."""
    return [{"written": p.written, "apart_from": list(p.others)} for p in preconditions(graph)]


def judgement_to_json(j: Judgement) -> Json:
    """The four verdicts by gate, and `override` where a policy or a rule speaks."""
    data: Json = {g: _verdict(getattr(j, g)) for g in GATES}
    if j.override is not None:
        data["override"] = {"gate": j.override.gate, **_verdict(j.override)}
    return data


def plan_from_json(data: Mapping[str, object], where: str = "plan") -> Plan:
    """Rebuild a plan and check that it fits the graph that it carries; raises FormatError."""
    if data.get("format") != FORMAT:
        raise FormatError(f"not a plan: its format is {data.get('format')!r}, not {FORMAT!r}", where=where)
    d = cast("dict[str, Any]", data)
    try:
        graph = parse_graph("\n".join(d["graph"]) + "\n")
        verify(graph)
        plan = _read_body(d, graph, where)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as e:
        why = f"{e} is missing" if isinstance(e, KeyError) else e
        raise FormatError(
            f"damaged plan: {why}", where=where, hint="make it again with `fusebound plan --save`"
        ) from e
    except (GraphError, FormatError) as e:
        text = f"damaged plan: in its graph, {e.where or 'somewhere'}: {e.what}"
        raise FormatError(text, where=where, hint="the graph in it was edited") from e
    except UsageError as e:
        raise FormatError(f"damaged plan: in its {e.where}: {e.what}", where=where, hint=e.hint) from e
    _fits(plan, where)
    if d.get("preconditions") != _preconditions(plan.graph):
        raise FormatError("damaged plan: its preconditions are not those of its graph", where=where)
    return plan


def _read_body(d: dict[str, Any], graph: Graph, where: str) -> Plan:
    nested: dict[str, Any] = d.get("nested", {})
    if nested.keys() != graph.subgraphs.keys():
        raise ValueError(f"it plans the subgraphs {list(nested)}, its graph has {list(graph.subgraphs)}")
    return Plan(
        str(d["graph_key"]), graph, d["policy"], d["numerics"], d["target"],
        tuple(_read_group(g) for g in d["groups"]),
        tuple(Cut(**_tuples(c, _CUT)) for c in d["cuts"]),
        tuple(_read_decision(x) for x in d["decisions"]),
        float(d["predicted_us"]), float(d["lower_bound_us"]), float(d["gap"]), int(d["peak_bytes"]),
        float(d["eager_us"]), Tau.of(d["tau"]), int(d["expected_calls"]),
        rules_from_data(d.get("rules", {}), f"{where}, rules"),
        {name: _read_body(nested[name], s, where) for name, s in graph.subgraphs.items()},
        tuple(_read_dissolved(x, graph) for x in d.get("dissolved", [])),
    )  # fmt: skip


def _read_dissolved(data: dict[str, Any], graph: Graph) -> Dissolved:
    found = Dissolved(**_tuples(data, _DISSOLVED))
    if unknown := {*found.users} - graph.user.keys() or {*found.nodes} - {n.id for n in graph.nodes}:
        raise ValueError(f"a dissolved kernel has {min(unknown)!r}, which its graph has not")
    return Dissolved(found.users, found.nodes, float(found.fused_us), float(found.eager_us))


def _read_group(data: dict[str, Any]) -> Group:
    for field in ("users", "nodes", "inputs", "outputs"):
        if not isinstance(data[field], list) or not all(isinstance(x, str) for x in data[field]):
            raise ValueError(f"{field} of a group is no list of names: {data[field]!r}")
    return Group(**_tuples(data, _GROUP))


def read_plan(path: Path, graph: Graph | None) -> Plan:
    """Load a plan from a file; raises FormatError when it is missing, damaged or of another graph."""
    try:
        data = json.loads(read_text(path, "the plan"))
    except (ValueError, RecursionError) as e:
        raise FormatError(f"not JSON: {e}", where=str(path)) from e
    if not isinstance(data, dict):
        raise FormatError("not a plan: the file holds no JSON object", where=str(path))
    plan = plan_from_json(cast("dict[str, object]", data), str(path))
    if graph is not None:
        require_graph(plan, graph, str(path))
    return plan


def require_graph(plan: Plan, graph: Graph, where: str = "plan") -> None:
    """Raise FormatError unless the plan was made for this very graph."""
    if plan.graph_key != graph.key:
        raise FormatError(
            f"the plan belongs to another graph ({plan.graph.name}, {plan.graph_key}), "
            f"not to {graph.name} ({graph.key})",
            where=where, hint="shapes, types or operators changed since: plan again",
        )  # fmt: skip


def _fits(plan: Plan, where: str) -> None:
    for p in plan.nested.values():
        _fits(p, where)
    if plan.graph.key != plan.graph_key:
        raise FormatError("damaged plan: its graph does not match its key", where=where)
    placed = [u for g in plan.groups for u in g.users]
    if sorted(placed) != sorted(u.name for u in plan.graph.user_ops):
        raise FormatError("damaged plan: its groups do not hold every operator exactly once", where=where)
    known = plan.graph
    for g in plan.groups:
        unknown = [n for n in g.nodes if n not in known.node] + [
            v for v in g.inputs + g.outputs if v not in known.values
        ]
        if unknown or g.kind not in ("kernel", "framework"):
            raise FormatError(f"damaged plan: group {g.id} names {', '.join(unknown) or g.kind}", where=where)
        own = {n.id for u in g.users for n in known.members[u]}
        if set(g.nodes) != own or (g.inputs, g.outputs) != boundary(known, own):
            raise FormatError(
                f"damaged plan: nodes, inputs or outputs of group {g.id} are not those of its operators",
                where=where,
            )


def _fields(x: object, names: tuple[str, ...]) -> Json:
    values = {n: getattr(x, n) for n in names}
    return {n: list(cast("tuple[object, ...]", v)) if isinstance(v, tuple) else v for n, v in values.items()}


def _tuples(data: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {n: tuple(data[n]) if isinstance(data[n], list) else data[n] for n in names}


def _verdict(v: Verdict) -> Json:
    data: Json = {"state": v.state, "code": v.code, "message": v.message}
    if v.nodes:
        data["nodes"] = list(v.nodes)
    data["evidence"] = [
        [e.quantity, e.value, e.relation, e.limit, e.unit, e.source, e.margin] for e in v.evidence
    ]
    if v.counterfactual:
        data["counterfactual"] = v.counterfactual
    return data


def _decision(d: Decision) -> Json:
    return {
        "step": d.step, "a": d.a, "b": d.b, "accepted": d.accepted, "operators": d.operators,
        "judgement": judgement_to_json(d.judgement),
    }  # fmt: skip


def _read_decision(d: dict[str, Any]) -> Decision:
    verdicts = {k: _read_verdict(k, v) for k, v in d["judgement"].items()}
    return Decision(d["step"], d["a"], d["b"], d["accepted"], Judgement(**verdicts), d["operators"])


def _read_verdict(gate: str, d: dict[str, Any]) -> Verdict:
    evidence = tuple(Evidence(*e) for e in d["evidence"])
    return Verdict(
        d.get("gate", gate),
        d["state"],
        d["code"],
        d["message"],
        tuple(d.get("nodes", ())),
        evidence,
        d.get("counterfactual", ""),
    )
