"""What tracing would get silently wrong, detected: each trap is a CaptureError with the user's line.

E201 a tensor that is no input is mutated · E202 a Python side effect · E203 `.backward()` inside ·
E204 overlapping inputs, one of them mutated · E205 a Python branch on a value ·
E206 an in-place operator that reads overlapping memory · E207 a Python number differs from the captured one
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_flatten, tree_unflatten

from fusebound.capture.source import is_user_file, line_of, source_of
from fusebound.capture.state import Change, Watch
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_EAGER = "run it eagerly, or write it so that it only reads its inputs and returns its results"


def _where(source: Source) -> str:
    return f"{source}: {source.code}" if source.code else str(source)


def effect(change: Change, lost: Sequence[str]) -> CaptureError:
    """The error for a change that `Watch` saw."""
    hint = f"{_EAGER}; {', '.join(lost)} could not be restored" if lost else _EAGER
    if change.tensor:
        return CaptureError(
            f"the function changes {change.name}, a tensor that is no argument, parameter or buffer",
            where=_where(change.source), hint=f"register it as a buffer, pass it in, or {hint}", code="E201",
        )  # fmt: skip
    return CaptureError(
        f"the function changes {change.name}: a Python side effect, which a graph does not repeat",
        where=_where(change.source), hint=hint, code="E202",
    )  # fmt: skip


@contextlib.contextmanager
def no_backward() -> Iterator[None]:
    """Make `.backward()` raise E203 with the caller's line while the user's function is traced."""
    original = torch.autograd.backward

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise CaptureError(
            "the function calls backward(): gradients that it stores are no part of a graph",
            where=_where(_caller()), code="E203",
            hint="use torch.autograd.grad and return the gradients, or run it eagerly",
        )  # fmt: skip

    torch.autograd.backward = refuse
    try:
        yield
    finally:
        torch.autograd.backward = original


def _caller() -> Source:
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            return Source(
                code.co_filename, frame.f_lineno, linecache.getline(code.co_filename, frame.f_lineno).strip()
            )
        frame = frame.f_back
    return Source()


@contextlib.contextmanager
def watched(fn: Any, module: torch.nn.Module) -> Iterator[None]:
    """Trace `module` (which is or wraps `fn`) in here.

    Side effects are undone and raised as CaptureError; other errors get the user's line.
    """
    watch = Watch(fn)
    random_state = torch.get_rng_state()
    seen: list[Change] = []
    try:
        with no_backward(), _probed(fn, module, seen):
            yield
    except Exception as e:
        found = seen or watch.mutated()
        lost = watch.undo()
        known = _ours(e)
        if known is not None:
            raise known from e
        raise (effect(found[0], lost) if found else explain(e)) from e
    else:
        found = seen or watch.mutated()
        lost = watch.undo()
        if found:
            raise effect(found[0], lost)
    finally:
        torch.set_rng_state(random_state)


@contextlib.contextmanager
def _probed(fn: Any, module: torch.nn.Module, seen: list[Change]) -> Iterator[None]:
    """Compare before and after `forward`: around it, the framework swaps attributes and puts them back."""
    forward = module.forward
    own = module.__dict__.get("forward")

    @functools.wraps(forward)
    def probe(*args: Any, **kwargs: Any) -> Any:
        watch = Watch(fn, copies=False)
        try:
            return forward(*args, **kwargs)
        finally:
            seen.extend(watch.changes())

    module.__dict__["forward"] = probe
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own


def _ours(e: BaseException | None) -> CaptureError | None:
    while e is not None:
        if isinstance(e, CaptureError):
            return e
        e = e.__cause__ or e.__context__
    return None


def explain(e: Exception) -> CaptureError:
    """The framework's error as one of ours, at the user's line."""
    where = _where(line_of(e.__traceback__))
    if isinstance(e, GuardOnDataDependentSymNode):
        return CaptureError(
            "Python decides by a value of a tensor: a graph has no branches",
            where=where, hint="use torch.where or torch.cond, or run it eagerly", code="E205",
        )  # fmt: skip
    text = str(e).strip().split("\n")[0] or type(e).__name__
    return CaptureError(f"the function cannot be captured: {text}", where=where)


# -- overlapping memory


def extent(t: torch.Tensor) -> tuple[int, int]:
    """First and one-past-last byte that the tensor reaches, within its storage."""
    if t.numel() == 0:
        return 0, 0
    first = t.storage_offset()
    last = first + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int(first * t.element_size()), int((last + 1) * t.element_size())


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors' address ranges meet in one storage."""
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    (a0, a1), (b0, b1) = extent(a), extent(b)
    return max(a0, b0) < min(a1, b1)


def separated(args: Any, kwargs: Any, state: Sequence[torch.Tensor]) -> tuple[Any, Any, set[int]]:
    """Arguments with overlapping tensors copied apart, and the flat positions of those that overlapped.

    `state` holds the parameters and buffers, which an argument may overlap as well.
    """
    flat, spec = tree_flatten((args, kwargs))
    tensors = [(i, x) for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]
    met: set[int] = set()
    for k, (i, x) in enumerate(tensors):
        for j, y in tensors[k + 1 :]:
            if overlap(x, y):
                met.update((i, j))
        if any(overlap(x, s) for s in state):
            met.add(i)
    if not met:
        return args, kwargs, met
    flat = [x.detach().clone() if i in met else x for i, x in enumerate(flat)]
    args, kwargs = tree_unflatten(flat, spec)
    return args, kwargs, met


def overlapping_mutation(name: str, source: Source) -> CaptureError:
    return CaptureError(
        f"argument {name} is mutated, and shares memory with another input", where=_where(source),
        hint="pass separate tensors, or run it eagerly", code="E204",
    )  # fmt: skip


def check_in_place(graph: torch.fx.Graph) -> None:
    """Raise E206 where eager raises: an in-place operator reads memory that partly overlaps its target.

    Only dense operands are judged, as eager does (`at::get_overlap_status`); for others it does not look.
    """
    root: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        schema = node.target._schema
        aliased = [a for a, s in zip(node.args, schema.arguments, strict=False) if s.alias_info is not None]
        if aliased and isinstance(aliased[0], torch.fx.Node):
            root[node] = root.get(aliased[0], aliased[0])
        if not schema.is_mutable or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        target = node.args[0]
        for other in node.all_input_nodes:
            if other is not target and root.get(other, other) is root.get(target, target):
                _check_pair(node, target, other)
        if _repeats(target.meta.get("val")):
            raise _in_place(node, "writes to a tensor whose elements share memory")


def _check_pair(node: torch.fx.Node, target: torch.fx.Node, other: torch.fx.Node) -> None:
    a, b = target.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return
    (a0, a1), (b0, b1) = extent(a), extent(b)
    same = a0 == b0 and a.stride() == b.stride() and a.shape == b.shape
    if not same and max(a0, b0) < min(a1, b1) and _dense(a) and _dense(b):
        raise _in_place(node, "reads memory that it partly overwrites")


def _dense(t: torch.Tensor) -> bool:
    """No gaps and no overlap between elements, in some order of axes."""
    step = 1
    for s, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _repeats(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and any(
        s == 0 and isinstance(n, int) and n > 1 for n, s in zip(t.shape, t.stride(), strict=True)
    )


def _in_place(node: torch.fx.Node, what: str) -> CaptureError:
    return CaptureError(
        f"{node.target} {what}: eager raises here", where=_where(source_of(node)),
        hint="clone the operand first", code="E206",
    )  # fmt: skip
