"""`fb.compile`: capture, plan and build at the first call of each kind; run machine code afterwards."""

from __future__ import annotations

import functools
import operator
import sys
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from fusebound import settings
from fusebound.analysis.alias import is_write_back
from fusebound.analysis.tau import Tau
from fusebound.capture.overlap import separated
from fusebound.capture.torch import Captured, capture
from fusebound.capture.wrap import Numbered, unwrapped
from fusebound.engine import guards, numbers
from fusebound.engine.build import build
from fusebound.engine.contest import loses
from fusebound.engine.places import Surroundings
from fusebound.engine.rehearsal import rehearse
from fusebound.engine.route import Route, make, not_larger
from fusebound.engine.settle import settle
from fusebound.engine.surroundings import surroundings
from fusebound.errors import CaptureError, FallbackError, FuseboundError
from fusebound.gates.rules import NO_RULES, RuleNotice, Rules
from fusebound.plan.greedy import plan as make_plan
from fusebound.plan.plan import Plan
from fusebound.plan.unheeded import unheeded
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.memory import Copies
from fusebound.words import count

SPECIALIZATIONS = 16
"""Kinds of call that one function is compiled for; further kinds run eagerly."""


UNASKED = 15
"""Calls without gradients after one that is faster in eager, before it is asked again whether they are larger."""


ROUTES = 4
"""Short ways that are tried, one after another, before the long one."""


UNFUSED = "policy none fuses nothing"
WORTHLESS = "measured: no group of operators is worth a kernel"
COPYING = "predicted: eager writes parts of tensors in place, which a plan would copy whole"
SLOWER = "measured: eager is faster on these inputs"

_HERE = str(Path(__file__).parent)
_is_compiling, _records = torch.compiler.is_compiling, torch.is_grad_enabled

GRADIENTS = "gradients are recorded (kernels are for inference: call under torch.no_grad())"


class EagerNotice(UserWarning):
    """Said once per function and reason: this call runs eagerly, and why."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a function is compiled; see `fusebound.compile`."""

    policy: str = "tile"
    numerics: str = "accurate"
    hardware: str = "host"
    expected_calls: int = 1000
    tau: Tau | None = None
    rules: Rules = NO_RULES
    strict: bool = False
    contest: bool = True


@dataclass(frozen=True, slots=True)
class Specialization:
    """One kind of call: what was built for it, or None where eager runs, with the reason.

    `chosen` says that eager runs because it is faster, or was asked for: nothing to tell anybody.
    """

    captured: Captured | None
    executable: Executable | None
    written: tuple[int, ...]
    reason: str
    chosen: bool = False


