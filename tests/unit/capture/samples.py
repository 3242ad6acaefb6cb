"""Small calls of every operator that has a lowering: name → (function of tensors, kind of operands)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Fn = Callable[..., Any]

UNARY: dict[str, Fn] = {
    name: getattr(torch, name)
    for name in (
        *(
            "abs",
            "neg",
            "sign",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
        ),
        *("log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh"),
        *("atanh", "erf", "erfc", "sigmoid", "floor", "ceil", "round", "trunc", "frac", "isnan", "isinf"),
        *("isfinite", "square", "logical_not", "nan_to_num", "relu", "positive", "sgn", "deg2rad", "rad2deg"),
    )
}
UNARY |= {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "elu_alpha": lambda x: F.elu(x, 0.7),
    "elu_negative": lambda x: F.elu(x, -1.5),
    "celu_negative": lambda x: F.celu(x, -0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, -3.0),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "glu": lambda x: F.glu(x, -1),
    "logit": lambda x: torch.logit(x, 1e-3),
    "add_scalar": lambda x: x + 0.1,
    "add_alpha": lambda x: torch.add(x, x * 0.5, alpha=0.3),
    "sub_alpha": lambda x: torch.sub(x, 1.7, alpha=2),
    "rsub": lambda x: 0.3 - x,
    "mul_scalar": lambda x: x * 0.1,
    "div_scalar": lambda x: x / 3,
    "rdiv": lambda x: 1.0 / x,
    "pow0": lambda x: x**0,
    "pow1": lambda x: x**1,
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "pow_minus_half": lambda x: x**-0.5,
    "pow_minus1": lambda x: x**-1,
    "pow_minus2": lambda x: x**-2,
    "pow_real": lambda x: x.abs() ** 1.7,
    "pow4": lambda x: x**4,
    "rpow": lambda x: 2.0**x,
    "remainder": lambda x: x % 0.7,
    "fmod": lambda x: torch.fmod(x, 0.7),
    "floor_divide": lambda x: x // 0.7,
    "div_trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "clamp_max": lambda x: x.clamp_max(0.1),
    "gt": lambda x: x > 0.1,
    "eq": lambda x: x == 0.1,
    "masked_fill": lambda x: x.masked_fill(x > 0, -1e4),
    "where_scalar": lambda x: torch.where(x > 0, x, 0.1),
    "to_f64": lambda x: x.double() * 2,
    "to_bf16": lambda x: x.to(torch.bfloat16) + 1,
    "softmax": lambda x: x.softmax(-1),
    "softmax0": lambda x: x.softmax(0),
    "softmax_dtype": lambda x: F.softmax(x, -1, dtype=torch.float64),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmin": lambda x: F.softmin(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "logsumexp_keep": lambda x: torch.logsumexp(x, (0, 1), keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "rms_norm_eps": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "norm": lambda x: x.norm(),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=(0, 1)),
    "norm3": lambda x: torch.linalg.vector_norm(x, 3, dim=-1, keepdim=True),
    "norm0": lambda x: torch.linalg.vector_norm(x, 0, dim=-1),
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum((0, 2), keepdim=True),
    "sum_dtype": lambda x: x.sum(1, dtype=torch.float64),
    "mean": lambda x: x.mean(),
    "mean_dim": lambda x: x.mean(1),
    "nansum": lambda x: x.nansum(1),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(-1),
    "var_biased": lambda x: x.var((0, 1), unbiased=False, keepdim=True),
    "std": lambda x: x.std(),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "std_mean": lambda x: torch.std_mean(x, (0, -1), correction=2),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((0, 2)),
    "aminmax": lambda x: torch.aminmax(x),
    "max": lambda x: x.max(),
    "max_dim": lambda x: tuple(x.max(1)),
    "max_values": lambda x: x.max(1).values,
    "min_indices": lambda x: x.min(-1, keepdim=True).indices,
    "argmax": lambda x: x.argmax(),
    "argmin_dim": lambda x: x.argmin(1, keepdim=True),
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x < 9).all(),
    "count_nonzero": lambda x: torch.count_nonzero(x, 1),
    "global_pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "mask_assign": lambda x: _mask_assign(x),
    "foreach": lambda x: torch._foreach_mul([x, x + 1], 0.5),
    "foreach_lists": lambda x: torch._foreach_addcmul([x, x], [x, x], [x + 1, x], value=0.3),
    "foreach_norm": lambda x: torch._foreach_norm([x, x[0]], 3),
    "foreach_norm_dtype": lambda x: torch._foreach_norm([x, x[0]], dtype=torch.float64),
    "foreach_sqrt": lambda x: torch._foreach_sqrt([x, x.abs()]),
}
BINARY: dict[str, Fn] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "pow": lambda a, b: a.abs() ** b,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "lt": torch.lt,
    "ne": torch.ne,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp_far": lambda a, b: torch.lerp(a, b, 0.8),
    "lerp_tensor": lambda a, b: torch.lerp(a, b, torch.sigmoid(b)),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.7),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.7),
    "where": lambda a, b: torch.where(a > b, a, b),
    "logaddexp": torch.logaddexp,
    "clamp_tensor": lambda a, b: torch.clamp(a, b, b + 1),
    "mse": F.mse_loss,
    "mse_none": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "l1": F.l1_loss,
    "smooth_l1": lambda a, b: F.smooth_l1_loss(a, b, beta=0.5),
    "huber": lambda a, b: F.huber_loss(a, b, delta=0.7),
    "kl_div": lambda a, b: F.kl_div(a, b.abs(), reduction="sum"),
    "kl_div_log": lambda a, b: F.kl_div(a, b, reduction="batchmean", log_target=True),
    "bce_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b),
    "bce_logits_weights": lambda a, b: F.binary_cross_entropy_with_logits(
        a, b, weight=a.abs(), pos_weight=b.abs()
    ),
    "xlogy": lambda a, b: torch.xlogy(a, b),
    "cosine": lambda a, b: F.cosine_similarity(a, b, dim=-1),
    "soft_cross_entropy": lambda a, b: F.cross_entropy(a, b.softmax(1), label_smoothing=0.1),
    "prelu": lambda a, b: F.prelu(a, b[0, :, 0]),
    "broadcast": lambda a, b: a[:1] * b[:, :1] + a[0, 0],
    "copy": lambda a, b: a.clone().copy_(b[0]),
    "swiglu": lambda a, b: F.silu(a) * b,
    "layer_norm_affine": lambda a, b: F.layer_norm(a, a.shape[-1:], b[0, 0], b[1, 0]),
    "rms_norm_weight": lambda a, b: F.rms_norm(a, a.shape[-1:], b[0, 0]),
    "batch_norm": lambda a, b: F.batch_norm(a, b[0, :, 0], b[0, :, 1].abs(), b[0, :, 2], b[1, :, 3]),
    "batch_norm_training": lambda a, b: F.batch_norm(a, None, None, b[0, :, 2], b[1, :, 3], training=True),
    "cat": lambda a, b: torch.cat([a, b, a[:, :1]], 1),
    "stack": lambda a, b: torch.stack([a, b], -1),
}
MOVES: dict[str, Fn] = {
    "view": lambda x: x.view(-1, 6),
    "reshape_copy": lambda x: x.transpose(0, 1).reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(-1, 0),
    "mT": lambda x: x.mT,
    "movedim": lambda x: torch.movedim(x, (0, 1), (-1, 0)),
    "unsqueeze": lambda x: x.unsqueeze(-1).expand(-1, -1, -1, 3),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "expand_as": lambda x: x[:1].expand_as(x),
    "select": lambda x: x.select(1, -2),
    "slice": lambda x: x[:, 1:-1, ::2],
    "slice_far": lambda x: x[:, 2:99],
    "narrow": lambda x: x.narrow(2, 1, 3),
    "split": lambda x: x.split([1, 3], 1),
    "split_even": lambda x: x.split(4, 2),
    "split_one_used": lambda x: x.split(4, 2)[1] * 2,
    "chunk": lambda x: x.chunk(2, -1),
    "unbind": lambda x: x.unbind(1),
    "tensor_split": lambda x: torch.tensor_split(x, 4, dim=2),
    "flip": lambda x: x.flip(0, -1),
    "rot90": lambda x: [x.rot90(k, (0, 2)) for k in range(5)],
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "roll_flat": lambda x: x.roll(5),
    "roll_nothing": lambda x: x.roll(4, 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=1.5),
    "pad_crop": lambda x: F.pad(x, (-1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat_more": lambda x: x.repeat(2, 1, 1, 2),
    "tile": lambda x: torch.tile(x, (2,)),
    "repeat_interleave": lambda x: x.repeat_interleave(3, dim=1),
    "repeat_interleave_flat": lambda x: x.repeat_interleave(2),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.transpose(0, 1), 2).contiguous(),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :, :6], 2),
    "channel_shuffle": lambda x: torch.channel_shuffle(x, 2),
    "clone": lambda x: x.transpose(0, 1).clone(),
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "index_assign": lambda x: _assign(x),
    "zeros_like": lambda x: torch.zeros_like(x) + torch.ones_like(x),
    "full_like": lambda x: torch.full_like(x, 2) + x.new_full((6,), 3) + x.new_zeros(6),
    "arange": lambda x: torch.arange(6) + torch.arange(1, 7) + torch.arange(0, 12, 2) + x.sum().long(),
    "arange_real": lambda x: torch.arange(0, 0.6, 0.1) + torch.arange(1, 7, dtype=torch.float32),
    "arange_truncated": lambda x: torch.arange(2.1, -2.9, -1.0, dtype=torch.int64) + x.sum().long(),
    "eye": lambda x: torch.eye(6, dtype=x.dtype) + x[0, 0],
    "full": lambda x: torch.full((6,), 0.5, dtype=x.dtype) * x + torch.scalar_tensor(2.0, dtype=x.dtype),
    "fill": lambda x: x.clone().fill_(3.0) + x,
    "cumulative_views": lambda x: (x.view(2, 2, 2, 6)[:, 1] + 1).permute(2, 1, 0),
}
GATHER: dict[str, Fn] = {
    "embedding": lambda x, i: F.embedding(i, x[0]),
    "index_select": lambda x, i: x.index_select(1, i[0]),
    "gather": lambda x, i: x[0].gather(1, i),
    "take_along_dim": lambda x, i: torch.take_along_dim(x[0], i, dim=1),
    "index": lambda x, i: x[i % 2],
    "index_negative": lambda x, i: x[0][i - 2],
    "index_second": lambda x, i: x[:, i],
    "cross_entropy": lambda x, i: F.cross_entropy(x[0], i[:, 0]),
    "cross_entropy_rank3": lambda x, i: F.cross_entropy(x.transpose(1, 2), i[:2].repeat(1, 2)[:, :4]),
    "cross_entropy_none": lambda x, i: F.cross_entropy(x[0], i[:, 0], reduction="none"),
    "cross_entropy_ignore": lambda x, i: F.cross_entropy(x[0], i[:, 0], ignore_index=2),
    "cross_entropy_all": lambda x, i: F.cross_entropy(
        x[0], i[:, 0], weight=x[0, 0].abs(), ignore_index=1, label_smoothing=0.2
    ),
    "cross_entropy_sum": lambda x, i: F.cross_entropy(x[0], i[:, 0], reduction="sum", label_smoothing=0.1),
    "nll": lambda x, i: F.nll_loss(x[0].log_softmax(-1), i[:, 0], weight=x[0, 0].abs()),
    "nll_sum": lambda x, i: F.nll_loss(x[0], i[:, 0], reduction="sum"),
}
INTEGER: dict[str, Fn] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "true_div": lambda a, b: a / (b.abs() % 7 + 1),
    "floor_div": lambda a, b: a // (b.abs() % 7 + 1),
    "rem": lambda a, b: a % (b.abs() % 7 + 1),
    "fmod": lambda a, b: torch.fmod(a, b.abs() % 7 + 1),
    "trunc_div": lambda a, b: torch.div(a, b.abs() % 7 + 1, rounding_mode="trunc"),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "shift": lambda a, b: (a << 1) + (b >> 1),
    "compare": lambda a, b: a < b,
    "float_scalar": lambda a, b: a * 0.5,
    "int_scalar": lambda a, b: a * 2 + 1,
    "exp": lambda a, b: torch.exp(a),
    "square": lambda a, b: a.square() + b**3,
    "sum": lambda a, b: a.sum(-1),
    "prod": lambda a, b: (a % 2 + 1).prod(-1),
    "amax": lambda a, b: a.amax(-1),
    "argmax": lambda a, b: a.argmax(-1),
    "clamp": lambda a, b: a.clamp(-2, 2),
    "abs": lambda a, b: a.abs() + a.sign(),
    "floor": lambda a, b: a.floor(),
    "where": lambda a, b: torch.where(a > b, a, 7),
    "to_float": lambda a, b: a.float() / 3,
    "to_bool": lambda a, b: a.bool() | b.bool(),
    "any": lambda a, b: a.any(-1),
    "zero_dim": lambda a, b: a * torch.tensor(0.5),
    "maximum": lambda a, b: torch.maximum(a, b),
    "cat_promote": lambda a, b: torch.cat([a, b.float()]),
    "isnan": lambda a, b: a.isnan(),
}
BOOLEAN: dict[str, Fn] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "sum": lambda a, b: a.sum(-1),
    "mean": lambda a, b: a.float().mean(-1),
    "int_mul": lambda a, b: a * 3,
    "max": lambda a, b: a.amax(-1),
    "eq": lambda a, b: a == b,
    "invert_mask": lambda a, b: (1.0 - a.float()) * -1e4,
}


def _mask_assign(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x > 0] = 0.25
    y[x[:, :, 0] > 1] = 0.0
    return y


def _assign(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1] = 0.5
    y[0, :, 2:4] = x[1, :, :2]
    y[..., ::3] += 1
    return y


def operands(dtype: torch.dtype, *, special: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Two seeded 2×4×6 tensors; with `special`, NaN, infinities, zeros and subnormals among them."""
    gen = torch.Generator().manual_seed(7)
    a, b = (torch.randn(2, 4, 6, generator=gen, dtype=torch.float64) * 2 for _ in range(2))
    if special:
        values = [
            0.0,
            -0.0,
            float("inf"),
            -float("inf"),
            float("nan"),
            1e-40,
            -1e-40,
            3e4,
            -3e4,
            0.5,
            88.0,
            -104.0,
        ]
        a.view(-1)[: len(values)] = torch.tensor(values, dtype=torch.float64)
        b.view(-1)[: 2 * len(values) : 2] = torch.tensor(values, dtype=torch.float64)
    return a.to(dtype), b.to(dtype)


def cases(dtype: torch.dtype, *, special: bool = False) -> Iterator[tuple[str, Fn, tuple[torch.Tensor, ...]]]:
    """Every floating sample with operands of this type."""
    a, b = operands(dtype, special=special)
    index = torch.tensor([[0, 3], [1, 1], [3, 2], [2, 0]])
    for name, fn in UNARY.items():
        yield f"unary-{name}", fn, (a,)
    for name, fn in BINARY.items():
        yield f"binary-{name}", fn, (a, b)
    for name, fn in MOVES.items():
        yield f"move-{name}", fn, (a,)
    for name, fn in GATHER.items():
        yield f"gather-{name}", fn, (a, index)
