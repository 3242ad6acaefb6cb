"""One call run three ways, eager, fp64 and fused, on the same memory, and its outputs compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fusebound.errors import UsageError
from fusebound.verify.bits import same_bits
from fusebound.verify.call import Capture, Leaf, Snapshot, bind, has_memory, program_of, storage_key, tensors
from fusebound.verify.compare import Comparer, Output, is_double
from fusebound.verify.draws import CountedDraws
from fusebound.verify.exact import constants, transcendentals
from fusebound.verify.extended import Extended, NoReference, split
from fusebound.verify.held import NOTHING_HELD, Held, beside, mutated
from fusebound.verify.memory import Copies, keep, shared, strayed
from fusebound.verify.oracle import Reference, reference
from fusebound.words import count

_SHAKES = 8
_REFUSALS = ("E123", "E204")
"""Codes of a program that takes no arguments of another layout, or none that share memory."""

Seed = int | torch.Tensor
"""Where random numbers start: a seed, or a state of torch's default generator."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One set of values: outputs with errors, or what was raised, or why nothing was judged; faults fail, notes do
    not."""

    outputs: tuple[Output, ...] = ()
    raised: str = ""
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run left: flat outputs (copies), the changed inputs by position (copies), or the exception; what each
    output shares its memory with, and what the run did to memory that is not its own."""

    outputs: tuple[Any, ...] = ()
    changed: dict[int, torch.Tensor] = field(default_factory=dict)
    error: Exception | None = None
    shared: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def refused(self) -> str:
        """The code by which the program said that it was not built for such arguments; empty where it did not."""
        return self.error.code if isinstance(self.error, UsageError) and self.error.code in _REFUSALS else ""

    def laid_like(self, other: Outcome) -> Outcome:
        """The same results with the layouts and sharing of another run's; as they are where that one has more or fewer,
        for the comparison to say."""
        if len(self.outputs) != len(other.outputs):
            return self
        pairs = zip(self.outputs, other.outputs, strict=True)
        return replace(self, outputs=tuple(_laid_like(a, b) for a, b in pairs), shared=other.shared)


