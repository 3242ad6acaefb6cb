"""torch's own operator database (`op_db`) against fusebound: every sample, read by a cheap exact operator.

A case is one sample: the operator, then `neg` (or `logical_not`) of each result, twice, so that a kernel of
several operators holds it. Cases of one operator are captured together, which costs half as much; where they disagree
with eager they are run again one by one.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.errors import CaptureError, FuseboundError
from fusebound.ir.graph import Ref
from fusebound.ir.spec import verify as verify_graph
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get
from fusebound.verify.call import bind
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN
from fusebound.verify.program import Program, own_copies
from fusebound.verify.tolerance import rule

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
)  # fmt: skip
PLANNED_FOR = "cpu-avx512"
"""A table in which launches are dear, so that samples of a few elements are fused too."""
CALLS = 10**9
"""Calls over which compiling is spread: here it always pays."""
TOGETHER, TENSORS = 16, 64
"""Cases that are captured as one function, and their tensors: beyond, tracing slows down."""

Function = Callable[..., Any]


def _unseeded(fn: Function, *args: Any, **kwargs: Any) -> Any:
    """A call of torch's `wrapper_set_seed` without the seed, which no graph holds."""
    return fn(*args, **kwargs)


# The samples' functions look it up when they run.
invocations.wrapper_set_seed = _unseeded  # pyright: ignore[reportPrivateImportUsage]


@dataclass(frozen=True)
class Case:
    """One sample of one operator variant in one type: a function of the sample's tensors."""

    op: str
    variant: str
    dtype: torch.dtype
    number: int
    fn: Function
    args: tuple[torch.Tensor, ...]

    def __str__(self) -> str:
        return f"{self.op} ({self.variant}, {str(self.dtype)[6:]}, sample {self.number})"


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `why` says why no kernel of several operators held the operator, if none did;
    `fault` what differs from eager."""

    case: Case
    why: str
    fault: str


def variants(op: OpInfo) -> dict[str, Function]:
    """The forms in which a user may write the operator; for `foreach` lists some of the three are the same."""
    found: dict[str, Function] = {}
    forms = {"function": op.op, "method": op.method_variant, "in-place": op.inplace_variant}
    for name, form in forms.items():
        if form is not None and form not in found.values():
            found[name] = form
    return found


UNDEFINED = frozenset(
    (
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        *("resize_", "resize_as_"),
    )
)
"""Operators whose results have no values."""


def operators() -> dict[str, OpInfo]:
    """All operators whose results have values by name, those over lists of tensors, which take longest, first."""
    lists = (*foreach_unary_op_db, *foreach_binary_op_db, *foreach_pointwise_op_db, *foreach_reduce_op_db)
    rest = sorted((o for o in op_db if o.name not in UNDEFINED), key=full_name)
    return {full_name(o): o for o in (*lists, *rest)}


def full_name(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def cases(op: OpInfo, dtype: torch.dtype, variant: str) -> list[Case]:
    """All samples of one variant, the same in every run."""
    torch.manual_seed(0)
    random.seed(0)
    form = variants(op)[variant]
    samples = enumerate(op.sample_inputs("cpu", dtype, requires_grad=False))
    return [Case(full_name(op), variant, dtype, i, *program(form, s)) for i, s in samples if runs(form, s)]


def runs(form: Function, sample: SampleInput) -> bool:
    """Whether eager runs the form on a sample and reads its results, and all tensors are real and strided."""
    fn, args = program(form, sample)
    own = [t.clone() for t in args]
    try:
        with torch.no_grad():
            results = fn(*own)
    except Exception:
        return False
    values = [v for v in pytree.tree_leaves((own, results)) if isinstance(v, torch.Tensor)]
    return not any(v.is_complex() or v.layout != torch.strided for v in values)


def program(form: Function, sample: SampleInput) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """A function of the sample's tensors that applies the operator and reads every result."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def fn(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for i, t in zip(places, given, strict=True):
            filled[i] = t
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        result = form(first, *args, **kwargs)
        return pytree.tree_map(read, first if result is None else result)

    return fn, tuple(leaves[i] for i in places)


