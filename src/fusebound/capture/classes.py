"""The class of every framework operator that fusebound knows, and the code of the boundary that it makes.

All operators that the framework tags `core` are here. Names are packets (`softmax` stands for its
overloads). Where an operator's class depends on its arguments, the strongest stands: `mse_loss`, which may
reduce, is a reduction.
"""

from __future__ import annotations

from fusebound.capture.encode import words
from fusebound.capture.lower.context import Unlowered
from fusebound.capture.registry import CUSTOM
from fusebound.ir.ops import OpClass

POINTWISE = words("""
__and__ __lshift__ __or__ __rshift__ __xor__ _native_batch_norm_legit_no_training _prelu_kernel _to_copy
abs acos acosh add addcdiv addcmul arange asin asinh atan atan2 atanh batch_norm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max
clamp_min clone contiguous convert_element_type copy cos cosh deg2rad div elu elu_backward eq erf erfc
exp exp2 expm1 eye fill fix floor floor_divide fmax fmin fmod frac full full_like ge gelu gelu_backward
glu gt hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
hardtanh_backward huber_loss_backward isfinite isinf isnan le leaky_relu leaky_relu_backward lerp log
log10 log1p log2 log_sigmoid logaddexp logical_and logical_not logical_or logical_xor logit lt
masked_fill maximum minimum mish mse_loss_backward mul nan_to_num native_dropout_backward ne neg new_full
new_ones new_zeros nll_loss2d_backward nll_loss_backward ones ones_like pow prelu rad2deg reciprocal relu
relu6 remainder round rsqrt rsub scalar_tensor selu sgn sigmoid sigmoid_backward sign silu silu_backward
sin sinh smooth_l1_loss_backward softplus softplus_backward softshrink special_erf special_expit
special_xlogy sqrt square sub tan tanh tanh_backward threshold threshold_backward to tril triu
true_divide truediv trunc type_as where xlogy zero zeros zeros_like
""")
REDUCE = words("""
_adaptive_avg_pool2d _adaptive_avg_pool3d _embedding_bag _log_softmax _log_softmax_backward_data
_native_batch_norm_legit _native_batch_norm_legit_functional _softmax _softmax_backward_data
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d all amax amin aminmax any argmax argmin
avg_pool1d avg_pool2d avg_pool3d binary_cross_entropy_with_logits cosine_similarity count_nonzero
group_norm huber_loss kl_div l1_loss layer_norm linalg_vector_norm log_softmax logsumexp max max_pool1d
max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices mean min mse_loss nansum
native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward norm prod
rms_norm smooth_l1_loss softmax special_logsumexp std std_mean sum var var_mean
""")
MOVE = words("""
_reshape_copy _unsafe_view alias alias_copy as_strided broadcast_to cat channel_shuffle chunk concat
concatenate constant_pad_nd detach diagonal expand expand_as expand_copy flatten flip lift_fresh mT movedim
narrow narrow_copy numpy_T pad permute permute_copy pixel_shuffle pixel_unshuffle positive reflection_pad1d
reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad2d replication_pad3d reshape roll
rot90 select select_copy select_scatter slice slice_copy slice_scatter split split_copy split_with_sizes
split_with_sizes_copy squeeze squeeze_copy stack swapaxes t tensor_split tile transpose transpose_copy unbind
unbind_copy unflatten unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy view view_as
view_copy
""")
GATHER = words("""
cross_entropy_loss embedding gather index index_select nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward
nll_loss_nd take_along_dim grid_sampler_2d upsample_bilinear2d upsample_nearest2d
""")
SCATTER = words("""
_unsafe_index_put bincount col2im embedding_dense_backward histc index_add index_copy index_fill index_put
index_reduce masked_scatter max_pool2d_with_indices_backward one_hot put scatter scatter_add scatter_reduce
""")
SCAN = words("_cummax_helper _cummin_helper cummax cummin cumprod cumsum logcumsumexp")
CONTRACT = words("""
_cdist_forward _convolution _efficient_attention_forward _flash_attention_forward _grouped_mm _int_mm
_native_multi_head_attention _pdist_forward _scaled_dot_product_attention_math
_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _scaled_mm
_transformer_encoder_layer_fwd addbmm addmm addmv addr baddbmm bilinear bmm cdist conv1d conv2d conv3d
conv_transpose1d conv_transpose2d conv_transpose3d convolution convolution_backward dot einsum gru inner
linear linear_backward lstm matmul mm mv outer rnn_relu rnn_tanh scaled_dot_product_attention tensordot vdot
avg_pool2d_backward _adaptive_avg_pool2d_backward _fft_c2r _fft_r2c
""")
RANDOM = words("""
alpha_dropout bernoulli cauchy dropout exponential feature_alpha_dropout feature_dropout geometric log_normal
multinomial native_dropout normal normal_functional poisson rand rand_like randint randint_like randn
randn_like randperm random rrelu rrelu_with_noise rrelu_with_noise_functional uniform
""")
SIZE = words("""
_local_scalar_dense _unique2 item masked_select nonzero sym_is_contiguous sym_numel sym_size
sym_storage_offset sym_stride unique unique_consecutive unique_dim
""")
OPAQUE = words("""
argsort bucketize empty empty_like empty_strided kthvalue median mode msort nanmedian new_empty new_empty_strided
quantile nanquantile resize searchsorted sort topk
""")

_TABLES: tuple[tuple[frozenset[str], OpClass], ...] = (
    (POINTWISE, "pointwise"),
    (REDUCE, "reduce"),
    (MOVE, "move"),
    (GATHER, "gather"),
    (SCATTER, "scatter"),
    (SCAN, "scan"),
    (CONTRACT, "contract"),
    (RANDOM, "random"),
    (SIZE | OPAQUE, "opaque"),
)
_CODES: dict[OpClass, str] = {
    "contract": "F607", "scan": "F608", "random": "F606", "scatter": "F609",
}  # fmt: skip


def packet(target: str) -> str:
    """`aten.add_.Tensor` → `add`, `aten._foreach_add.List` → `add`."""
    name = target.partition(".")[2].partition(".")[0].removeprefix("_foreach_")
    return name.removesuffix("_") if not name.startswith("__") else name


def classify(target: str) -> OpClass | None:
    """The class of an operator, or None for one that fusebound does not know."""
    if target in CUSTOM:
        return CUSTOM[target].cls
    name = packet(target)
    return next((cls for table, cls in _TABLES if name in table), None)


def boundary(target: str, reason: Unlowered) -> tuple[OpClass, str]:
    """(class, code) of a use of an operator that stays with the framework.

    An operator that has no primitives keeps the class only where that class says why (a contraction, a scan, a
    scatter); one whose class has primitives, but not for this operator or this use, is opaque: F610 if it is
    understood, F601 if it is not.
    """
    namespace = target.partition(".")[0]
    if namespace == "higher_order":
        return "opaque", "F603"
    if namespace in ("operator", "torch", "math"):
        return "opaque", "F602"
    if target in CUSTOM:
        return CUSTOM[target].cls, reason.code
    cls = classify(target)
    if cls is not None and cls in _CODES:
        return cls, _CODES[cls]
    if packet(target) in SIZE:
        return "opaque", "F602"
    return "opaque", "F610" if reason.code == "F601" and cls is not None else reason.code