class Program:
    """A built program, eager, and the captured function, on arguments that this object may overwrite."""

    def __init__(
        self,
        exe: Callable[..., object],
        eager: Callable[..., object],
        captured: Capture,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: tuple[Leaf, ...],
        held: Held = NOTHING_HELD,
    ) -> None:
        self._exe, self._eager, self._captured = exe, eager, captured
        self._args, self._kwargs = args, kwargs
        self.leaves = leaves
        self.held = held
        self._written: Collection[int] | None = None
        self._extended: Extended | None = None
        self._kept = keep((), (), ())
        self.settle()
        self.transcendentals = transcendentals(program_of(captured))
        self.constants = constants(program_of(captured))

    def settle(self) -> None:
        """Take the present values of the inputs as those that every run starts from."""
        self._before = Snapshot(tensors(self.leaves))

    def on(self, inputs: Mapping[int, torch.Tensor], written: Collection[int] | None = None) -> Program:
        """The same program on other tensors for the user's inputs at some positions; the others are shared. `written`
        are those that it writes, where they share memory with others."""
        swap = {id(self.leaves[i].value): t for i, t in inputs.items()}
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: swap.get(id(t), t), (self._args, self._kwargs)
        )
        leaves = bind(self._captured, args, kwargs)
        other = Program(self._exe, self._eager, self._captured, args, kwargs, leaves, self.held)
        other._written = written
        return other

    def fused(self, seed: Seed) -> Outcome:
        """Run the built program; inputs hold their values again afterwards."""
        return self._run(self._exe, seed)

    def eager(self, seed: Seed) -> Outcome:
        """Run the user's function; inputs hold their values again afterwards."""
        return self._run(self._eager, seed, self._same_draws(exact=False))

    def _same_draws(self, *, exact: bool) -> AbstractContextManager[object]:
        """Where the built program draws by counter, what follows draws the same numbers."""
        expected = getattr(self._exe, "counted_draws", 0)
        return CountedDraws(expected, exact=exact) if expected else nullcontext()

    def _run(
        self, fn: Callable[..., object], seed: Seed, drawing: AbstractContextManager[object] | None = None
    ) -> Outcome:
        _generate_from(seed)
        try:
            with torch.no_grad(), drawing or nullcontext():
                flat = pytree.tree_leaves(fn(*self._args, **self._kwargs))
        except Exception as error:
            self._before.restore()
            return Outcome(error=error)
        outputs = tuple(_copy(v) for v in flat)
        touched = self._before.changed()
        changed = {
            i: _copy(leaf.value)
            for i, leaf in enumerate(self.leaves)
            if leaf.is_tensor and has_memory(leaf.value) and storage_key(leaf.value) in touched
        }
        faults = self._trespasses(touched)
        if fn is self._exe:
            self._kept = keep(flat, outputs, self.leaves)
        self._before.restore(touched)
        return Outcome(outputs, changed, None, shared(flat, self.leaves), faults)

    def _trespasses(self, touched: set[int]) -> tuple[str, ...]:
        """Memory of others that the run has changed: around its inputs, and the results of the call before."""
        strays = any(strayed(self.leaves, *self._before.both(key)) for key in touched)
        found = ("memory around an input was written",) * strays
        return found + ("the results of an earlier call were overwritten",) * self._kept.overwritten

    def compare(self, seed: Seed) -> Comparison:
        """Run all three on the present values of the inputs."""
        return self.judge(self.eager(seed), self.fused(seed), seed)

    def judge(self, eager: Outcome, fused: Outcome, seed: Seed) -> Comparison:
        """Two runs on the present values of the inputs against each other and the reference."""
        if eager.error or fused.error:
            return _compare_errors(eager.error, fused.error)
        exact, notes = self._exact(eager, seed)
        return self._compared(eager, fused, exact, notes, seed)

    def apart(self, eager: Outcome, fused: Outcome, seed: Seed) -> Comparison:
        """Two runs against each other alone: eager's values stand in for the reference."""
        if eager.error or fused.error:
            return _compare_errors(eager.error, fused.error)
        return self._compared(eager, fused, Reference(eager.outputs, ()), (), seed)

    def _exact(self, eager: Outcome, seed: Seed) -> tuple[Reference, tuple[str, ...]]:
        """The reference, with outputs of float64 in long double where that is possible, and what is
        missing, a note each."""
        _generate_from(seed)
        try:
            with self._same_draws(exact=True):
                exact = reference(self._captured, self.leaves)
        except Exception as why:
            note = f"no fp64 reference, compared with eager: {_first_line(why)}"
            return Reference(eager.outputs, ()), (note,)
        notes = (f"the fp64 reference runs {', '.join(exact.narrow)} in the user's types",) * bool(
            exact.narrow
        )
        if not any(is_double(v) for v in (*eager.outputs, *eager.changed.values())):
            return exact, notes
        try:
            self._extended = self._extended or Extended(self._captured)
            _generate_from(seed)
            with self._same_draws(exact=True):
                outputs, changed = self._extended(self.leaves)
        except NoReference as why:
            note = f"no reference wider than float64, compared with eager: {_first_line(why)}"
            return exact, (*notes, note)
        wide = {i: split(v) for i, v in changed.items()}
        inputs = tuple(wide.get(i, v) for i, v in enumerate(exact.inputs))
        return Reference(tuple(split(v) for v in outputs), inputs), ()

    def _compared(
        self, eager: Outcome, fused: Outcome, exact: Reference, notes: tuple[str, ...], seed: Seed
    ) -> Comparison:
        if len(eager.outputs) != len(fused.outputs):
            return Comparison(
                faults=(f"{count(len(fused.outputs), 'output')} where eager has {len(eager.outputs)}",)
            )
        comparer = Comparer(cache(lambda: self._shaken(seed)), self.held)
        comparer.faults += fused.faults
        for i, (mine, theirs) in enumerate(zip(fused.shared, eager.shared, strict=True)):
            if mine != theirs:
                has = f"output {i} shares memory with {mine or 'nothing'}"
                comparer.faults.append(f"{has}, in eager with {theirs or 'nothing'}")
        for i, (f, e, x) in enumerate(zip(fused.outputs, eager.outputs, exact.outputs, strict=True)):
            comparer.add(f"output {i}", f, e, x, lambda r, i=i: r.outputs[i])
        for i in sorted(eager.changed.keys() | fused.changed.keys()):
            leaf = self.leaves[i]
            if i not in eager.changed:
                if not same_bits(fused.changed[i], leaf.value):
                    comparer.faults.append(
                        f"{leaf.kind} input {leaf.name!r} was changed, which eager does not"
                    )
                continue
            after = fused.changed.get(i, leaf.value)
            wanted = exact.inputs[i] if exact.inputs else None
            name = mutated(leaf) if self._written is None or i in self._written else beside(leaf)
            comparer.add(name, after, eager.changed[i], wanted, lambda r, i=i: r.inputs[i])
        return Comparison(tuple(comparer.outputs), "", tuple(comparer.faults), (*notes, *comparer.notes))

    def _shaken(self, seed: Seed) -> list[Reference]:
        """References whose intermediates moved by an ULP, in several directions; without those that raise then."""
        found: list[Reference] = []
        for i in range(_SHAKES):
            _generate_from(seed)
            with suppress(Exception), self._same_draws(exact=True):
                found.append(reference(self._captured, self.leaves, torch.Generator().manual_seed(i)))
        return found


