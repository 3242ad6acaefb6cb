"""Whole models from `transformers` configurations, random weights: `torch.compile(backend="fusebound")` against eager.

    python bench/models.py [MODEL ...] [--dtypes float32 bfloat16] [--modes inference training] [--inductor]

A training step is forward, the mean of the squared output, and backward; gradients are set to None first. `ceiling` is
eager's speed-up if its light operators moved their bytes at copy speed and cost nothing else, heavy ones taking what
they take (inference, float32 graphs that `fusebound.capture` takes whole); `recovered` is the share of that time.
`error` is the largest difference from the same model in float64 over the largest of its numbers, fused and eager.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from transformers.models.whisper.modeling_whisper import WhisperEncoder

import fusebound as fb
from fusebound.analysis.alias import is_free
from fusebound.analysis.traffic import user_traffic
from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.measure.bench import is_slower
from fusebound.measure.environment import describe
from fusebound.measure.statistics import Samples, geometric_mean, ratio
from fusebound.measure.timer import interleave
from fusebound.target import get

LIGHT = ("pointwise", "reduce", "move", "scan", "random")
RUNS = 3
Made = tuple[torch.nn.Module, torch.Tensor]


def tokens(size: int, length: int = 128) -> torch.Tensor:
    return torch.randint(0, size, (1, length))


def gpt2(n: int) -> Made:
    return hf.GPT2Model(hf.GPT2Config(n_layer=n, use_cache=False)), tokens(50000)


def bert(n: int) -> Made:
    return hf.BertModel(hf.BertConfig(num_hidden_layers=n)), tokens(30000)


def llama(n: int) -> Made:
    config = hf.LlamaConfig(
        vocab_size=8000, hidden_size=768, intermediate_size=2048, num_hidden_layers=n, num_attention_heads=12,
        use_cache=False,
    )  # fmt: skip
    return hf.LlamaModel(config), tokens(8000)


def vit(n: int) -> Made:
    return hf.ViTModel(hf.ViTConfig(num_hidden_layers=n)), torch.randn(1, 3, 224, 224)


def convnext(n: int) -> Made:
    return hf.ConvNextModel(hf.ConvNextConfig(depths=[1, 1, n, 1])), torch.randn(1, 3, 224, 224)


def resnet(n: int) -> Made:
    return hf.ResNetModel(hf.ResNetConfig(depths=[1, 1, n, 1])), torch.randn(1, 3, 224, 224)


def t5(n: int) -> Made:
    return hf.T5EncoderModel(hf.T5Config(num_layers=n)), tokens(32000)


def whisper(n: int) -> Made:
    return WhisperEncoder(hf.WhisperConfig(encoder_layers=n)), torch.randn(1, 80, 3000)


MODELS = {f.__name__: f for f in (gpt2, bert, llama, vit, convnext, resnet, t5, whisper)}


@dataclass(frozen=True, slots=True)
class Row:
    """One model in one type and mode: ms in the median, ratios to eager, seconds to the first result."""

    model: str
    dtype: str
    mode: str
    eager_ms: float
    fused_ms: float
    speedup: float
    low: float
    high: float
    slower: bool
    error: float
    eager_error: float
    first_s: float
    ceiling: float | None = None
    inductor_ms: float | None = None
    inductor_first_s: float | None = None

    @property
    def recovered(self) -> float | None:
        """The share of the time between eager and the ceiling."""
        if self.ceiling is None or self.ceiling <= 1:
            return None
        return (1 - 1 / self.speedup) / (1 - 1 / self.ceiling)

    def __str__(self) -> str:
        parts = [
            f"{self.model:9}{self.dtype:9}{self.mode:10} eager {self.eager_ms:7.1f} ms, {self.speedup:.3f}x"
            f" ({self.low:.3f} to {self.high:.3f}){' SLOWER' if self.slower else ''}",
            f"error {self.error:.1e} (eager {self.eager_error:.1e}), first result {self.first_s:.1f} s",
        ]
        if self.recovered is not None:
            parts.append(f"ceiling {self.ceiling:.3f}x, recovered {self.recovered:.0%}")
        if self.inductor_ms is not None:
            parts.append(
                f"Inductor {self.eager_ms / self.inductor_ms:.3f}x after {self.inductor_first_s:.1f} s"
            )
        return "; ".join(parts)


def output(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple | list) else next(iter(result.values()))


def call_of(
    model: Callable[..., Any], owner: torch.nn.Module, x: torch.Tensor, mode: str
) -> Callable[[], Any]:
    """One call; it returns what is compared: the output, or all gradients."""

    def infer() -> list[torch.Tensor]:
        with torch.no_grad():
            return [output(model(x))]

    def train() -> list[torch.Tensor | None]:
        owner.zero_grad(set_to_none=True)
        output(model(x)).float().square().mean().backward()
        return [p.grad for p in owner.parameters()]

    return infer if mode == "inference" else train


def apart(found: Sequence[torch.Tensor | None], true: Sequence[torch.Tensor | None]) -> float:
    """The largest difference over the largest number, of the worst tensor. Where nothing depends on a parameter,
    AOTAutograd's gradient is zero and eager's None."""
    pairs = [(a, b) for a, b in zip(found, true, strict=True) if a is not None and b is not None]
    return max(float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def ceiling(model: torch.nn.Module, x: torch.Tensor, rounds: int) -> float | None:
    """Eager's time over that of its heavy operators and the light ones' bytes, each value once, at copy speed."""
    target = get("host")
    captured = capture(model, (x,))
    graph = captured.graph
    alone = build(fb.plan(graph, policy="none"), captured, target=target)
    took = alone.profile((x,), rounds=rounds)
    user = {g.id: graph.user[g.users[0]] for g in alone.plan.groups}
    light = [g for g, u in user.items() if u.kind in LIGHT and not is_free(graph, u)]
    nbytes = sum(user_traffic(graph, user[g]).total for g in light)
    total, spent = sum(took.values()), sum(took[g] for g in light)
    return total / (total - spent + min(spent, nbytes / target.dram_bandwidth / 1000))


def measure(name: str, dtype: str, mode: str, options: argparse.Namespace) -> Row:
    """One row."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = MODELS[name](options.layers)
    model = model.eval().to(getattr(torch, dtype))
    x = x.to(getattr(torch, dtype)) if x.is_floating_point() else x
    calls = {"eager": call_of(model, model, x, mode)}
    calls["fused"] = call_of(torch.compile(model, backend="fusebound"), model, x, mode)
    if options.inductor:
        calls["inductor"] = call_of(torch.compile(model), model, x, mode)
    wide = copy.deepcopy(model).double()
    true = call_of(wide, wide, x.double() if x.is_floating_point() else x, mode)()
    first, error = {}, {}
    for who, call in calls.items():
        start = time.perf_counter()
        found = call()
        first[who], error[who] = time.perf_counter() - start, apart(found, true)
    times = interleave(calls, rounds=options.rounds, budget_s=30.0)
    slower = is_slower(times["fused"], times["eager"])
    for _ in range(RUNS - 1):
        slower = slower and loses({n: calls[n] for n in ("fused", "eager")}, options.rounds)
    gain = ratio(times["eager"], times["fused"])
    with torch.no_grad():
        most = ceiling(model, x, 5) if mode == "inference" else None
    other: Samples | None = times.get("inductor")
    return Row(
        name, dtype, mode, times["eager"].median / 1000, times["fused"].median / 1000, gain.value, gain.low, gain.high,
        slower, error["fused"], error["eager"], first["fused"], most, other.median / 1000 if other else None,
        first.get("inductor"),
    )  # fmt: skip