def read(x: Any) -> Any:
    """Two exact operators on a result: a view and one reader alone would be no kernel of several operators."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.logical_not().logical_not() if x.dtype == torch.bool else x.neg().neg()


def check(found: Sequence[Case]) -> list[Outcome]:
    """Capture, plan, build and compare cases."""
    return [o for batch in _batches(found) for o in _checked(batch)]


def _batches(found: Sequence[Case]) -> Iterator[list[Case]]:
    batch: list[Case] = []
    for case in found:
        tensors = sum(len(c.args) for c in (*batch, case))
        if batch and (len(batch) == TOGETHER or tensors > TENSORS):
            yield batch
            batch = []
        batch.append(case)
    if batch:
        yield batch


def _checked(batch: Sequence[Case]) -> list[Outcome]:
    """The outcomes of a batch; where something differs, of each case alone."""
    try:
        found = _together(batch)
    except Exception as error:
        if len(batch) > 1:
            return [o for c in batch for o in _checked([c])]
        if isinstance(error, CaptureError) and not _own(error.__cause__):
            return [Outcome(batch[0], error.code, "")]
        return [Outcome(batch[0], "", f"{type(error).__name__}: {error}")]
    if len(batch) > 1 and any(o.fault for o in found):
        return [o for c in batch for o in _checked([c])]
    return found


def _own(cause: BaseException | None) -> bool:
    """Whether an error while capturing comes from fusebound's code: not from the framework's, nor a refusal."""
    if isinstance(cause, FuseboundError):
        return False
    files = [f.filename for f in traceback.extract_tb(cause.__traceback__)] if cause is not None else []
    return bool(files) and ("fusebound" in files[-1] or any("fusebound/capture/lower" in f for f in files))


def _together(batch: Sequence[Case]) -> list[Outcome]:
    ends = [sum(len(c.args) for c in batch[: i + 1]) for i in range(len(batch))]

    def fn(*args: torch.Tensor) -> list[Any]:
        return [c.fn(*args[end - len(c.args) : end]) for c, end in zip(batch, ends, strict=True)]

    args = tuple(t for c in batch for t in c.args)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        captured = capture(fn, args)
        verify_graph(captured.graph)
        made = plan(captured.graph, target=get(PLANNED_FOR), expected_calls=CALLS)
        fault = compare(captured, made, args)
    assert captured.out_spec is not None
    returned = pytree.tree_unflatten(captured.returns, captured.out_spec)
    return [Outcome(c, apart(made, r), fault) for c, r in zip(batch, returned, strict=True)]


def apart(made: Plan, returned: Any) -> str:
    """Why the operator that gave a case's results is in no kernel with their readers, or nothing."""
    return " ".join(sorted({why for r in pytree.tree_leaves(returned) if (why := _why(made, r))}))


def _why(made: Plan, returned: Any) -> str:
    g = made.graph
    reader = g.producer.get(returned.id) if isinstance(returned, Ref) else None
    first = g.producer.get(reader.inputs[0]) if reader is not None else None
    maker = g.producer.get(first.inputs[0]) if first is not None else None
    if first is None or maker is None:
        return "computes nothing"
    if maker.user in made.group_of[first.user].users:
        return ""
    refused = [c for d in made.decisions if {maker.user, first.user} <= {d.a, d.b} for c in d.judgement.codes]
    return g.user[maker.user].why or (refused or ["a view alone"])[-1]


def compare(captured: Captured, made: Plan, args: tuple[Any, ...]) -> str:
    """What differs from eager in the built plan, or nothing.

    The error of a few numbers is luck: where only that is worse, `verify` draws more of their kind.
    """
    exe = build(made, captured, threads=1)
    exe.poison = True
    own, kwargs = own_copies(captured, args, {})
    run = Program(exe, captured.fn, captured, own, kwargs, bind(captured, own, kwargs))
    found = run.compare(0)
    rulings = [(o.name, rule(o.errors, transcendentals=run.transcendentals)) for o in found.outputs]
    wrong = [f"{name}: {r.verdict}: {r.detail}" for name, r in rulings if not r.ok]
    if not found.faults and any(r.verdict == "worse" for _, r in rulings):
        again = verify(exe, captured, args, sets=(GIVEN,))
        wrong = [] if again.ok else wrong
    return "; ".join((*found.faults, *wrong))
