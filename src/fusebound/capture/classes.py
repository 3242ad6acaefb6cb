"""The class of every framework operator that fusebound knows, and the code of the boundary that it makes."""

from __future__ import annotations

from fusebound.capture.lower.context import Unlowered

CONTRACT = frozenset(
    "mm bmm addmm baddbmm addbmm addmv mv dot vdot matmul linear einsum bilinear outer inner tensordot "
    "convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d _convolution "
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math _flash_attention_forward "
    "_efficient_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd "
    "convolution_backward linear_backward lstm gru rnn_tanh rnn_relu _int_mm _scaled_mm _grouped_mm "
    "_cdist_forward cdist cdist_forward _pdist_forward addr".split()
)
SCAN = frozenset("cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper sort".split())
RANDOM = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like native_dropout dropout bernoulli normal "
    "uniform random multinomial poisson exponential geometric log_normal cauchy alpha_dropout feature_dropout "
    "rrelu rrelu_with_noise rrelu_with_noise_functional feature_alpha_dropout normal_functional".split()
)
SCATTER = frozenset(
    "index_put _unsafe_index_put index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce "
    "masked_scatter put masked_fill_index embedding_dense_backward bincount histc one_hot".split()
)
SIZE = frozenset(
    "nonzero masked_select unique _unique2 unique_dim unique_consecutive item _local_scalar_dense sym_size "
    "sym_stride sym_numel sym_storage_offset".split()
)


def boundary(target: str, reason: Unlowered) -> tuple[str, str]:
    """(class, code) of an operator that stays with the framework."""
    namespace, _, rest = target.partition(".")
    packet = rest.split(".")[0].removesuffix("_")
    if namespace == "higher_order":
        return "opaque", "F603"
    if namespace in ("operator", "torch", "math"):
        return "opaque", "F602"
    if packet in CONTRACT:
        return "contract", "F607"
    if packet in SCAN:
        return "scan", "F608"
    if packet in RANDOM:
        return "random", "F606"
    if packet in SCATTER:
        return "scatter", reason.code
    if packet in SIZE:
        return "opaque", "F602"
    return "opaque", reason.code
