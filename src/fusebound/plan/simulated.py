"""Judging with simulated errors: who supplies the facts that the precision gate must not compute itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fusebound.analysis.numerics import ErrorFacts
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import NO_RULES, Judgement, judge
from fusebound.gates.override import Rules
from fusebound.ir.graph import Graph

Simulate = Callable[[Graph, frozenset[str]], ErrorFacts | None]
GivenFacts = Mapping[frozenset[str], ErrorFacts] | Simulate | None


def simulator(given: GivenFacts, facts: Facts) -> Simulate:
    """How a run learns a candidate's error: from what it is given, else by simulating those that need it."""
    if callable(given):
        return given
    if given is not None:
        return lambda _, nodes: given.get(nodes)

    def run(g: Graph, nodes: frozenset[str]) -> ErrorFacts | None:
        from fusebound.analysis.simulate import needed, simulate

        wanted = facts.numerics == "accurate" and needed(g, nodes, facts.tau)
        return simulate(g, nodes) if wanted else None

    return run


def judge_simulated(c: Candidate, facts: Facts, simulate: Simulate, rules: Rules = NO_RULES) -> Judgement:
    """All four gates on a candidate, with its simulated error among the facts."""
    found = simulate(c.graph, c.nodes)
    return judge(c, facts if found is None else replace(facts, simulated={c.nodes: found}), rules)
