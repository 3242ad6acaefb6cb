"""Judging with simulated errors: who supplies the facts that the precision gate must not compute itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fusebound.analysis.numerics import ErrorFacts, needs_simulation
from fusebound.analysis.tau import Tau
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import Judgement, judge
from fusebound.ir.graph import Graph

Simulate = Callable[[Graph, frozenset[str], Tau | None], ErrorFacts | None]
GivenFacts = Mapping[frozenset[str], ErrorFacts] | Simulate | None


def simulator(given: GivenFacts) -> Simulate:
    """How a run learns a candidate's error: from what it is given, else by simulating it."""
    if callable(given):
        return given
    if given is not None:
        return lambda _, nodes, tau: given.get(nodes)

    def run(g: Graph, nodes: frozenset[str], tau: Tau | None) -> ErrorFacts | None:
        from fusebound.analysis.simulate import simulate

        return simulate(g, nodes, tau)

    return run


def judge_simulated(c: Candidate, facts: Facts, simulate: Simulate, always: bool = False) -> Judgement:
    """All four gates on a candidate, with its simulated error among the facts where one is due or `always`."""
    tau = facts.tau_of(c)
    wanted = always or needs_simulation(c.graph, c.nodes, tau, whole=not facts.growing)
    if facts.numerics == "accurate" and wanted:
        found = simulate(c.graph, c.nodes, tau)
        if found is not None:
            facts = replace(facts, simulated={c.nodes: found})
    return judge(c, facts)
