"""Types that eager refuses though tracing takes them (E200): `a.mul_(0.5)` of integers, `~mask - mask`; and types that
tracing believes wrongly, as those of `foreach_pow(masks, True)`."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from fusebound.capture.encode import words
from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError

_SCANS = words("aten::cumsum_ aten::cumprod_ aten::cumsum.out aten::cumprod.out")
"""Into given memory they compute in its type, which may have no kernel; otherwise in a type that always has one."""


def check_types(module: torch.fx.GraphModule) -> None:
    """Raise CaptureError for a pointwise operator or a scan whose CPU kernel raises on operands of these types, or
    gives other types than tracing believes.

    Tracing knows the types of results but not all that kernels demand, so each operator is tried on single elements:
    ones, which none of them refuses for their value. Nothing that is fused would look again.
    """
    for part in module.modules():
        for call in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if _is_tried(call.target):
                _try(call)


def _is_tried(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    if torch.Tag.pointwise in target.tags or target.name().startswith("aten::_foreach_"):
        return True
    return target.name() in _SCANS


def _try(call: torch.fx.Node) -> None:
    values = [n.meta.get("val") for n in call.all_input_nodes]
    devices = {str(x) for x in (*call.args, *call.kwargs.values()) if isinstance(x, torch.device)}
    if not all(map(_is_plain, values)) or devices - {"cpu"}:
        return
    args, kwargs = torch.fx.map_arg((call.args, call.kwargs), lambda n: _one(n.meta["val"]))
    try:
        given = _types(call.target(*args, **kwargs))  # pyright: ignore[reportCallIssue]
    except (RuntimeError, TypeError) as why:  # NotImplementedError is a RuntimeError
        text = str(why).split("\n")[0]
        raise CaptureError(f"the function cannot be captured: {text}", where=shown(source_of(call))) from why
    if (believed := _types(call.meta.get("val"))) != given:
        text = f"{' '.join(given)} from {call.target} where tracing has {' '.join(believed)}"
        raise CaptureError(f"the function cannot be captured: {text}", where=shown(source_of(call)))


def _types(results: Any) -> list[str]:
    """Types of results, by name, each once."""
    return sorted({str(t.dtype)[6:] for t in tree_leaves(results) if isinstance(t, torch.Tensor)})


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def _one(t: torch.Tensor) -> torch.Tensor:
    """One element of a tensor's type, in as many axes: what decides how types are promoted."""
    return torch.ones((1,) * t.dim(), dtype=t.dtype)