def _generate_from(seed: Seed) -> None:
    if isinstance(seed, int):
        torch.default_generator.manual_seed(seed)
    else:
        torch.set_rng_state(seed)


def _first_line(error: Exception) -> str:
    """The framework's interpreter appends a trace of its own to every message."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _compare_errors(eager: Exception | None, fused: Exception | None) -> Comparison:
    if eager is None:
        return Comparison(faults=(f"raises {type(fused).__name__} where eager does not: {fused}",))
    if fused is None:
        return Comparison(faults=(f"does not raise where eager raises {type(eager).__name__}",))
    if not isinstance(fused, type(eager)):
        return Comparison(
            faults=(f"raises {type(fused).__name__} where eager raises {type(eager).__name__}",)
        )
    return Comparison(raised=type(eager).__name__)


def _copy(value: Any) -> Any:
    """A copy with the same strides; views of one another become independent."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if not has_memory(value):
        return value.clone()
    flat = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    low = value.storage_offset()
    held = flat[low : low + span].clone() if value.numel() else flat[:0].clone()
    return held.as_strided(value.shape, value.stride())


def _laid_like(value: Any, other: Any) -> Any:
    """`value` with the strides of `other`, where they are of one shape and no element of `other` stands for several."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return value
    if value.shape != other.shape or not has_memory(other) or 0 in other.stride():
        return value
    return torch.empty_strided(other.shape, other.stride(), dtype=value.dtype).copy_(value)


def own_copies(
    captured: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with copied tensors, which keep strides and shared memory and have a guard behind it; tensors that
    share memory with parameters stay as they are."""
    held = {storage_key(t) for t in tensors(_state_of(bind(captured, args, kwargs))) if has_memory(t)}
    copies = Copies()

    def copy(t: torch.Tensor) -> torch.Tensor:
        if not has_memory(t) or storage_key(t) in held or type(t) is not torch.Tensor:
            return t
        return copies.of(t).requires_grad_(t.requires_grad)

    copied_args, copied_kwargs = pytree.tree_map_only(torch.Tensor, copy, (tuple(args), dict(kwargs)))
    return copied_args, copied_kwargs


def _state_of(leaves: Sequence[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.kind != "user"]
