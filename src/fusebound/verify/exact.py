"""Which programs consist of correctly rounded operators only, so that "eager" numerics means equal bits."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

_TRANSCENDENTAL = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2
    sigmoid log_sigmoid logit erf erfc erfinv pow rsqrt gelu silu mish softplus elu celu selu softmax
    log_softmax logsumexp cross_entropy_loss cross_entropy binary_cross_entropy
    binary_cross_entropy_with_logits scaled_dot_product_attention
"""


def correctly_rounded(program: ExportedProgram) -> bool:
    """Whether no operator of the program computes a transcendental function (in-place forms included)."""
    names = frozenset(_TRANSCENDENTAL.split())
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        if isinstance(node.target, OpOverload):
            name = node.target._schema.name.partition("::")[2].rstrip("_")
            if name in names:
                return False
    return True
