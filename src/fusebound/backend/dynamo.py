"""The backend that the entry point `torch_dynamo_backends` names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from fusebound.api import compile
from fusebound.backend.gradients import GRADIENTS
from fusebound.errors import UsageError

_aten = torch.ops.aten
VIEWS = get_decompositions([_aten.select_backward, _aten.slice_backward, _aten.unfold_backward])
"""Gradients of views, as writes into zeros."""

_OPTIONS = tuple(n for n, p in inspect.signature(compile).parameters.items() if p.kind is p.KEYWORD_ONLY)
"""What `fusebound.compile` takes beside the function."""


def fusebound(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph of TorchDynamo's, and its gradient's where one is recorded.

    `options` are those of `fusebound.compile`. Each graph is captured, planned and built at its first call, for the
    sizes of that call; further sizes get kernels of their own. Raises UsageError (E120) for a mode or an option that
    there is not, and what `fusebound.compile` raises for its options.
    """
    if mode not in (None, "default"):
        raise UsageError(
            f"fusebound has no mode {mode!r}", hint="pass options={'numerics': ...}", code="E120"
        )
    options = options or {}
    if unknown := options.keys() - set(_OPTIONS):
        raise UsageError(
            f"fusebound has no option {min(unknown)!r}", hint=f"options: {', '.join(_OPTIONS)}", code="E120"
        )
    compiler = functools.partial(_compiled, options)
    apart = VIEWS if options.get("numerics") == "eager" else {**VIEWS, **GRADIENTS}
    backend = aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler,
        decompositions=apart, partition_fn=min_cut_rematerialization_partition,
    )  # fmt: skip
    return backend(gm, example_inputs)


def _compiled(
    options: Mapping[str, Any], gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """One functional graph of ATen operators as AOTAutograd wants it: it takes a list, and empties it, so that
    arguments can be freed early."""
    run = compile(gm, **options)

    def boxed(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        with _unwatched():
            return run(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _unwatched() -> AbstractContextManager[object]:
    """Without AOTAutograd's mode, which watches the first call of a graph for custom operators that alias their
    operands. A mode of the user's stays, and sees every operator."""
    mode = type(_get_current_dispatch_mode()).__name__
    return _pop_mode_temporarily() if mode == "_AnalyzeCustomOpInputOutputMode" else nullcontext()
