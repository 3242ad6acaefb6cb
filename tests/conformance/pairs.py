"""Labelled pairs of operators: the true answer, written down before asking.

A label names the code that vetoes the pair alone ("" where nothing does), words that the message must contain (the
obstacle, not its symptom), words of the change that would allow it, and the bytes that one kernel would save, where
they can be told by hand: an intermediate that vanishes is written and read, a common input is read once less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Pair:
    """One question: may the operators `a` and `b` of `fn` share a kernel? `facts` are arguments of can_fuse."""

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[], Tensors]
    a: str
    b: str
    code: str = ""
    says: str = ""
    flip: str = ""
    saved: int | None = None
    notes: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


PAIRS: list[Pair] = []
ROWS, COLS = 1024, 512
X = ROWS * COLS * 4
"""Bytes of the usual float32 matrix."""
COLUMN, ROW = ROWS * 4, COLS * 4


def mat(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values between -3 and 3 in any shape, the usual one by default."""
    size = shape or (ROWS, COLS)
    n = int(torch.Size(size).numel())
    return torch.linspace(-3, 3, max(n, 1))[:n].reshape(size).to(dtype)


def ints(*shape: int, below: int = 64) -> torch.Tensor:
    """Valid indices."""
    return (torch.arange(int(torch.Size(shape).numel())) % below).reshape(shape)


def one() -> Tensors:
    return (mat(),)


def two() -> Tensors:
    return mat(), mat()


