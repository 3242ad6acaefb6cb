"""Which operators round, and which of them correctly: what "equal bits" can be asked of, and what may lie on
a tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

_TRANSCENDENTAL = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2
    sigmoid log_sigmoid logit erf erfc erfinv pow rsqrt gelu silu mish softplus elu celu selu softmax
    log_softmax logsumexp sqrt cross_entropy_loss cross_entropy binary_cross_entropy
    binary_cross_entropy_with_logits scaled_dot_product_attention
"""
_EXACT = """
    neg abs sign relu relu6 clamp clamp_min clamp_max hardtanh maximum minimum max min amax amin where
    masked_fill floor ceil round trunc clone contiguous copy cat stack gather index index_select embedding
    index_put scatter fill zero take_along_dim topk sort repeat flip roll pad constant_pad_nd tril triu one_hot
    lift_fresh_copy to _to_copy type_as
"""

_DISCONTINUOUS = """
    eq ne lt le gt ge isclose floor ceil round trunc frac sign sgn heaviside fmod remainder floor_divide argmax argmin
    argsort bucketize searchsorted fake_quantize_per_tensor_affine logical_and logical_or logical_xor logical_not any
    all count_nonzero nonzero
"""
_MOVES = """
    view reshape permute transpose t expand expand_as squeeze unsqueeze flatten select slice narrow contiguous clone
    detach alias flip roll cat stack to _to_copy type_as floor_divide floor_divide_ detach_ movedim unflatten
"""
"""Operators without a tag of `torch.Tag` of which each value is a valid operand."""
_SUMS = ("sum", "nansum", "mean")
_DIGITS = 53
"""Binary digits of a float64."""


def transcendentals(program: ExportedProgram) -> int:
    """How many operators of the program (subgraphs included) compute a transcendental function; all others are
    correctly rounded, or run by eager's own kernels."""
    names = frozenset(_TRANSCENDENTAL.split())
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = [node.target for m in modules for node in m.graph.nodes]
    return sum(isinstance(t, OpOverload) and _name(t) in names for t in targets)


def constants(program: ExportedProgram) -> tuple[float, ...]:
    """The finite numbers among the arguments of the program's operators, subgraphs included, in order."""
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    args = [a for m in modules for n in m.graph.nodes for a in (*n.args, *n.kwargs.values())]
    found = [float(a) for a in args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    return tuple(dict.fromkeys(abs(a) for a in found if math.isfinite(a) and a))


def rounds(target: object) -> bool:
    """Whether an operator makes new values of tensors, in new memory or element by element in the first operand's, and
    may round them: no view, no copy, no selection."""
    if not isinstance(target, OpOverload):
        return False
    in_place = target._schema.name.endswith("_") and torch.Tag.pointwise in target.tags
    if not in_place and any(r.alias_info is not None for r in target._schema.returns):
        return False
    if target._schema.is_mutable and not in_place:
        return False
    takes_tensor = any("Tensor" in str(a.type) for a in target._schema.arguments)
    return takes_tensor and _name(target) not in _EXACT.split()


def selects(args: Sequence[Any], result: torch.Tensor) -> bool:
    """Whether all values of a result stand among those of its operands, or are 0 or not finite: a maximum, a pooling, a
    median is rounded nowhere."""
    given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    if not given:
        return False
    known = torch.cat([a.reshape(-1).to(result.dtype) for a in given])
    return bool((torch.isin(result, known) | (result == 0) | ~result.isfinite()).all())


def adds_exactly(op: OpOverload, args: Sequence[Any], dtype: torch.dtype | None) -> bool:
    """Whether a sum has no rounding in any order: its terms, of the user's type `dtype`, are multiples of one number q,
    and their sizes add up to what that type holds in units of q."""
    if _name(op) not in _SUMS or dtype is None or not isinstance(x := args[0], torch.Tensor):
        return False
    if not x.is_floating_point() or not dtype.is_floating_point:
        return not x.is_floating_point()
    terms = x[x != 0].to(torch.float64)
    if not terms.numel() or not bool(terms.isfinite().all()):
        return not terms.numel()
    fraction, exponent = torch.frexp(terms)
    digits = torch.ldexp(fraction, torch.tensor(_DIGITS)).to(torch.int64)
    lowest = exponent - _DIGITS + (digits & -digits).to(torch.float64).log2().to(exponent.dtype)
    unit = math.ldexp(1.0, int(lowest.min()))
    return float(terms.abs().sum()) <= 2 / torch.finfo(dtype).eps * unit


def _name(op: OpOverload) -> str:
    return op._schema.name.partition("::")[2].rstrip("_")


def discontinuous(target: OpOverload) -> bool:
    """Whether an operator's result may jump where an operand moves by an ULP."""
    mode = any(a.name == "rounding_mode" for a in target._schema.arguments)
    return mode or _name(target).removeprefix("_foreach_") in _DISCONTINUOUS.split()


def is_free(program: ExportedProgram, name: str, value: object) -> bool:
    """Whether the input `name`, a tensor of integers, is read by arithmetic alone, directly or through other integers:
    no operator takes it for indices, sizes or counts."""
    if not isinstance(value, torch.Tensor) or not _integer(value):
        return False
    todo = [n for n in program.graph.nodes if n.op == "placeholder" and n.name == name]
    seen = set(todo)
    while todo:
        for user in todo.pop().users:
            if user.op == "output" or user in seen:
                continue
            if not isinstance(user.target, OpOverload) or not _takes_any(user.target):
                return False
            seen.add(user)
            if not isinstance(made := user.meta.get("val"), torch.Tensor) or _integer(made):
                todo.append(user)
    return True


def _integer(t: torch.Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)


def _takes_any(op: OpOverload) -> bool:
    return torch.Tag.pointwise in op.tags or torch.Tag.reduction in op.tags or _name(op) in _MOVES.split()
