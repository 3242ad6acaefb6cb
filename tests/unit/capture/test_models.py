"""Whole models of `transformers` with random weights: attention stays whole, light operators have primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.capture.interp import interpret
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTModel

from fusebound.capture.torch import capture
from fusebound.ir.spec import verify

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
IDS = torch.arange(24).reshape(2, 12) % 90


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=2,
        vocab_size=100,
        n_positions=16,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=1,
    )
    return GPT2LMHeadModel(config), {"input_ids": IDS}


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    return BertModel(BertConfig(vocab_size=100, **SMALL)), {"input_ids": IDS, "attention_mask": IDS > 3}


def vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    return ViTModel(ViTConfig(image_size=16, patch_size=8, **SMALL)), {
        "pixel_values": torch.randn(2, 3, 16, 16)
    }


@pytest.mark.parametrize("make", [gpt2, bert, vit])
def test_model(make: Callable[[], tuple[torch.nn.Module, dict[str, Any]]]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    captured = capture(model, (), inputs)
    graph = captured.graph
    verify(graph)
    whole = [u for u in graph.user_ops if u.target == "aten.scaled_dot_product_attention.default"]
    assert len(whole) == 2 and all(u.why == "F607" for u in whole)
    rest = {u.target for u in graph.user_ops if u.why and u.kind != "contract"}
    assert rest <= {"aten.index.Tensor", "aten.cumsum.default"}  # of the mask: indexing by several tensors
    with torch.no_grad():
        want = model(**inputs)
        got = captured.unflatten(interpret(captured, (), inputs)[: len(graph.outputs)])
    assert type(got) is type(want)
    for key in want:
        torch.testing.assert_close(got[key], want[key], rtol=1e-5, atol=1e-6)
