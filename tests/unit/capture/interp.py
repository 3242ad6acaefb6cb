"""A plain interpreter of graphs: primitives by the framework's own operators, boundaries by replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.encode import torch_dtype
from fusebound.capture.replay import call
from fusebound.capture.torch import Captured
from fusebound.ir.graph import Graph, Node
from fusebound.ir.ops import OPS

_RENAMED: dict[str, Callable[..., torch.Tensor]] = {
    "sub": torch.sub,
    "clamp_min": lambda x, lo: torch.where(x < lo, lo, x),
    "clamp_max": lambda x, hi: torch.where(x > hi, hi, x),
    "rem": torch.remainder,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}


def interpret(captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """Values of `graph.outputs`, then the new values of mutated inputs."""
    graph = captured.graph
    env = dict(zip(graph.input_ids, captured.bind(args, kwargs), strict=True))
    run(graph, env, captured.modules)
    return [env[o] for o in graph.outputs] + [env[m.source] for m in graph.mutations]


def run(graph: Graph, env: dict[str, Any], modules: Mapping[str, torch.nn.Module]) -> None:
    """Fill `env` with every value, checking the declared shape, type and class of each."""
    for op in graph.user_ops:
        nodes = graph.members[op.name]
        if op.why:
            results: tuple[Any, ...] = call(op, env, modules)
            env.update(zip(op.outputs, results, strict=True))
            continue
        for node in nodes:
            env[node.out] = primitive(graph, node, [env[i] for i in node.inputs])
            _check(graph, node, env[node.out])


def _check(graph: Graph, node: Node, out: torch.Tensor) -> None:
    value = graph.values[node.out]
    assert tuple(out.shape) == value.shape, (node, tuple(out.shape), value.shape)
    assert out.dtype == torch_dtype(value.dtype), (node, out.dtype, value.dtype)


def primitive(graph: Graph, node: Node, xs: list[torch.Tensor]) -> torch.Tensor:
    value = graph.values[node.out]
    shape: Any = value.shape
    dtype = torch_dtype(value.dtype)
    a: Any = dict(node.attrs)
    match node.op:
        case "const":
            return torch.tensor(a["value"], dtype=dtype)
        case "iota":
            n = shape[a["dim"]]
            line = torch.arange(n, dtype=torch.int64) * a["step"] + a["start"]
            view = [n if i == a["dim"] else 1 for i in range(len(shape))]
            return line.to(dtype).reshape(view).expand(shape)
        case "cast":
            return xs[0].to(dtype)
        case "where":
            return torch.where(xs[0], xs[1], xs[2])
        case "fma":
            return torch.addcmul(xs[2], xs[0], xs[1])
        case "reshape":
            return xs[0].reshape(shape)
        case "expand":
            return xs[0].expand(shape)
        case "permute":
            return xs[0].permute(a["perm"])
        case "slice":
            end = a["start"] + (shape[a["dim"]] - 1) * a["step"] + 1 if shape[a["dim"]] else a["start"]
            return xs[0][(slice(None),) * a["dim"] + (slice(a["start"], end, a["step"]),)]
        case "flip":
            return xs[0].flip(a["dims"])
        case "pad":
            out = torch.full(shape, a["value"], dtype=dtype)
            out[tuple(slice(lo, lo + n) for lo, n in zip(a["lo"], xs[0].shape, strict=True))] = xs[0]
            return out
        case "cat":
            return torch.cat(xs, a["dim"])
        case "slice_scatter":
            out = xs[0].clone()
            n = xs[1].shape[a["dim"]]
            stop = a["start"] + (n - 1) * a["step"] + 1
            out[(slice(None),) * a["dim"] + (slice(a["start"], stop, a["step"]),)] = xs[1]
            return out
        case "gather":
            return torch.gather(xs[0], a["dim"], xs[1].long())
        case "index_select":
            flat = torch.index_select(xs[0], a["dim"], xs[1].reshape(-1))
            return flat.reshape(shape)
        case _ if OPS[node.op].cls == "reduce":
            x = xs[0].to(dtype) if node.op in ("sum", "prod") else xs[0]
            return _reduce(node.op, x, a["axes"])
        case _:
            fn = _RENAMED.get(node.op) or getattr(torch, node.op)
            return fn(*xs)


def _reduce(op: str, x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    if op in ("argmax", "argmin"):
        return getattr(torch, op)(x, dim=axes[0])
    if op == "prod":
        for axis in sorted(axes, reverse=True):
            x = x.prod(axis)
        return x
    return getattr(torch, op)(x, dim=tuple(axes))
