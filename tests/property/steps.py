"""What random programs are made of: lines of Python, by class of operator, with holes that `programs` fills.

`{a}` is a value, `{b}` one that broadcasts with it, `{c}` one of its shape, `{m}` a mask; `{d}` and `{e}` are axes
of it, `{k}` a small integer, `{r}` a real number, `{s}` an index expression, `{p}` an order of axes, `{w}` another
shape, `{l}` a list of indices, `{t}` a type, `{i}`, `{i0}` and `{j}` index tensors.
"""

from __future__ import annotations

EXACT: dict[str, tuple[str, ...]] = {
    "pointwise": (
        "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * {k} - 1", "{k} - {a}", "{a}.neg()", "{a}.abs()",
        "torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "{a}.clamp(-{k}, {k})", "{a}.clamp_min({k})",
        "torch.where({m}, {a}, {b})", "torch.where({m}, {a}, {k})", "{a} > {b}", "{a} == {b}", "{a} <= {k}",
        "{a} != {b}", "({a} > 0) & ({b} < {k})", "({a} > 1) ^ ({b} > 0)", "~{m}", "{a}.logical_not()",
        "{a}.to({t})", "{a}.float()", "{a}.relu()", "{a}.sign()", "{a}.floor()", "{a}.square()", "{a} // {k}",
        "{a} % {k}", "{a} & {b}", "{a} | {k}", "{a} << {k}", "{a} >> {k}", "{a}.masked_fill({m}, {k})",
        "torch.addcmul({a}, {b}, {c})", "{a}.type_as({b})", "torch.add({a}, {b}, alpha={k})", "{a}.round()",
        "{a} // {b}", "{a} % {b}", "torch.fmod({a}, {b})", "torch.zeros_like({a}) + {b}",
        "torch.arange({a}.shape[{d}])", "{a} + torch.full({a}.shape, {k})", "F.hardtanh({a})",
    ),
    "reduce": (
        "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.sum()", "{a}.sum(({d}, {e}))", "{a}.amax({d})",
        "{a}.amin({d}, True)", "{a}.argmax({d})", "{a}.argmin({d}, keepdim=True)", "{a}.any({d})",
        "({a} > 0).all({d})", "{a}.max({d})[0]", "{a}.min({d})[1]", "{a}.max()", "{a}.count_nonzero({d})",
        "{a}.amax(({d}, {e}), keepdim=True)", "{a}.any()", "{a} - {a}.amax({d}, keepdim=True)",
        "{a} + {a}.sum({d}, keepdim=True)", "{a}.aminmax(dim={d})[0]",
    ),
    "move": (
        "{a}.mT", "{a}.transpose({d}, {e})", "{a}.permute({p})", "{a}.movedim({d}, {e})", "{a}.unsqueeze({d})",
        "{a}.squeeze()", "{a}.squeeze({d})", "{a}.reshape(-1)", "{a}.reshape({w})", "{a}.flatten({d})",
        "{a}.view({a}.shape)", "{a}[:]", "{a}[{s}]", "{a}[{s}]", "{a}.select({d}, -1)",
        "{a}.narrow({d}, 0, {k})", "{a}.flip({d})", "{a}.roll({k}, {d})", "F.pad({a}, ({k}, 1))",
        "F.pad({a}, (1, 0, 0, {k}), value={k})", "F.pad({a}, (-1, {k}))", "torch.cat(({a}, {c}), {d})",
        "torch.cat(({a}, {a}[{s}]), {d})", "torch.stack(({a}, {c}), {d})", "{a}.expand({k}, *{a}.shape)",
        "{a}.unbind({d})[0]", "{a}.expand_as({b})", "{a}.chunk(2, {d})[-1]", "{a}.split({k}, {d})[0]",
        "{a}.repeat({k}, *[1] * {a}.dim())", "{a}.contiguous()", "{a}.clone()", "{a}.tril({k})", "{a}.triu()",
        "{a}.repeat_interleave({k}, {d})", "{a}.diagonal()", "{a}.unfold({d}, 2, {k})",
        "torch.slice_scatter({a}, {a}[{s}], 0)", "{a}.unflatten({d}, (1, -1))", "{a}.rot90()",
        "torch.select_scatter({a}, {a}.select({d}, 0), {d}, -1)", "{a}.tile({k}, 1)", "{a}.T", "{a}.view(-1)",
        "{a}.detach()",
    ),
    "gather": (
        "{a}.index_select({d}, {i})", "torch.gather({a}, {d}, {j})", "{a}[{i0}]", "F.embedding({i0}, {a})",
        "torch.take_along_dim({a}, {j}, {d})", "{a}[..., {l}]",
    ),
    "boundary": (
        "{a}.cumsum({d})", "{a}.sort({d})[0]", "{a}.cummax({d})[0]", "{a}.nonzero()", "{a}[{m}]",
        "{a} @ {a}.mT", "{a}.index_add({d}, {i}, {a}.index_select({d}, {i}))",
        "{a}.scatter({d}, {j}, {k})", "{a}.topk(1, {d})[0]", "{a}.index_fill({d}, {i}, {k})",
        "{a}.median({d})[0]", "{a}.scatter_add({d}, {j}, torch.ones_like({j}, dtype={a}.dtype))",
    ),
    "in place": (
        "{a}.add_({b})", "{a}.sub_({b})", "{a}.mul_({k})", "{a} += {b}", "{a} *= {k}", "{a}.copy_({b})",
        "{a}.fill_({k})", "{a}.clamp_(-{k}, {k})", "{a}.masked_fill_({m}, {k})", "{a}.neg_()", "{a}[{s}] = {k}",
        "{a}[{s}].add_({k})", "{a}[{s}] += {b}", "{a}[{s}].copy_({a}.flip({d})[{s}])", "{a}.relu_()",
        "{a}.zero_()", "{a}.index_fill_({d}, {i}, {k})", "{a}[{i0}] = {k}", "{a}[{m}] = {k}",
        "{a}.mT.sub_({b})", "{a}.select({d}, 0).add_({k})", "{a}.abs_()", "{a}.square_()",
        "{a}.addcmul_({b}, {c})", "{a}.view(-1).add_({k})", "{a}.transpose({d}, {e}).copy_({b})",
        "{a}.maximum({b}).neg_()", "{a}.sub_({a}.flip({d}))", "{a}.sub_({a}.amax({d}, keepdim=True))",
        "{a}.tril_()", "{a}.t_()", "{a}.unsqueeze_({d})",
    ),
}  # fmt: skip
"""Lines whose results are exact on small integers, in whatever order they are computed."""

