"""The programs that faults are put into: one for each shape of fusion, small, with tails everywhere.

Rows of 83 elements take an unrolled step of four vectors, a single vector and a tail of a 16-lane machine.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.mutation.harness import Subject
from torch import Tensor


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def randint(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Tensor:
    """Integers from `low` up to and without `high`."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _gate(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.sigmoid(2 * x - y) / (z.abs() + 1.5)


def _narrow(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    s = (x + y) * z.tanh()
    return s, s.float() - 0.25


def _double(x: Tensor, y: Tensor) -> Tensor:
    return (x - y) / (x * x + 1).sqrt()


def _scaled(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x * w - b


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(0.7 * x, -1)


def _norm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))


def _rms_norm(x: Tensor, r: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x + r, (x.shape[-1],), w, 1e-5)


def _columns(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(0)


def _masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def _largest(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s = x + y
    return s.argmax(-1), s.amax(-1), s.argmin(-1)


def _quantize(x: Tensor) -> Tensor:
    return torch.clamp(torch.round(x / 0.05) + 3, -128, 127).to(torch.int8)


def _select(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.where(x < y, x, 2 * y), (x >= y) & (x != 0), torch.clamp(x, -0.5, 0.5).maximum(y)


def _pieces(x: Tensor, y: Tensor) -> Tensor:
    return F.pad(torch.cat([x, 2 * y], -1), (1, 2)) + 1


def _lookup(table: Tensor, index: Tensor, place: Tensor) -> Tensor:
    return table[index] * 3 + place


def _adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    p.mul_(1 - 3e-4 * 0.1)
    m.lerp_(g, 0.1)
    v.mul_(0.95).addcmul_(g, g, value=0.05)
    p.sub_(3e-4 * (m / 0.271) / ((v.sqrt() / 0.377).add_(1e-8)))


def _several(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s = x - y
    return s, s.relu(), s.square().sum(-1)


def _cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return -torch.log_softmax(2 * x, -1).gather(1, target[:, None]).squeeze(1)


def _dropout(x: Tensor, y: Tensor) -> Tensor:
    return F.dropout(x + y, 0.3) * 2


def _deviation(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    s = x + y
    return s.var(-1), s.mean(-1)


def _stencil(x: Tensor) -> Tensor:
    return x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]


def _transposed(x: Tensor, y: Tensor) -> Tensor:
    return (x.t() - y) * 2


def _integers(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (x - y) // 3, (x * y) % 7, (x >> 1) ^ y


def _layers(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    h = F.gelu(x @ w, approximate="tanh") * 1.1
    return torch.softmax((h @ v) + x, -1)


def _state(x: Tensor, s: Tensor) -> Tensor:
    s.mul_(0.9).add_(x, alpha=0.1)
    return (x - s).abs() + s


def _mirrored(x: Tensor, s: Tensor) -> Tensor:
    s.sub_(x + s.flip(-1))
    return x * 2


class Norm(torch.nn.Module):
    """A scale, a shift and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(randn(35, seed=3))
        self.mean = torch.nn.Buffer(randn(35, seed=4))

    def forward(self, x: Tensor) -> Tensor:
        """Centred by the mean of earlier calls."""
        y = (x - self.mean) * self.weight
        self.mean.mul_(0.9).add_(x[0], alpha=0.1)
        return torch.relu(y)


def programs() -> dict[str, Subject]:
    """All subjects by name; each is captured and built when it is first used."""
    half, double = torch.bfloat16, torch.float64
    table: dict[str, tuple[Callable[..., object], tuple[Tensor, ...]]] = {
        "gate": (_gate, (randn(5, 83), randn(5, 83, seed=1), randn(5, 83, seed=2))),
        "bfloat16 chain": (_narrow, tuple(randn(3, 83, dtype=half, seed=i) for i in range(3))),
        "float64 chain": (_double, (randn(3, 35, dtype=double), randn(3, 35, dtype=double, seed=1))),
        "broadcast": (_scaled, (randn(6, 35), randn(35, seed=1), randn(6, 1, seed=2))),
        "softmax": (_softmax, (randn(5, 83),)),
        "layer norm, gelu": (_norm_gelu, (randn(5, 83), randn(83, seed=1), randn(83, seed=2))),
        "rms norm": (_rms_norm, (*(randn(5, 83, dtype=half, seed=i) for i in range(2)), randn(83, dtype=half, seed=2))),
        "column sums": (_columns, (randn(19, 35), randn(19, 35, seed=1))),
        "masked mean": (_masked_mean, (randn(6, 35), randn(6, 35, seed=1) > 0.2)),
        "largest": (_largest, (randn(6, 35), randn(6, 35, seed=1))),
        "quantize": (_quantize, (randn(5, 83),)),
        "select": (_select, (randn(5, 35), randn(5, 35, seed=1))),
        "pieces": (_pieces, (randn(4, 35), randn(4, 21, seed=1))),
        "lookup": (_lookup, (randn(9, 35), randint(0, 9, 7), randn(7, 35, seed=1))),
        "adamw": (_adamw, (randn(5, 35), randn(5, 35, seed=1), randn(5, 35, seed=2), randn(5, 35, seed=3).square())),
        "several outputs": (_several, (randn(5, 35), randn(5, 35, seed=1))),
        "cross entropy": (_cross_entropy, (randn(6, 35), randint(0, 35, 6))),
        "dropout": (_dropout, (randn(5, 83), randn(5, 83, seed=1))),
        "deviation": (_deviation, (randn(5, 83), randn(5, 83, seed=1))),
        "stencil": (_stencil, (randn(4, 37),)),
        "transposed": (_transposed, (randn(35, 19), randn(19, 35, seed=1))),
        "integers": (_integers, tuple(randint(-90, 90, 3, 35, dtype=torch.int32, seed=i) for i in range(2))),
        "layers": (_layers, (randn(4, 20), randn(20, 24, seed=1), randn(24, 20, seed=2))),
        "mirrored update": (_mirrored, (randn(4, 35), randn(4, 35, seed=1))),
        "module": (Norm(), (randn(4, 35),)),
        "running state": (_state, (randn(4, 35), randn(4, 35, seed=1))),
    }  # fmt: skip
    found = {name: Subject(name, fn, args) for name, (fn, args) in table.items()}
    memory = randn(5, 35, seed=5)
    overlapping = Subject(
        "overlapping", _state, (randn(4, 35), randn(4, 35)), given=(memory[1:], memory[:-1])
    )
    return {**found, "overlapping": overlapping}
