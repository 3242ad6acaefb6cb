"""One MODEL on its way through the phases that a command asks for, each timed and announced once."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING

from fusebound.cli.options import Options
from fusebound.cli.progress import Phases
from fusebound.files import read_text

if TYPE_CHECKING:
    from fusebound.api.model import Model
    from fusebound.capture.torch import Captured
    from fusebound.ir.graph import Graph
    from fusebound.measure.bench import BenchResult
    from fusebound.plan.plan import Plan
    from fusebound.runtime.executable import Executable
    from fusebound.target.target import Target
    from fusebound.verify.result import VerifyResult

HOST = "host"


class Session:
    """Lazily: model → captured → plan → executable. Later phases are done only if they are asked for."""

    def __init__(self, spec: str, options: Options) -> None:
        from fusebound.api.model import require
        from fusebound.gates.rules import rules_of

        self.spec = spec
        self.options = options
        self.phases = Phases()
        if not options.debug:
            warnings.simplefilter("ignore")
        # Files that cannot be read are told of before anything is captured, or slow to import.
        self.rules = rules_of(options.rules)
        if options.plan_file is not None:
            read_text(options.plan_file, "the plan")
        require(spec, shapes=options.shape, dtypes=options.dtype)

    @cached_property
    def model(self) -> Model:
        """The program and its example inputs."""
        from fusebound.api.model import resolve

        with self.phases("load"):
            if self.options.threads:
                set_threads(self.options.threads)
            o = self.options
            return resolve(self.spec, shapes=o.shape, dtypes=o.dtype, trust=o.trust)

    @cached_property
    def captured(self) -> Captured:
        """The graph of the program; of a saved plan, the graph that the plan carries."""
        from fusebound.api.pipeline import capture_model

        model = self.model
        with self.phases("capture"):
            return capture_model(model)

    @cached_property
    def target(self) -> Target:
        """The hardware that plans are made for."""
        from fusebound.target import get

        return get(self.options.hardware)

    @cached_property
    def plan(self) -> Plan:
        """The plan that the options name or that MODEL is, or else a new one."""
        if self.options.plan_file is not None:
            from fusebound.plan.plan import Plan

            return Plan.load(self.options.plan_file, self.captured.graph)
        if self.model.plan is not None:
            return self.model.plan
        graph = self.captured.graph
        with self.phases("plan"):
            return self._planned(graph)

    def _planned(self, graph: Graph) -> Plan:
        from fusebound.plan.greedy import plan
        from fusebound.plan.unheeded import unheeded

        o = self.options
        made = plan(
            graph,
            policy=o.policy,
            numerics=o.numerics,
            target=self.target,
            tau=o.tau,
            expected_calls=o.expected_calls,
            rules=self.rules,
        )
        for text in unheeded(made, self.target):
            self.phases.say(text)
        return made

    def build(self, model: Model) -> tuple[Executable, Captured]:
        """Another model, planned by the same options and compiled; no phase is announced."""
        from fusebound.api.pipeline import build_plan, capture_model

        captured = capture_model(model)
        return build_plan(self._planned(captured.graph), captured), captured

    @cached_property
    def executable(self) -> Executable:
        """The compiled plan; raises UsageError (E131) for a target whose kernels cannot run here."""
        from fusebound.api.pipeline import build_plan
        from fusebound.codegen.cache import CacheNotice

        plan, captured = self.plan, self.captured
        with self.phases("compile"), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", CacheNotice)
            built = build_plan(plan, captured)
        for notice in heard:
            self.phases.say(str(notice.message))
        return built

    def verify(self, budget_s: float = 60.0) -> VerifyResult:
        """Check the executable's numbers; no set of values is begun after `budget_s` seconds."""
        from fusebound.api.pipeline import verify_built

        executable, model = self.executable, self.model
        with self.phases("verify"):
            return verify_built(executable, self.captured, model.args, model.kwargs, budget_s)

    def verify_inductor(self, budget_s: float = 60.0) -> VerifyResult:
        """Check what Inductor makes of the model's function; raises UsageError where it makes nothing of it."""
        from fusebound.api.bisection import by_inductor
        from fusebound.verify.check import verify

        captured, model = self.captured, self.model
        with self.phases("inductor"):
            compiled = by_inductor(captured.fn, model.args, model.kwargs)
        with self.phases("verify"):
            return verify(compiled, captured, model.args, model.kwargs, budget_s=budget_s)

    def bench(self) -> BenchResult:
        """Measure the executable against what the options name, eager by default."""
        from fusebound.api.pipeline import bench_built

        executable, model, o = self.executable, self.model, self.options
        with self.phases("measure"):
            return bench_built(
                executable, self.captured, model.args, model.kwargs, against=o.against, rounds=o.rounds
            )

    def calibrate_first(self) -> None:
        """Measure this machine quickly if nobody has, so that predictions mean something."""
        if self.options.hardware != HOST or self.target.calibrated:
            return
        from fusebound.measure.calibrate import calibrate

        self.phases.say("no calibration record of this machine: a quick one first, a few seconds")
        with self.phases("calibrate"):
            record = calibrate(quick=True)
        for doubt in record.doubts:
            self.phases.say(f"warning: {doubt}")
        del self.target


def set_threads(threads: int) -> None:
    """Use this many threads in torch and in kernels."""
    import os

    import torch

    torch.set_num_threads(threads)
    os.environ["FB_THREADS"] = str(threads)