INTEGRAL: dict[str, tuple[str, ...]] = {
    "boundary": ("{a}.unique()", "{a}.unique(return_counts=True)[1]", "{a}.unique(dim={d})"),
}
"""Further lines, for programs over integers: how many values differ, and so the size, hangs on the last bit."""

REAL: dict[str, tuple[str, ...]] = {
    "pointwise": (
        "{a}.exp()", "{a}.log()", "{a}.abs().sqrt()", "{a}.rsqrt()", "{a}.tanh()", "{a}.sigmoid()", "{a}.erf()",
        "{a}.sin()", "{a}.cos()", "F.gelu({a})", "F.gelu({a}, approximate='tanh')", "F.silu({a})",
        "F.softplus({a})", "{a}.log1p()", "{a}.expm1()", "{a}.reciprocal()", "{a} / {b}", "{a} / {r}",
        "{r} / {a}", "{a} * {r}", "{a}.pow(3)", "{a}.abs() ** {r}", "torch.atan2({a}, {b})",
        "torch.lerp({a}, {c}, {r})", "torch.addcdiv({a}, {b}, {c})", "F.elu({a})", "F.mish({a})",
        "F.leaky_relu({a})", "F.hardswish({a})", "F.logsigmoid({a})", "{a}.exp2()", "{a}.log2()",
        "torch.hypot({a}, {b})", "{a}.erfc()", "{a}.sinh()", "{a}.atan()", "torch.logaddexp({a}, {b})",
        "{a}.trunc()", "{a}.frac()", "{a}.lerp({b}, {r})", "torch.nan_to_num({a})", "{a}.isnan()",
        "torch.copysign({a}, {b}.nan_to_num())", "{a}.clamp({b}, None)", "F.tanhshrink({a})", "torch.xlogy({a}, {b})",
        "{a}.sinc()", "{a}.logit(0.1)", "F.threshold({a}, 0.1, {r})", "F.relu6({a})", "F.selu({a})",
    ),
    "reduce": (
        "{a}.mean({d})", "{a}.mean({d}, keepdim=True)", "{a}.mean()", "{a}.softmax({d})",
        "{a}.log_softmax({d})", "{a}.var({d})", "{a}.std({d}, keepdim=True)", "{a}.logsumexp({d})",
        "F.layer_norm({a}, {a}.shape[-1:])", "F.normalize({a}, dim={d})", "F.rms_norm({a}, {a}.shape[-1:])",
        "{a}.norm(dim={d})", "{a}.prod({d})", "{a}.var(({d}, {e}), correction=0)", "F.mse_loss({a}, {c})",
        "{a}.sum({d}, dtype=torch.float64)", "F.softmin({a}, {d})", "F.smooth_l1_loss({a}, {c})",
        "F.cosine_similarity({a}, {c}, {d})", "F.group_norm({a}, 1)", "torch.var_mean({a}, {d})[0]",
        "{a}.nansum({d})",
    ),
    "random": (
        "torch.rand_like({a}) * {a}", "F.dropout({a}, 0.3, True)", "torch.randn_like({a}) + {b}",
        "torch.rand({a}.shape)", "torch.bernoulli({a}.sigmoid())", "torch.randint_like({a}, 5)",
    ),
    "boundary": (
        "{a}.sign().unique()", "{a} @ {c}.mT", "{a}.cumprod({d})", "F.linear({a}, {c})", "{a}.logcumsumexp({d})",
        "torch.cdist({a}, {c})",
    ),
    "in place": (
        "{a}.exp_()", "{a}.div_({a}.sum({d}, keepdim=True))", "{a}.mul_({r})", "{a}.sigmoid_()", "{a} /= {r}",
        "{a}.tanh_()", "{a}.lerp_({c}, {r})", "{a}.clamp_min_({r})", "{a}[{s}].sub_({a}.mean())",
        "{a}[{s}] = {a}[{s}].softmax(-1)", "{a}.addcdiv_({b}, {c})", "F.relu({a}, inplace=True)",
        "{a}.reciprocal_()", "F.dropout({a}, 0.5, True, inplace=True)",
    ),
}  # fmt: skip
"""Further lines, for programs over real numbers; a NaN has no sign to copy."""

WEIGHTS = {"pointwise": 44, "reduce": 14, "move": 18, "gather": 3, "random": 3, "boundary": 3, "in place": 12}
