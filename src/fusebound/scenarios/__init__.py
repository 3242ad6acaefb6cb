"""Ten built-in programs from real work, listed without importing torch.

A scenario is a small PyTorch program written as its users write it. Its module stands for the user's own
file, so it imports torch at the top, and only `build` loads it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fusebound.errors import UsageError


@dataclass(frozen=True, slots=True)
class Scenario:
    """One entry of `fusebound run --list`. `module` is the submodule that holds `build(*, small)`."""

    name: str
    summary: str
    module: str


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "transformer-block",
        "decoder block forward: RMSNorm, rotary embedding, attention, SwiGLU",
        "transformer_block",
    ),
    Scenario("bert-layer", "BERT encoder layer at inference: attention, GELU, two LayerNorms", "bert_layer"),
    Scenario(
        "residual-layernorm-gelu",
        "residual add, LayerNorm and GELU over 8192 x 2048",
        "residual_layernorm_gelu",
    ),
    Scenario(
        "cross-entropy",
        "language-model loss over a vocabulary of 32,768, with z-loss",
        "cross_entropy",
    ),
    Scenario(
        "adamw-step", "AdamW update with gradient accumulation, in place, over several tensors", "adamw_step"
    ),
    Scenario(
        "convnext-block",
        "ConvNeXt block: depthwise convolution, LayerNorm, GELU, layer scale",
        "convnext_block",
    ),
    Scenario(
        "conv-bn-relu", "residual block of convolution, batch norm and ReLU at inference", "conv_bn_relu"
    ),
    Scenario("groupnorm-silu", "diffusion residual block: GroupNorm, SiLU, time embedding", "groupnorm_silu"),
    Scenario(
        "feature-cross", "recommender: embeddings, DCN-v2 cross layers, second-order FM term", "feature_cross"
    ),
    Scenario("detection", "box decoding and matrix NMS, ending in a data-dependent size", "detection"),
)


def names() -> tuple[str, ...]:
    """The scenarios' names, in the order of the list."""
    return tuple(s.name for s in SCENARIOS)


def find(name: str) -> Scenario:
    """The scenario called `name`; raises UsageError (E101) with a suggestion for an unknown one."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    close = get_close_matches(name, names(), 1, 0.5)
    hint = f"did you mean `{close[0]}`?" if close else "`fusebound run --list` lists the scenarios"
    raise UsageError(f"there is no scenario called `{name}`", where=name, hint=hint, code="E101")


def build(name: str, *, small: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The program and its seeded example arguments; `small` shrinks the sizes for tests.

    Modules come in evaluation mode. Raises UsageError (E101) for an unknown name.
    """
    module = importlib.import_module(f"{__name__}.{find(name).module}")
    return module.build(small=small)