def loses(calls: dict[str, Callable[[], Any]], rounds: int) -> bool:
    times = interleave(calls, rounds=rounds, budget_s=30.0)
    return is_slower(times["fused"], times["eager"])


def main() -> None:
    """Measure and print row by row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument(
        "--modes", nargs="+", choices=["inference", "training"], default=["inference", "training"]
    )
    parser.add_argument("--layers", type=int, default=2, help="of the repeated part")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--inductor", action="store_true", help="time Inductor too: a minute a row to compile"
    )
    parser.add_argument("--json", type=Path, help="where to store the figures")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no model {min(unknown)!r}; there are {', '.join(MODELS)}")
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for name in options.models:
        for dtype in options.dtypes:
            for mode in options.modes:
                rows.append(measure(name, dtype, mode, options))
                print(rows[-1], flush=True)
    print(
        f"geometric mean {geometric_mean(r.speedup for r in rows):.3f}, slower {sum(r.slower for r in rows)}"
    )
    shares = [r.recovered for r in rows if r.recovered is not None]
    if shares:
        print(
            f"recovered {sum(shares) / len(shares):.0%} of the time to the ceiling in the mean",
            file=sys.stderr,
        )
    if options.json:
        document = {
            "format": "fusebound.bench.models/1",
            "machine": describe(),
            "rows": [asdict(r) for r in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
