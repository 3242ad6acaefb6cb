"""A program, a change to what is built of it, and what the verifier says: see the package's docstring."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fusebound.capture.torch import Captured, capture
from fusebound.codegen import jit, llvm, spec, tile
from fusebound.codegen.build import Kernel, compile_group, kernel_name
from fusebound.plan.greedy import plan as greedy
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.call import bind
from fusebound.verify.check import all_sets, verify

PLANNED_FOR = "cpu-avx512"
"""A table in which launches are dear, so that small shapes are fused too, on every machine."""
FOREVER = 10**9
"""Calls over which compiling is spread: here it always pays."""


class Subject:
    """A function captured, planned and built for some arguments, whose parts can be exchanged one by one; `given` are
    the arguments to verify on, where they are others."""

    def __init__(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], *, given: tuple[Any, ...] = (),
        numerics: str = "accurate",
    ) -> None:  # fmt: skip
        self.name, self.fn, self.args, self.given, self.numerics = name, fn, args, given or args, numerics

    @cached_property
    def captured(self) -> Captured:
        return capture(self.fn, self.args)

    @cached_property
    def plan(self) -> Plan:
        return greedy(
            self.captured.graph, target=get(PLANNED_FOR), numerics=self.numerics, expected_calls=FOREVER
        )

    @cached_property
    def kernels(self) -> Mapping[str, Kernel]:
        """The compiled kernels by group id."""
        return {
            g.id: compile_group(
                self.plan.graph, g.nodes, get("host"), name=kernel_name(g.users, g.id), numerics=self.numerics
            )
            for g in self.plan.groups
            if g.is_kernel
        }

    @property
    def source(self) -> str:
        """The tile programs as text."""
        return "\n".join(f"# {g}\n{k.source}" for g, k in self.kernels.items())

    def executable(self, **changed: Kernel) -> Executable:
        """The plan built, with some groups' kernels exchanged; it runs step by step, so that steps can be changed."""
        exe = Executable(self.plan, self.captured, {**self.kernels, **changed})
        exe._straight = None
        return exe


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change at one site. `group` is the id of the group whose `tile` program or LLVM `text` is changed, the only
    one by default; `wrap` takes the subject and returns what is called in place of its executable."""

    operator: str
    site: str
    tile: Callable[[tile.Kernel], tile.Kernel] | None = None
    text: Callable[[str], str] | None = None
    wrap: Callable[[Subject], Callable[..., Any]] | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state` is "caught" (the verifier fails it), "refused" (the tile program's spec does) or "survived"."""

    state: str
    reason: str = ""

    @property
    def caught(self) -> bool:
        return self.state != "survived"


def check_mutant(subject: Subject, mutation: Mutation, *, seed: int = 0) -> Verdict:
    """Build the changed program and verify it. Raises ValueError for a mutation that changes nothing and
    BuildError where LLVM rejects the code."""
    if mutation.wrap is not None:
        return _verified(subject, mutation.wrap(subject), seed)
    exe, program = _built(subject, mutation)
    if exe is None:
        return Verdict("refused", outside(subject, program))
    found = _verified(subject, exe, seed)
    faults = spec.faults(subject.plan.graph, program)
    return Verdict("refused", faults[0]) if faults and not found.caught else found


def changed_program(subject: Subject, mutation: Mutation) -> Callable[..., Any]:
    """What is called for a mutant; the verifier sees no plan. Its tile program must not leave its memory."""
    exe = mutation.wrap(subject) if mutation.wrap else _built(subject, mutation)[0]
    assert exe is not None
    return Plain(exe)


def _built(subject: Subject, mutation: Mutation) -> tuple[Executable | None, tile.Kernel]:
    """The executable with the changed kernel; none where the tile program leaves its memory."""
    group = mutation.group or next(iter(subject.kernels))
    kernel = subject.kernels[group]
    program = mutation.tile(kernel.program) if mutation.tile else kernel.program
    if outside(subject, program):
        return None, program
    changed = rebuilt(kernel, program, mutation.text)
    if changed.llvm == kernel.llvm:
        raise ValueError(f"{mutation.operator} at {mutation.site} of {subject.name} changes nothing")
    return subject.executable(**{group: changed}), program


def outside(subject: Subject, program: tile.Kernel) -> str:
    """Where a tile program leaves its memory: such a kernel is refused by the build and must not be run."""
    faults = spec.faults(subject.plan.graph, program)
    return next((f for f in faults if "reaches elements" in f), "")


def rebuilt(kernel: Kernel, program: tile.Kernel, text: Callable[[str], str] | None = None) -> Kernel:
    """A kernel compiled again from a changed tile program, with changed assembly."""
    code = llvm.emit(program, large="@llvm.prefetch" in kernel.llvm, isa=jit.host().isa)
    code = text(code) if text else code
    return replace(kernel, program=program, llvm=code, compiled=jit.compile_module(poisoned(code)))


_SCRATCH = re.compile(r"^  (%v\d+) = alloca (float|double|i\d+), i64 (\d+), align 64$", re.MULTILINE)
_SET = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"


def poisoned(code: str) -> str:
    """LLVM text in which scratch holds ones (NaN, -1, True) when a range of tiles begins, so that what is read without
    being written shows."""
    sizes = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}

    def filled(m: re.Match[str]) -> str:
        value = 1 if m[2] == "i8" else -1
        size = sizes[m[2]] * int(m[3])
        return f"{m[0]}\n  call void @llvm.memset.p0.i64(ptr {m[1]}, i8 {value}, i64 {size}, i1 false)"

    changed = _SCRATCH.sub(filled, code)
    return changed if changed == code else f"{changed}\n{_SET}\n"


class Plain:
    """An executable without its plan: what the groups store explains a failure and decides nothing, so that it need
    not be traced for every mutant."""

    def __init__(self, exe: Callable[..., Any]) -> None:
        self._exe = exe
        self.counted_draws: int = getattr(exe, "counted_draws", 0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._exe(*args, **kwargs)

    @property
    def poison(self) -> bool:
        return bool(getattr(self._exe, "poison", False))

    @poison.setter
    def poison(self, on: bool) -> None:
        if hasattr(self._exe, "poison"):
            self._exe.poison = on  # type: ignore[attr-defined]


def _verified(subject: Subject, exe: Callable[..., Any], seed: int) -> Verdict:
    """The sets of values one by one, up to the first that fails."""
    for kind in all_sets(bind(subject.captured, subject.given)):
        found = verify(
            Plain(exe), subject.captured, subject.given, numerics=subject.numerics, sets=(kind,), seed=seed
        )
        if not found.ok:
            return Verdict("caught", found.summary().split("FAILED: ")[-1])
    return Verdict("survived")