def pair(
    a: str, b: str, code: str = "", *, inputs: Callable[[], Tensors] = one, says: str = "", flip: str = "",
    saved: int | None = None, notes: str = "", **facts: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Add a label for the decorated function."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        PAIRS.append(Pair(fn.__name__, fn, inputs, a, b, code, says, flip, saved, notes, facts))
        return fn

    return add


# One value flows from an operator to the next, point by point.


@pair("relu", "mul", saved=2 * X)
def pointwise_chain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 3


@pair("add", "relu", inputs=lambda: (mat(), mat(COLS)), saved=2 * X)
def bias_and_activation(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + b)


@pair("gt", "where", inputs=two, saved=2 * X // 4 + X)
def a_select_is_no_branch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, y)


@pair("to", "mul", inputs=lambda: (mat(dtype=torch.bfloat16),), saved=2 * X)
def a_cast_that_the_user_wrote(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * 2


@pair("add", "sub", saved=2 * X + X)
def a_diamond_without_its_middle(x: torch.Tensor) -> torch.Tensor:
    return x - (x + 1)


@pair("div", "round", saved=2 * X)
def quantizing_in_float32(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x / 0.1).clamp(-128, 127).to(torch.int8)


@pair("floor_divide", "add", inputs=lambda: (ints(ROWS, COLS),), saved=4 * X)
def integers(x: torch.Tensor) -> torch.Tensor:
    return x // 3 + 1


# Reductions with what comes before and after them.


@pair("add", "sum", saved=2 * X)
def a_prologue_of_a_sum(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).sum(-1)


@pair("sum", "div", saved=X + 2 * COLUMN)
def a_row_divided_by_its_sum(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, keepdim=True)


@pair("softmax", "mul", saved=2 * X)
def an_epilogue_of_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 2


@pair("layer_norm", "gelu", saved=2 * X)
def norm_and_activation(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (COLS,)))


@pair("amax", "sub", saved=X + 2 * COLUMN)
def a_maximum_subtracted(x: torch.Tensor) -> torch.Tensor:
    return x - x.amax(-1, keepdim=True)


@pair("mul", "argmax", saved=2 * X)
def argmax_of_scores(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).argmax(-1)


@pair("logsumexp", "sub", saved=X + 2 * COLUMN)
def log_probabilities(x: torch.Tensor) -> torch.Tensor:
    return x - torch.logsumexp(x, -1, keepdim=True)


@pair("isnan", "any", saved=2 * X // 4)
def any_over_a_row(x: torch.Tensor) -> torch.Tensor:
    return torch.isnan(x).any(-1)


@pair("mul", "sum", saved=2 * X)
def a_sum_over_the_outer_axis(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


@pair("softmax", "mul", saved=2 * X)
def softmax_over_the_outer_axis(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 0) * 2


@pair("mean", "sub", saved=X + 2 * ROW)
def columns_without_their_mean(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


@pair(
    "batch_norm",
    "relu",
    inputs=lambda: (mat(8, 16, 32, 32), mat(16), mat(16).abs()),
    saved=2 * 8 * 16 * 1024 * 4,
)
def batch_norm_at_inference(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.batch_norm(x, mean, var))


@pair("group_norm", "silu", inputs=lambda: (mat(8, 32, 16, 16),), saved=2 * 8 * 32 * 256 * 4)
def group_norm_and_activation(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 8))


# Views and moves between the two.


@pair("add", "mul", inputs=lambda: (mat(), mat(COLS, ROWS)), saved=2 * X)
def a_transposed_reader(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + 1).t() * y


@pair("add", "sum", saved=2 * X)
def a_transposed_sum(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).t().sum(-1)


@pair("relu", "add", inputs=lambda: (mat(512, 512),), saved=2 * 512 * 512 * 4)
def a_matrix_and_its_transpose(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return y + y.t()


@pair("mul", "add", inputs=lambda: (mat(8, 128, 512), mat(8, 8, 128, 64)), saved=2 * 8 * 128 * 512 * 4)
def heads_taken_apart(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (x * 2).view(8, 128, 8, 64).transpose(1, 2) + bias


@pair("add", "mul", inputs=lambda: (mat(), mat(ROWS, COLS // 2)), says="")
def a_slice_of_what_only_it_reads(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + 1)[:, : COLS // 2] * y


@pair("relu", "cat", inputs=two, saved=2 * X)
def one_piece_of_a_concatenation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.relu(x), y], -1)


@pair("pad", "mul", saved=2 * ROWS * (COLS + 2) * 4)
def a_padded_row(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (1, 1)) * 2


@pair("flip", "add", saved=2 * X + X)
def a_mirrored_reader(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1) + x


@pair("roll", "sub", saved=2 * X + X)
def a_rolled_reader(x: torch.Tensor) -> torch.Tensor:
    return x - x.roll(1, -1)


@pair("triu", "mul", inputs=lambda: (mat(512, 512),), saved=2 * 512 * 512 * 4)
def a_triangle(x: torch.Tensor) -> torch.Tensor:
    return torch.triu(x) * 2


@pair("add", "sum", saved=2 * X)
def two_rows_read_as_one(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).reshape(ROWS // 2, 2 * COLS).sum(-1)


@pair(
    "sum_1", "sum_2", "F502", inputs=lambda: (mat(96, 35),), says="reshape",
    flip="keep the axes apart instead of reshaping across them",
)  # fmt: skip
def a_reshape_across_rows_that_are_summed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y.sum(-1), y.reshape(56, 60).sum(-1)


# Data-dependent reads.


@pair("index_select", "add", inputs=lambda: (mat(64, COLS), ints(ROWS)), saved=2 * X)
def a_gather_on_the_producer_side(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.index_select(w, 0, i) + 1


@pair("embedding", "layer_norm", inputs=lambda: (ints(ROWS), mat(64, COLS)), saved=2 * X)
def an_embedding_and_its_norm(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.embedding(i, w), (COLS,))


@pair(
    "relu",
    "index",
    "F609",
    inputs=lambda: (mat(64, COLS), ints(ROWS)),
    says="gathers from a value that the kernel",
)
def a_gather_from_a_computed_table(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.relu(w)[i]


@pair("index_add", "mul", "F609", inputs=lambda: (mat(64, COLS), ints(ROWS), mat()), says="scatters by data")
def a_scatter_and_its_reader(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.index_add(w, 0, i, x) * 2


@pair("index_put", "mul", "F609", inputs=lambda: (mat(64, COLS), ints(ROWS), mat()), says="scatters by data")
def an_indexed_write(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.index_put(w, (i,), x) * 2


@pair("scatter_add", "add", "F609", inputs=lambda: (mat(), ints(ROWS, COLS), mat()), says="scatters by data")
def counts(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch.scatter_add(x, 1, i, s) + 1


# Siblings.


@pair("relu", "sigmoid", saved=X)
def two_readers_of_one_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x), torch.sigmoid(x)


@pair("layer_norm", "softmax", saved=X)
def two_row_reductions_of_one_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.layer_norm(x, (COLS,)), torch.softmax(x, -1)


@pair(
    "sum_1", "sum_2", "F503", says="an axis that another reduction of the group removes",
    flip="reduce over the same axes", saved=X,
)  # fmt: skip
def rows_and_columns_of_one_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(0), x.sum(1)


@pair("layer_norm", "layer_norm_1", "F501", says="domain", flip="give both operators one shape")
def sibling_norms_of_different_sizes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.layer_norm(x, (COLS,)), F.layer_norm(x[:, : COLS // 2], (COLS // 2,))


@pair("relu", "mul", "F501", says="", flip="give both operators one shape")
def readers_of_nearly_one_domain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x), x[:, 1:] * 2


@pair(
    "relu",
    "exp",
    "F107",
    inputs=two,
    says="neither feed one another nor read a common value",
    flip="both read",
    saved=0,
)
def strangers(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x), torch.exp(y)


# Values that others need too.


@pair("relu", "mul", saved=X, notes="F105")
def an_escaping_intermediate(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.relu(x)
    return y, y * 2


@pair("relu", "mul", inputs=lambda: (mat(), mat(COLS, COLS)), saved=X, notes="F106")
def a_consumer_outside(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.relu(x)
    return y * 2, y @ w


@pair("relu", "sub", "F501", says="domain", flip="give both operators one shape")
def an_escaping_value_read_at_shifted_points(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.relu(x)
    return y, y[:, 1:] - y[:, :-1]


@pair(
    "sum",
    "mul",
    "F501",
    says="once per repetition of its broadcast",
    inputs=lambda: (mat(COLS, 64), mat(ROWS, COLS)),
)
def a_reduced_vector_broadcast_over_rows(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w.sum(-1) * x


@pair(
    "exp",
    "mul",
    "F404",
    inputs=lambda: (mat(COLS), mat()),
    says="again for every row",
    flip="keep the small result",
)
def an_expensive_vector_broadcast_over_rows(r: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.exp(r) * x


@pair("exp", "mul", inputs=lambda: (mat(ROWS, 1), mat()), saved=2 * COLUMN)
def a_number_a_row(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.exp(c) * x


@pair(
    "mul", "mul_1", "F501", inputs=lambda: (mat(), mat(), mat(COLS)), says="share no value that has all of their axes",
    flip="a common operand of the full shape",
)  # fmt: skip
def two_tensors_by_one_row(x: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * s, y * s


@pair(
    "select", "index", "F609", inputs=lambda: (mat(), ints(40)), says="a part of x that the kernel",
    flip="gather from x itself",
)  # fmt: skip
def a_look_up_in_a_column(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[:, 0][i].sin()


# The whole grid before the next step.


WHOLE_GRID = {"says": "reduces everything to one value", "flip": "keep at least one axis", "hardware": "a100"}


@pair("sum", "div", "F504", **WHOLE_GRID)
def divided_by_the_total_on_a_gpu(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum()


@pair("linalg_vector_norm", "mul", "F504", **WHOLE_GRID)
def clipped_by_norm_on_a_gpu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.linalg.vector_norm(x)


@pair("sum", "div")
def divided_by_the_total(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum()


@pair("linalg_vector_norm", "mul")
def clipped_by_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.linalg.vector_norm(x)


@pair("cat", "sum", "F504", inputs=two, says="in pieces", flip="keep at least one axis")
def the_total_of_two_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y]).sum()


@pair("sum", "div", inputs=lambda: (mat(256),))
def divided_by_a_small_total(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum()


@pair("sum_1", "sum_2", "F503", says="reduces other axes", flip="reduce over the same axes")
def a_reduction_split_in_two(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1).sum(0)


@pair("group_norm", "silu", inputs=lambda: (mat(1, 32, 64, 64),))
def a_group_norm_of_one_group(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 1))


@pair("softmax", "add", "F503", inputs=lambda: (mat(512, 512),), says="", flip="reduce over the same axes")
def softmax_and_its_transpose(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)
    return y + y.t()


# Boundaries.


@pair(
    "matmul",
    "relu",
    "F607",
    inputs=lambda: (mat(256, 256), mat(256, 256)),
    says="the library does better",
    saved=2 * 256 * 256 * 4,
)
def a_product_and_its_activation(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w)


@pair(
    "linear",
    "gelu",
    "F607",
    inputs=lambda: (mat(256, 256), mat(256, 256)),
    says="linear",
    saved=2 * 256 * 256 * 4,
)
def a_linear_layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w))


@pair("conv2d", "relu", "F607", inputs=lambda: (mat(2, 8, 32, 32), mat(8, 8, 3, 3)), says="conv2d")
def a_convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.conv2d(x, w))


@pair("scaled_dot_product_attention", "add", "F607", inputs=lambda: (mat(2, 4, 64, 32),), says="attention")
def attention_and_residual(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x) + x


@pair("bmm", "softmax", "F607", inputs=lambda: (mat(4, 64, 64),), says="bmm")
def scores(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.bmm(x, x), -1)


@pair("cumsum", "mul", "F608", says="scans along an ordered axis")
def a_running_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, -1) * 2


@pair("cummax", "add", "F608", says="scans along an ordered axis")
def a_running_maximum(x: torch.Tensor) -> torch.Tensor:
    return torch.cummax(x, -1).values + 1


@pair("cumprod", "add", "F608", says="scans along an ordered axis")
def a_running_product(x: torch.Tensor) -> torch.Tensor:
    return torch.cumprod(x, -1) + 1


@pair("sort", "mul", "F610", says="has no kernel yet")
def sorted_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x, -1).values * 2


@pair("topk", "add", "F610", says="has no kernel yet")
def best_of_a_row(x: torch.Tensor) -> torch.Tensor:
    return torch.topk(x, 4).values + 1


@pair("max_pool2d", "relu", "F610", inputs=lambda: (mat(2, 8, 32, 32),), says="has no kernel yet")
def pooling(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.max_pool2d(x, 2))


@pair("nonzero", "add", "F602", says="data-dependent size", flip="static size")
def positions(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x) + 1


@pair(
    "masked_select",
    "mul",
    "F602",
    inputs=lambda: (mat(), mat() > 0),
    says="data-dependent size",
    flip="static size",
)
def selected(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, m) * 2


@pair("unique", "add", "F602", inputs=lambda: (ints(ROWS),), says="data-dependent size", flip="static size")
def distinct(x: torch.Tensor) -> torch.Tensor:
    return torch.unique(x) + 1


@pair("mul", "abs", "F604", inputs=lambda: (mat(dtype=torch.complex64),), says="complex64")
def complex_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.abs(x * 2)


@pair("to", "to_1", "F604", says="float8_e4m3fn")
def eight_bit_floats(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).to(torch.float32)


@pair(
    "add", "mul", "F507", inputs=lambda: (mat(0, COLS),), says="without elements", flip="at least one element"
)
def no_elements(x: torch.Tensor) -> torch.Tensor:
    return (x + 1) * 2


@pair("bernoulli", "mul", "F606", inputs=one, says="draws random numbers", numerics="eager")
def draws_of_the_framework(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(torch.sigmoid(x)) * 2


# What lies between.


@pair("relu", "mul", "F101", says="cumsum", flip="none while cumsum")
def a_boundary_between_two_operators(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return torch.cumsum(y, -1) * y


@pair(
    "relu",
    "add",
    "F101",
    inputs=lambda: (mat(256, 256), mat(256, 256)),
    says="matmul",
    flip="none while matmul",
)
def a_product_between_a_value_and_its_residual(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return y @ w + y


@pair("relu", "add", "F101", says="exp", flip="fuse exp as well")
def an_operator_between_that_could_come_along(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return torch.exp(y) + y


@pair("relu", "add", "F101", says="sort", flip="none while sort")
def a_sort_between(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return torch.sort(y, -1).values + y


# In place.


@pair("sub", "exp", saved=2 * X)
def a_chain_in_place(x: torch.Tensor) -> torch.Tensor:
    x.sub_(1)
    x.exp_()
    return x


@pair("mul", "add", inputs=two, saved=2 * X)
def an_update_from_another_input(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    p.add_(g * 0.1)
    return p


# Precision.


@pair("mul", "round", "", inputs=lambda: (mat(dtype=torch.bfloat16),), notes="F201", saved=X)
def a_rounding_before_a_jump(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x * 3)


@pair("add", "argmax", "", inputs=lambda: (mat(dtype=torch.bfloat16),), notes="F201", saved=X)
def a_rounding_before_argmax(x: torch.Tensor) -> torch.Tensor:
    return (x + 0.3).argmax(-1)


@pair("mul", "gt", "", inputs=lambda: (mat(dtype=torch.float16),), notes="F201", saved=X)
def a_rounding_before_a_comparison(x: torch.Tensor) -> torch.Tensor:
    return x * 3 > 1


@pair(
    "tanh",
    "mul",
    "F202",
    inputs=lambda: (mat(dtype=torch.bfloat16),),
    says="|fused − eager|",
    flip="tau ≥",
    tau=1e-6,
)
def a_tight_tau(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 3


@pair("softmax", "mul", "F207", says="reduces", flip="numerics='accurate'", numerics="eager")
def a_reduction_under_eager_numerics(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 2


@pair("relu", "mul", numerics="eager", saved=2 * X)
def a_chain_under_eager_numerics(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


# Resources, gain, policies, rules.


@pair(
    "relu",
    "mul",
    "F403",
    inputs=lambda: (mat(4, 4),),
    says="compiling",
    flip="expect at least",
    expected_calls=1,
)
def too_few_calls(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


@pair("add", "sum", "F900", says="fuses no reductions", flip="policy=", policy="elementwise")
def a_policy_without_reductions(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).sum(-1)


@pair("mul", "softmax", "F900", says="one level of reductions", flip="policy=", policy="loop")
def a_policy_of_one_reduction(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1)


@pair("relu", "mul", "F900", says="fuses nothing", flip="policy=", policy="none")
def a_policy_of_nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


@pair(
    "relu",
    "mul",
    "F901",
    says="a rule keeps",
    flip="drop the forbid rule",
    rules={"forbid": [["relu", "mul"]]},
)
def a_rule_of_the_users(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


@pair(
    "softmax",
    "mul",
    "F312",
    inputs=lambda: (mat(16, 100_000),),
    says="shared memory",
    flip="rows shorter",
    hardware="a100",
)
def a_row_too_long_for_shared_memory(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 2