class CompiledFunction:
    """What `fb.compile` returns. `plan`, `executable` and `reason` are those of the latest call."""

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self.fn = fn = unwrapped(fn)
        self.options = options
        self._table: dict[guards.Key, Specialization] = {}
        self._lock = threading.RLock()
        self._said: set[str] = set()
        self._floats: dict[tuple[int, ...], tuple[float, ...]] = {}
        self._latest: Specialization | None = None
        self._routes: list[tuple[Route, Specialization]] = []
        self._unasked = 0
        self._eager_form: tuple[Callable[[tuple[Any, ...]], bool], Specialization] | None = None
        self._disabled = settings.current().disable
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_compiling():  # it becomes a part of what is traced around it
            return self.fn(*args, **kwargs)
        if self._unasked > 0 and not _records():
            self._unasked -= 1
            return self.fn(*args, **kwargs)
        if not kwargs:
            for route, spec in self._routes:
                if route.admits(args):
                    self._latest = spec
                    return route.run(args)
        form = self._eager_form
        if form is not None and form[0](args):
            return self._original(form[1], args, kwargs)
        return self._slow(args, kwargs)

    def _original(self, spec: Specialization, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is known to be faster in eager, and so are the next ones where no kind of call is not."""
        self._latest = spec
        self._unasked = 0 if self._routes else UNASKED
        result = self.fn(*args, **kwargs)
        if torch.is_grad_enabled() and _recorded(result):
            self._latest, self._unasked = RECORDED, 0
        return result

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._disabled:
            self._latest = _refused("FB_DISABLE is set")
            return self.fn(*args, **kwargs)
        if not kwargs and self._for_all_floats(args):
            return self(*args)
        found = self._find(args, kwargs)
        if isinstance(found, str):
            return self._eager(_refused(found), args, kwargs)
        spec, around = found
        if spec.written and guards.has_frozen(args, kwargs):
            return self._eager(_refused("it writes, and an argument is an inference tensor"), args, kwargs)
        self._latest = spec
        self._add_route(spec, around, args, kwargs)
        if spec.executable is None or spec.captured is None:
            return self._eager(spec, args, kwargs)
        inputs = spec.captured.bind(args, kwargs)
        if broken := spec.executable.overlapping(inputs):
            return self._eager(_refused(broken), args, kwargs)
        return spec.captured.unflatten(spec.executable.run(inputs))

    def _for_all_floats(self, args: tuple[Any, ...]) -> bool:
        """At the second value of the floats among the arguments, make a route for all values; whether there is one."""
        at = numbers.places(args)
        values = tuple(args[i] for i in at)
        with self._lock:
            if self._floats.setdefault(at, values) in (values, ()) or not at:
                return False
            self._floats[at] = ()
            inner = CompiledFunction(Numbered(self.fn, at), replace(self.options, strict=False))
            found = inner._find(numbers.as_tensors(args, at), {})
            if isinstance(found, str) or found[0].executable is None:
                return False

            def run(given: tuple[Any, ...]) -> Any:
                result = inner(*numbers.as_tensors(given, at))
                self._latest = inner._latest
                return result

            route = Route(numbers.admits(len(args), at), run)
            self._routes = [(route, found[0]), *self._routes[: ROUTES - 1]]
            return True

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Specialization, Surroundings] | str:
        """What this kind of call is compiled to, at its first call anew; or why it runs eagerly."""
        reason = self._eager_reason(args, kwargs)
        if reason:
            return reason
        around = surroundings(self.fn)
        if around.beyond or guards.wants_grad(around):
            return around.beyond or GRADIENTS
        if name := guards.carried(around, args, kwargs):
            return f"an argument carries {name!r}, an attribute that the function may read"
        if around.compares and guards.repeats(args, kwargs):
            return "a tensor is given twice, and the function asks which object it is given (`is`, `id`)"
        key = guards.call_key(around, args, kwargs)
        if key is None:
            return "an argument is not a plain CPU tensor or a Python constant"
        spec = self._table.get(key)
        return self._specialize(key, around, args, kwargs) if spec is None else spec, around

    def _add_route(
        self, spec: Specialization, around: Surroundings, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Let further calls of this kind take the short way, most recent first.

        Where eager was faster, the user's function itself is right for any call that is not much larger.
        """
        if spec.chosen:
            self._eager_form = not_larger(args), spec
        if kwargs or spec.executable is None or spec.captured is None:
            return
        route = make(around, spec.captured, spec.executable, spec.written, args)
        if route is not None:
            others = [(r, s) for r, s in self._routes if s is not spec]
            self._routes = [(route, spec), *others[: ROUTES - 1]]

    def __get__(self, owner: object, cls: type | None = None) -> Any:
        """As a method of a class, it takes the object first, where the user's function would."""
        is_method = owner is not None and isinstance(self.fn, types.FunctionType)
        return types.MethodType(self, owner) if is_method else self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """One that its module names is pickled by that name, as functions are; others are compiled anew: machine code
        belongs to a process, parameters to a module."""
        return _global_name(self) or (type(self), self._made_from())

    def _made_from(self) -> tuple[Any, ...]:
        return self.fn, self.options

    @property
    def executable(self) -> Executable | None:
        """What the latest call ran; None before the first call and where eager runs."""
        return self._latest.executable if self._latest else None

    @property
    def plan(self) -> Plan | None:
        """The plan of what the latest call ran; None where `executable` is."""
        return self.executable.plan if self.executable else None

    @property
    def reason(self) -> str:
        """Why the latest call ran eagerly; empty where it did not."""
        return self._latest.reason if self._latest else ""

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        if self._latest is None:
            return f"<fusebound {name}: not called yet>"
        exe = self._latest.executable
        what = count(len(exe.kernels), "kernel") if exe else f"eager, {self._latest.reason}"
        return f"<fusebound {name}: {what}>"

    def _eager_reason(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """What can be told without a look at the function's surroundings."""
        if not guards.dispatch_is_plain():
            return "a dispatch mode, autocast or a transform is active"
        return GRADIENTS if guards.records_grad(self.fn, args, kwargs) else ""

    def _eager(self, spec: Specialization, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self._latest = spec
        if not spec.chosen:
            self._say(spec.reason)
        return self.fn(*args, **kwargs)

    def _say(self, reason: str) -> None:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        if self.options.strict:
            raise FallbackError(f"{name} would run eagerly: {reason}")
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(f"{name} runs eagerly: {reason}", EagerNotice, stacklevel=callers_level())

    def _specialize(
        self, key: guards.Key, around: Surroundings, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Specialization:
        with self._lock:
            found = self._table.get(key)
            if found is not None:
                return found
            if len(self._table) >= SPECIALIZATIONS:
                return _refused(f"it was compiled for {SPECIALIZATIONS} kinds of call already")
            spec = self._make(around, args, kwargs)
            self._table[key] = spec
            return spec

    def _make(self, around: Surroundings, args: Sequence[Any], kwargs: dict[str, Any]) -> Specialization:
        state = [*self.fn.parameters(), *self.fn.buffers()] if isinstance(self.fn, torch.nn.Module) else []
        args, kwargs, _ = separated(tuple(args), kwargs, state)
        try:
            captured = capture(self.fn, args, kwargs)
            executable = self._build(captured, args, kwargs)
        except CaptureError as error:
            return _refused(str(error))
        except FuseboundError as error:
            if self.options.strict:
                raise
            return _refused(str(error))
        targets = {m.target for m in captured.graph.mutations}
        written = tuple(i for i, v in enumerate(captured.graph.input_ids) if v in targets)
        if not executable.kernels:
            planned = executable.plan.policy == self.options.policy
            why = UNFUSED if self.options.policy == "none" else WORTHLESS if planned else COPYING
            return Specialization(captured, None, (), why, chosen=True)
        if (differs := rehearse(executable, captured, args, kwargs)) is not None:
            return _refused(f"at its rehearsal, {differs.text}")
        spec = Specialization(captured, executable, written, "")
        # Which generator a function draws from must not depend on a stopwatch.
        if self.options.contest and not executable.counted_draws:
            given = _to_be_timed(captured, written, args, kwargs)
            if given is not None and loses(_form(spec, around, *given), captured, *given):
                return Specialization(captured, None, (), SLOWER, chosen=True)
        return spec

    def _build(self, captured: Captured, args: Sequence[Any], kwargs: dict[str, Any]) -> Executable:
        o = self.options
        target = get(o.hardware)
        plan = make_plan(
            captured.graph, target=target, policy=o.policy, numerics=o.numerics, tau=o.tau, rules=o.rules,
            expected_calls=o.expected_calls,
        )  # fmt: skip
        for text in unheeded(plan, target):
            if text not in self._said:
                self._said.add(text)
                warnings.warn(text, RuleNotice, stacklevel=callers_level())
        if o.contest and not o.rules.require and _copies_more(plan):
            return build(make_plan(captured.graph, target=target, policy="none"), captured, target=target)
        if not o.contest:
            return build(plan, captured, target=target)
        return settle(plan, captured, args, kwargs, target=target)


def _global_name(f: CompiledFunction) -> str:
    """The name under which a module holds it, in the place of its own function; empty where none does."""
    name = getattr(f, "__qualname__", "")
    try:
        held = operator.attrgetter(name)(sys.modules[f.__module__])
    except (KeyError, AttributeError):
        return ""
    return name if held is f else ""


def _refused(reason: str) -> Specialization:
    return Specialization(None, None, (), reason)


RECORDED = _refused(GRADIENTS)


def _recorded(result: Any) -> bool:
    """Whether autograd recorded a call, told by what it returned: that is cheaper than a look at all parameters."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(isinstance(r, torch.Tensor) and r.requires_grad for r in results)


def callers_level() -> int:
    """How far up the stack the user's own call is, for a warning of the function that asks."""
    level, frame = 0, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    return level + 1


def _copies_more(plan: Plan) -> bool:
    """Whether a plan is slower than eager for the whole tensors that it makes where eager writes through views."""
    g = plan.graph
    return plan.predicted_us > plan.eager_us and any(is_write_back(g, u) for u in g.user_ops)


def _to_be_timed(
    captured: Captured, written: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments, as copies where the function writes some; None where it writes state, which has no copy."""
    if not written:
        return tuple(args), kwargs
    if any(captured.graph.inputs[i].kind != "user" for i in written):
        return None
    copy = functools.cache(Copies().of)  # one object stays one object
    return tree_map_only(torch.Tensor, copy, (tuple(args), kwargs))


def _form(
    spec: Specialization, around: Surroundings, args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    """The call as it will be made from now on, guards included."""
    assert spec.captured is not None
    assert spec.executable is not None
    exe, given = spec.executable, tuple(args)
    route = None if kwargs else make(around, spec.captured, exe, spec.written, given)
    if route is None:
        return lambda: exe(*given, **kwargs)
    return lambda: route.run(given) if route.admits(given) else exe(*given)


def compile(fn: Callable[..., Any], options: Options) -> CompiledFunction:
    """Wrap a function or module; nothing is compiled before the first call."""
    return CompiledFunction(fn, options)
