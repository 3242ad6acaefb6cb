"""Gain (F4xx): ΔT = T_launch + T_mem − T_recompute − T_spill − T_overlap − T_compile."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from fusebound.analysis.roofline import (
    CACHED_RUNS,
    Cost,
    alone,
    blocks,
    busy_users,
    compile_us,
    framework_cost,
    kernel_cost,
)
from fusebound.analysis.space import Refusal
from fusebound.analysis.traffic import by_level
from fusebound.gates.base import OK, Candidate, Evidence, Facts, Verdict, figure, passed
from fusebound.words import count

GATE = "gain"

MODEL_ERROR = 0.3
"""Share of the unfused time by which a prediction may be wrong: regions of real models, measured against it."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The parts of ΔT in µs per call."""

    before_a: Cost
    before_b: Cost
    after: Cost
    overlap: float
    compile: float
    charged: bool

    @property
    def launch(self) -> float:
        return self.before_a.overhead + self.before_b.overhead - self.after.overhead

    @property
    def work(self) -> float:
        """Saved memory, page-fault and instruction time, recomputation aside."""
        return _work(self.before_a) + _work(self.before_b) - _work(self.after) + self.recompute

    @property
    def recompute(self) -> float:
        """Time of evaluations that the merge repeats."""
        return self.after.recompute - self.before_a.recompute - self.before_b.recompute

    @property
    def spill(self) -> float:
        return self.after.spill - self.before_a.spill - self.before_b.spill

    @property
    def saved(self) -> float:
        """Time saved before compiling is paid for."""
        return self.launch + self.work - self.recompute - self.spill - self.overlap

    @property
    def uncertainty(self) -> float:
        """How far the model may be off; time that is lost or saved for sure (overlap, compiling) is not in it."""
        return MODEL_ERROR * (self.before_a.total + self.before_b.total)

    @property
    def delta(self) -> float:
        return self.saved - (self.compile if self.charged else 0.0)


def _work(c: Cost) -> float:
    return max(c.memory, c.compute) + c.fault


def measure(c: Candidate, facts: Facts) -> Gain:
    """Price the merge with the target's constants."""
    t = facts.target
    a, b = alone(c.graph, c.a, t), alone(c.graph, c.b, t)
    after = kernel_cost(c.graph, c.nodes, t, c.space, c.traffic)
    return Gain(a, b, after, _overlap(c, facts, a, b), _compile(c, facts), not facts.growing)


def check(c: Candidate, facts: Facts) -> Verdict:
    """Pass when ΔT is positive; the code names the part that turned the balance.

    A finished group (`c.b` empty) is held against its operators run one by one.
    """
    gain = measure(c, facts) if c.b else _whole(c, facts)
    evidence = (*_evidence(c, facts, gain), *_measured(c, facts))
    slower = _slower(c, facts, evidence)
    if slower is not None:
        return slower
    if gain.delta > 0:
        time = f"{figure(gain.delta)} µs per call{_launches_only(c, gain)}"
        refused = isinstance(c.space, Refusal)
        text = f"would save {time} if it were one kernel" if refused else f"saves {time}"
        return passed(GATE, text, evidence)
    if _worth_measuring(c, facts, gain):
        text = (
            f"predicted to cost {figure(-gain.delta)} µs per call, within the model's error of "
            f"{figure(gain.uncertainty)} µs: measured once it is built, and dropped if it loses (F405)"
        )
        return Verdict(GATE, "conditional", OK, text, (), evidence)
    return _refusal(c, facts, gain, evidence)


def _launches_only(c: Candidate, gain: Gain) -> str:
    """What time is saved by a merge that saves no bytes."""
    return "" if c.saved_bytes > 0 else f" ({figure(gain.launch)} µs of launches, no traffic)"


def _worth_measuring(c: Candidate, facts: Facts, gain: Gain) -> bool:
    """Whether a predicted loss is inside the model's error, on a machine that can measure it."""
    return not facts.measured.get(c.nodes) and gain.delta + _doubt(facts, gain) > 0


def _doubt(facts: Facts, gain: Gain) -> float:
    """The error of the model, where measuring can tell; 0 elsewhere."""
    return gain.uncertainty if facts.target.kind == "cpu" else 0.0


def _whole(c: Candidate, facts: Facts) -> Gain:
    t = facts.target
    before = [framework_cost(c.graph, u, t) for u in busy_users(c.graph, c.a)]
    after = kernel_cost(c.graph, c.a, t, c.space, c.traffic)
    paid = compile_us(1, len(c.a), t, facts.expected_calls * facts.copies)
    return Gain(_sum(before), Cost(), after, 0.0, paid, True)


def _sum(costs: list[Cost]) -> Cost:
    """Costs of launches one after another; memory takes each one's longer side, so that totals add up."""
    work = sum(max(c.memory, c.compute) for c in costs)
    return Cost(sum(c.overhead for c in costs), work, 0.0, sum(c.fault for c in costs))


