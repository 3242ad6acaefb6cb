"""Whole models from `transformers` configurations with random weights, and what their light operators move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fusebound.analysis.alias import is_view
from fusebound.analysis.traffic import user_traffic
from fusebound.capture.replay import inputs_of, prepare
from fusebound.capture.torch import Captured
from fusebound.ir.graph import Graph, UserOp
from fusebound.plan.plan import Plan

LIGHT = ("pointwise", "reduce", "move")


def gpt2(layers: int = 2) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=layers, use_cache=False)), (torch.randint(0, 50000, (1, 128)),)


def bert(layers: int = 2) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=layers)), (torch.randint(0, 30000, (1, 128)),)


def vit(layers: int = 2) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(num_hidden_layers=layers)), (torch.randn(1, 3, 224, 224),)


MODELS: dict[str, Callable[..., tuple[torch.nn.Module, tuple[Any, ...]]]] = {
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
}


def light(g: Graph) -> list[UserOp]:
    """Operators that compute or copy element by element or along rows; views move nothing."""
    return [u for u in g.user_ops if u.kind in LIGHT and not is_view(g, u)]


def light_bytes(g: Graph) -> int:
    """Bytes that the light operators move, by the IR's count."""
    return sum(user_traffic(g, u).total for u in light(g))


def fused_bytes(p: Plan) -> int:
    """The part of `light_bytes` that belongs to operators in kernels of several."""
    g = p.graph
    names = {u.name for u in light(g)}
    several = [k for k in p.kernels if sum(not is_view(g, g.user[u]) for u in k.users) > 1]
    return sum(user_traffic(g, g.user[u]).total for k in several for u in k.users if u in names)


def tally(captured: Captured, args: tuple[Any, ...]) -> int:
    """Bytes that the light operators move, counted on the tensors that eager's operators take and return."""
    g = captured.graph
    env: dict[str, Any] = dict(zip(g.input_ids, captured.bind(args, {}), strict=True))
    names = {u.name for u in light(g)}
    total = 0
    for u in g.user_ops:
        given = [env[v] for v in inputs_of(u)]
        results = prepare(u, captured.modules)(given)
        env.update(zip(u.outputs, results, strict=True))
        if u.name in names:
            total += sum(_distinct(t) for t in (*given, *results))
    return total


def _distinct(t: Any) -> int:
    """Bytes of the elements that a tensor has of its own: an expanded axis counts once."""
    if not isinstance(t, torch.Tensor):
        return 0
    return (
        t.element_size()
        * torch.Size(n for n, s in zip(t.shape, t.stride(), strict=True) if s or n == 0).numel()
    )
