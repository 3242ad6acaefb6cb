"""Every case once more, for `jax.jit`: the function of the same name, on the same arguments in the same order.

Those that change arguments in place return the new ones, in the order of `Case.written`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from jax import Array
from jax.nn import gelu as _gelu
from jax.scipy.special import logsumexp as _logsumexp

from bench.suite import images, norms, pointwise, steps

Arrays = tuple[Array, ...]


def array(t: torch.Tensor) -> Array:
    """A copy of a tensor; 64-bit integers become 32-bit ones, which is what jax uses."""
    if t.dtype == torch.int64:
        t = t.to(torch.int32)
    if t.dtype == torch.float8_e4m3fn:
        return jax.lax.bitcast_convert_type(array(t.view(torch.uint8)), jnp.float8_e4m3fn)
    return jnp.array(jax.dlpack.from_dlpack(t.contiguous()), copy=True)


def tensor(a: Array) -> torch.Tensor:
    """A copy of an array."""
    if a.dtype == jnp.float8_e4m3fn:
        return tensor(jax.lax.bitcast_convert_type(a, jnp.uint8)).view(torch.float8_e4m3fn)
    return torch.from_dlpack(a).clone()


def _wide(x: Array) -> Array:
    return x.astype(jnp.float32)


def _layer_norm(x: Array, w: Array, b: Array) -> Array:
    wide = _wide(x)
    mean = wide.mean(-1, keepdims=True)
    normed = (wide - mean) * jax.lax.rsqrt(wide.var(-1, keepdims=True) + norms.EPS)
    return (normed * _wide(w) + _wide(b)).astype(x.dtype)


def softmax_last(x: Array) -> Array:
    return jax.nn.softmax(_wide(x), -1).astype(x.dtype)


def softmax_first(x: Array) -> Array:
    return jax.nn.softmax(_wide(x), 0).astype(x.dtype)


def log_softmax(x: Array) -> Array:
    return jax.nn.log_softmax(_wide(x), -1).astype(x.dtype)


def logsumexp(x: Array) -> Array:
    return _logsumexp(_wide(x), -1).astype(x.dtype)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    return _layer_norm(x, w, b)


def layer_norm_backward(dy: Array, x: Array, mean: Array, rstd: Array, w: Array, b: Array) -> Arrays:
    grad, normed = _wide(dy), (_wide(x) - _wide(mean)) * _wide(rstd)
    weighted = grad * _wide(w)
    centred = weighted - weighted.mean(-1, keepdims=True)
    dx = _wide(rstd) * (centred - normed * (weighted * normed).mean(-1, keepdims=True))
    return dx.astype(x.dtype), (grad * normed).sum(0).astype(w.dtype), grad.sum(0).astype(b.dtype)


def rms_norm(x: Array, w: Array) -> Array:
    wide = _wide(x)
    rstd = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + norms.EPS)
    return w * (wide * rstd).astype(x.dtype)


def rms_norm_backward(dy: Array, x: Array, w: Array) -> Arrays:
    wide, grad = _wide(x), _wide(dy)
    rstd = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + norms.EPS)
    normed, weighted = wide * rstd, grad * _wide(w)
    dx = rstd * (weighted - normed * (weighted * normed).mean(-1, keepdims=True))
    return dx.astype(x.dtype), (grad * normed).sum(0).astype(w.dtype)


def residual_norm_gelu(x: Array, residual: Array, w: Array, b: Array) -> Array:
    return gelu(_layer_norm(x + residual, w, b))


def dropout_residual_norm(x: Array, residual: Array, w: Array, b: Array, p: Array, seed: Array) -> Array:
    """`seed` is another one at every call."""
    kept = jax.random.bernoulli(jax.random.key(seed, impl="rbg"), 1 - p, x.shape)
    scaled = jnp.where(kept, _wide(x) / (1 - p), 0).astype(x.dtype)
    return _layer_norm(scaled + residual, w, b)


def concat_norm(x: Array, y: Array, w: Array, b: Array) -> Array:
    return _layer_norm(jnp.concatenate((x, y), -1), w, b)


def gelu(x: Array) -> Array:
    return _gelu(_wide(x), approximate=False).astype(x.dtype)


def gelu_tanh(x: Array) -> Array:
    return _gelu(_wide(x), approximate=True).astype(x.dtype)


def gelu_backward(dy: Array, x: Array) -> Array:
    return jax.vjp(gelu, x)[1](dy)[0]


def gelu_tanh_backward(dy: Array, x: Array) -> Array:
    return jax.vjp(gelu_tanh, x)[1](dy)[0]


def swiglu(gate: Array, up: Array) -> Array:
    return jax.nn.silu(gate) * up


def geglu(gate_and_up: Array) -> Array:
    gate, up = jnp.split(gate_and_up, 2, -1)
    return gelu(gate) * up


def rope(x: Array, cos: Array, sin: Array) -> Array:
    first, second = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate((-second, first), -1) * sin


def quantize_int8(x: Array) -> Arrays:
    scale = jnp.maximum(jnp.abs(x).max(-1, keepdims=True) / 127, 1e-6)
    return jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8), scale


def dequantize_int8(q: Array, scale: Array) -> Array:
    return q.astype(scale.dtype) * scale


def quantize_fp8(x: Array) -> Arrays:
    limit = pointwise.FP8_MAX
    scale = jnp.maximum(jnp.abs(x).max(), 1e-6) / limit
    return jnp.clip(x / scale, -limit, limit).astype(jnp.float8_e4m3fn), scale


def dequantize_fp8(q: Array, scale: Array) -> Array:
    return q.astype(scale.dtype) * scale


def cross_entropy_32k(logits: Array, target: Array) -> Array:
    picked = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
    return (_logsumexp(_wide(logits), -1) - _wide(picked)).mean().astype(logits.dtype)


def cross_entropy_128k(logits: Array, target: Array) -> Array:
    return cross_entropy_32k(logits, target)


def cross_entropy_32k_backward(grad: Array, log_probs: Array, target: Array, rows: Array) -> Array:
    hit = jnp.arange(log_probs.shape[1]) == target[:, None]
    return ((jnp.exp(_wide(log_probs)) - hit) * (_wide(grad) / _wide(rows))).astype(log_probs.dtype)


def cross_entropy_128k_backward(grad: Array, log_probs: Array, target: Array, rows: Array) -> Array:
    return cross_entropy_32k_backward(grad, log_probs, target, rows)


def huber_loss(x: Array, y: Array) -> Array:
    gap = jnp.abs(_wide(x) - _wide(y))
    return jnp.where(gap < 1, 0.5 * gap * gap, gap - 0.5).mean().astype(x.dtype)


def kl_loss(log_probs: Array, target: Array) -> Array:
    p, q = _wide(target), _wide(log_probs)
    terms = jnp.where(p > 0, p * (jnp.log(p) - q), 0)
    return (terms.sum() / len(target)).astype(target.dtype)


def cosine_similarity(x: Array, y: Array) -> Array:
    x32, y32 = _wide(x), _wide(y)
    lengths = jnp.maximum(jnp.linalg.norm(x32, axis=-1), 1e-8) * jnp.maximum(
        jnp.linalg.norm(y32, axis=-1), 1e-8
    )
    return ((x32 * y32).sum(-1) / lengths).astype(x.dtype)


def adamw(param: Array, grad: Array, mean: Array, square: Array, rate: Array) -> Arrays:
    mean = mean + (grad - mean) * (1 - steps.BETA1)
    square = square * steps.BETA2 + grad * grad * (1 - steps.BETA2)
    step = rate * mean / (jnp.sqrt(square) + steps.EPS)
    return param * (1 - rate * steps.DECAY) - step, mean, square


def lion(param: Array, grad: Array, mean: Array, rate: Array) -> Arrays:
    update = jnp.sign(mean * steps.BETA1 + grad * (1 - steps.BETA1))
    return param * (1 - rate * steps.DECAY) - rate * update, mean + (grad - mean) * (1 - steps.BETA2)


def sgd_momentum(param: Array, grad: Array, momentum: Array, rate: Array) -> Arrays:
    momentum = momentum * steps.MOMENTUM + grad
    return param - rate * momentum, momentum


def batch_norm_relu(x: Array, mean: Array, var: Array, w: Array, b: Array) -> Array:
    factor = _wide(w) * jax.lax.rsqrt(_wide(var) + images.EPS)
    offset = _wide(b) - _wide(mean) * factor
    return jax.nn.relu(_wide(x) * factor[:, None, None] + offset[:, None, None]).astype(x.dtype)


def batch_norm_train(x: Array, w: Array, b: Array) -> Array:
    wide = _wide(x)
    mean, var = wide.mean((0, 2, 3), keepdims=True), wide.var((0, 2, 3), keepdims=True)
    normed = (wide - mean) * jax.lax.rsqrt(var + images.EPS)
    return (normed * _wide(w)[:, None, None] + _wide(b)[:, None, None]).astype(x.dtype)


def group_norm_silu(x: Array, w: Array, b: Array) -> Array:
    grouped = _wide(x).reshape(len(x), images.GROUPS, -1)
    mean, var = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    normed = ((grouped - mean) * jax.lax.rsqrt(var + images.EPS)).reshape(x.shape)
    return jax.nn.silu(normed * _wide(w)[:, None, None] + _wide(b)[:, None, None]).astype(x.dtype)


def preprocess(pixels: Array, mean: Array, std: Array) -> Array:
    scaled = pixels.transpose(0, 3, 1, 2).astype(mean.dtype) / 255
    return (scaled - mean[:, None, None]) / std[:, None, None]


def transpose_scale(x: Array) -> Array:
    return x.T * 0.125


def column_statistics(x: Array) -> Arrays:
    wide = _wide(x)
    return wide.mean(0).astype(x.dtype), wide.var(0).astype(x.dtype)


def masked_mean_pool(hidden: Array, mask: Array) -> Array:
    weight = mask[:, :, None].astype(hidden.dtype)
    return (hidden * weight).sum(1) / jnp.maximum(weight.sum(1), 1)


def cumulative_sum(x: Array) -> Array:
    return jnp.cumsum(_wide(x), -1).astype(x.dtype)


def argmax_gather(scores: Array, table: Array) -> Array:
    return table[scores.argmax(-1)]
