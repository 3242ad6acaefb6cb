"""Judging with simulated errors: who supplies the facts that the precision gate must not compute itself."""

from __future__ import annotations

from dataclasses import replace

from fusebound.analysis.numerics import needs_simulation
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import Judgement, judge


def judge_simulated(c: Candidate, facts: Facts, always: bool = False) -> Judgement:
    """All four gates on a candidate, with its simulated error among the facts where one is due or `always`."""
    tau = facts.tau_of(c)
    wanted = always or needs_simulation(c.graph, c.nodes, tau, whole=not facts.growing)
    if facts.numerics == "accurate" and wanted:
        from fusebound.analysis.simulate import simulate  # numpy

        found = simulate(c.graph, c.nodes, tau)
        if found is not None:
            facts = replace(facts, simulated={c.nodes: found})
    return judge(c, facts)