def _measured(c: Candidate, facts: Facts) -> tuple[Evidence, ...]:
    times = facts.measured.get(c.nodes)
    if times is None:
        return ()
    return (Evidence.bound("measured time", times[0], times[1], "µs", "<", source="measured"),)


def _slower(c: Candidate, facts: Facts, evidence: tuple[Evidence, ...]) -> Verdict | None:
    """A measured loss outweighs any prediction."""
    fused, eager = facts.measured.get(c.nodes, (0.0, 0.0))
    if fused <= eager:
        return None
    text = (
        f"one kernel for {_names(c)} was measured at {figure(fused)} µs, the framework at {figure(eager)} µs"
    )
    flip = f"a kernel faster by {figure(fused - eager)} µs"
    return Verdict(GATE, "fail", "F405", text, (), evidence, flip)


def _refusal(c: Candidate, facts: Facts, gain: Gain, evidence: tuple[Evidence, ...]) -> Verdict:
    names = _names(c)
    if gain.saved > 0:
        calls = floor(gain.compile * facts.expected_calls / (gain.saved + _doubt(facts, gain))) + 1
        text = (
            f"compiling a kernel for {names} costs {figure(gain.compile)} µs per call over "
            f"{count(facts.expected_calls, 'expected call')} (in each of {CACHED_RUNS} runs that find it cached) "
            f"and saves {figure(gain.saved)} µs"
        )
        return Verdict(GATE, "fail", "F403", text, (), evidence, f"expect at least {count(calls, 'call')}")
    if gain.saved + gain.overlap > 0:
        text = (
            f"{names} fill a part of {facts.target.name} each and run side by side on two streams; "
            f"one kernel would lose {figure(gain.overlap)} µs of overlap and save "
            f"{figure(gain.saved + gain.overlap)} µs"
        )
        flip = "give each operator enough elements to fill the device"
        return Verdict(GATE, "fail", "F402", text, (), evidence, flip)
    if gain.saved + gain.recompute > 0:
        text = (
            f"one kernel for {names} would evaluate the smaller operand again for every row it is broadcast "
            f"to: {figure(gain.recompute)} µs, to save {figure(gain.saved + gain.recompute)} µs"
        )
        flip = "keep the small result in memory, or broadcast over fewer rows"
        return Verdict(GATE, "fail", "F404", text, (), evidence, flip)
    loss = f"{figure(-gain.delta)} µs per call"
    text = f"fusing {names} would cost {loss}"
    return Verdict(GATE, "fail", "F401", text, (), evidence, f"a saving larger by {loss}")


def _names(c: Candidate) -> str:
    if c.b:
        return " and ".join(c.label(min(s, key=c.graph.position.__getitem__)) for s in (c.a, c.b))
    busy = busy_users(c.graph, c.a)
    return f"{busy[0].label} … {busy[-1].label}"


def _overlap(c: Candidate, facts: Facts, a: Cost, b: Cost) -> float:
    """What two streams hide today: the shorter of two independent kernels that fit on the device together.

    Launches of two generated kernels overlap too; operators that the framework dispatches follow one another.
    """
    t = facts.target
    if t.kind != "gpu" or t.streams < 2 or c.between:
        return 0.0
    together = sum(blocks(c.graph, side) for side in (c.a, c.b))
    if together > t.sms:
        return 0.0
    kernels = all(len(busy_users(c.graph, side)) > 1 for side in (c.a, c.b))
    return min(a.total, b.total) if kernels else min(_work(a), _work(b))


def _compile(c: Candidate, facts: Facts) -> float:
    """Compile time per expected call, beyond what the unmerged kernels would cost."""
    t = facts.target
    paid = [len(s) for s in (c.a, c.b) if len(busy_users(c.graph, s)) > 1]
    return compile_us(1 - len(paid), len(c.nodes) - sum(paid), t, facts.expected_calls * facts.copies)


_PLACES = {"l2": "L2", "l3": "L3", "dram": "memory"}


def _evidence(c: Candidate, facts: Facts, gain: Gain) -> tuple[Evidence, ...]:
    levels = by_level(c.graph, c.traffic, facts.target)
    apart = c.apart_bytes
    return (
        Evidence("bytes apart", apart, unit="B"),
        Evidence("bytes fused", c.traffic.total, unit="B"),
        *(
            Evidence(f"of these from {_PLACES[k]}", n, unit="B")
            for k, n in levels.items()
            if k in _PLACES and n
        ),
        Evidence("bytes re-used on chip", levels["register"], unit="B"),
        Evidence("bytes saved", apart - c.traffic.total, unit="B"),
        Evidence("T_launch", gain.launch, unit="µs"),
        Evidence("T_mem", gain.work, unit="µs"),
        Evidence("T_recompute", gain.recompute, unit="µs"),
        Evidence("T_spill", gain.spill, unit="µs"),
        Evidence("T_overlap", gain.overlap, unit="µs"),
        Evidence("T_compile per call", gain.compile, unit="µs"),
        Evidence.bound("ΔT", gain.delta, 0.0, "µs", ">"),
    )
