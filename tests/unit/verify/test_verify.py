"""The verifier: right kernels pass in another order or wider type, wrong ones are caught, nothing is left
changed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.unit.verify.programs import trace

from fusebound.analysis.tau import Tau
from fusebound.errors import UsageError
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN, PLAIN, SPECIAL_SETS
from fusebound.verify.layouts import CALLS, EXPANDED, GAPPED, LAYOUTS, OVERLAPPING, TRANSPOSED

torch.manual_seed(0)
X = torch.randn(37, 131)
W = torch.rand(131) + 0.5


def softmax(x):
    return F.softmax(x, -1)


def rmsnorm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


def bf16_chain(x):
    return (x * 3).to(torch.bfloat16) + W


def corrected_variance(x):
    centred = x - x.mean(-1, keepdim=True)
    return (centred.square().sum(-1) - centred.sum(-1).square() / 131) / 130


def with_tail(fn, column, change):
    def mutant(x):
        y = fn(x)
        y[:, column:] += change
        return y

    return mutant


RIGHT = {
    "softmax itself": (softmax, softmax, (X,)),
    "softmax in float64": (softmax, lambda x: F.softmax(x.double(), -1).float(), (X,)),
    "softmax backwards": (softmax, lambda x: F.softmax(x.flip(-1), -1).flip(-1), (X,)),
    "rmsnorm in another order": (
        rmsnorm,
        lambda x, w: x / torch.sqrt(x.square().flip(-1).sum(-1, keepdim=True) / 131 + 1e-5) * w,
        (X, W),
    ),
    "bf16 kept wide": (
        lambda h: (h * 3 + 1) * h,
        lambda h: ((h.float() * 3 + 1) * h.float()).bfloat16(),
        (X.bfloat16(),),
    ),
    "loss in float64": (
        lambda x: F.cross_entropy(x, torch.arange(37)),
        lambda x: F.cross_entropy(x.double(), torch.arange(37)).float(),
        (X,),
    ),
    "integers": (lambda x: x.argmax(-1), lambda x: x.double().argmax(-1), (X,)),
}

WRONG = {
    "softmax over the wrong axis": (softmax, lambda x: F.softmax(x, 0), (X,)),
    "softmax without the maximum": (softmax, lambda x: x.exp() / x.exp().sum(-1, keepdim=True), (X,)),
    "garbage in the tail": (softmax, with_tail(softmax, 128, 1e-5), (X,)),
    "one wrong column": (softmax, with_tail(softmax, 130, 1e-6), (X,)),
    "epsilon dropped": (
        rmsnorm,
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * w,
        (X, W),
    ),
    "rounded through bf16": (rmsnorm, lambda x, w: rmsnorm(x.bfloat16().float(), w), (X, W)),
    "a constant an ULP off": (lambda x: x * 2, lambda x: x * (2 + 2**-22), (X[:5],)),
    "a variance corrected after its overflow": (lambda x: x.var(-1), corrected_variance, (X[:5],)),
    "a user's cast dropped": (bf16_chain, lambda x: x * 3 + W, (X,)),
    "exp(x) - 1 for expm1": (torch.expm1, lambda x: torch.exp(x) - 1, (X,)),
    "x * 0 folded": (lambda x: x * 0, torch.zeros_like, (X,)),
    "NaN swallowed": (lambda x: torch.maximum(x, x.flip(-1)), lambda x: torch.fmax(x, x.flip(-1)), (X,)),
    "sign of zero": (lambda x: x * 1.0, lambda x: x + 0.0, (X,)),
    "off by one": (lambda x: x.argmax(-1), lambda x: x.argmax(-1) + (x[:, 0] > 2), (X,)),
    "one-pass variance": (
        lambda x: x.var(-1, correction=0),
        lambda x: x.pow(2).mean(-1) - x.mean(-1).pow(2),
        (X,),
    ),
    "a constant weight": (rmsnorm, lambda x, w: rmsnorm(x, W.clone()), (X, W.clone())),
    "float64 through float32": (lambda x: x * 3 + 1, lambda x: (x.float() * 3 + 1).double(), (X.double(),)),
    "wrong type": (softmax, lambda x: softmax(x).double(), (X,)),
    "wrong strides": (softmax, lambda x: softmax(x).t().contiguous().t(), (X,)),
    "an output too many": (softmax, lambda x: (softmax(x), x), (X,)),
}


UNUSUAL = {
    "empty": (lambda x: x + 1, torch.empty(0, 5)),
    "no axes": (lambda x: x * 2, torch.tensor(3.0)),
    "to 8-bit floats": (lambda x: x.to(torch.float8_e4m3fn), torch.randn(8, 8)),
    "from 8-bit floats": (lambda x: x.float() * 2, torch.randn(8, 8).to(torch.float8_e5m2)),
    "complex": (lambda x: x * 2 + 1j, torch.randn(8, 8, dtype=torch.complex64)),
    "wrapping integers": (lambda x: (x + 200) // 3, torch.randint(0, 255, (64,), dtype=torch.uint8)),
    "expanded": (lambda x: x + 1, torch.randn(1, 8).expand(4, 8)),
    "overlapping": (lambda x: x * 2, torch.randn(20).as_strided((6, 5), (3, 1))),
    "conjugated": (lambda x: x.imag * 2, torch.randn(8, 8, dtype=torch.complex64).conj()),
    "no tensor": (lambda x: {"b": x + 1, "a": [None, 3.5, "s"]}, torch.randn(8)),
    "a view of the input": (lambda x: x.view(-1), torch.randn(8, 8)),
    "NaN given": (lambda x: x.nan_to_num(), torch.full((8,), float("nan"))),
    "random": (lambda x: F.dropout(x, 0.5) + torch.rand_like(x), torch.randn(64, 64)),
    "a size that depends on the data": (lambda x: x[x > 0] * 2, torch.randn(64)),
    "a parameter": (lambda x: x * 2, torch.nn.Parameter(torch.randn(8))),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_eager_passes_against_itself(case: str) -> None:
    fn, x = UNUSUAL[case]
    before = str(x)
    result = verify(fn, trace(fn, x), (x,))
    assert result.ok and result.deterministic and set(result.verdicts) <= {"equal"}, result.summary()
    assert str(x) == before


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_kernel_passes(case: str) -> None:
    fn, kernel, args = RIGHT[case]
    result = verify(kernel, trace(fn, *args), args)
    assert result.ok and not result.notes, result.summary()


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_kernel_is_caught(case: str) -> None:
    fn, kernel, args = WRONG[case]
    result = verify(kernel, trace(fn, *args), args)
    assert not result.ok and (result.failures or result.faults), result.summary()


def test_verdicts_name_what_happened() -> None:
    same = verify(softmax, trace(softmax, X), (X,))
    wide = verify(lambda x: F.softmax(x.double(), -1).float(), trace(softmax, X), (X,))
    naive = verify(lambda x: x.exp() / x.exp().sum(-1, keepdim=True), trace(softmax, X), (X,))
    assert same.verdicts == {"equal": len((*PLAIN, *SPECIAL_SETS, *LAYOUTS))}
    assert wide.outputs[0].verdict == "nearer fp64" and wide.outputs[0].fused.rms < wide.outputs[0].eager.rms
    assert naive.outputs[0].verdict == "class changed"
    assert any("nan where eager has" in c.detail for c in naive.failures if c.set == "large mean")


ZEROS = torch.tensor([0.0, -0.0]).repeat(20)
"""Beside their negatives their maximum is +0, by IEEE 754-2019; eager's own sign depends on the place."""


@pytest.mark.parametrize(
    ("fn", "kernel", "right"),
    [
        (lambda x: torch.maximum(x, -x), torch.zeros_like, True),
        (lambda x: torch.maximum(x, -x), lambda x: -torch.zeros_like(x), False),
        (lambda x: torch.minimum(x, -x), lambda x: -torch.zeros_like(x), True),
        (lambda x: x.clamp(min=-x), torch.zeros_like, True),
        (lambda x: 1 / torch.maximum(x, -x), lambda x: 1 / torch.zeros_like(x), True),
        (lambda x: x.view(4, 10).amax(-1), lambda x: torch.zeros(4), True),
        (lambda x: x.view(4, 10).amin(-1), lambda x: -torch.zeros(4), True),
        (torch.relu, lambda x: torch.relu(x) + 0.0, False),
        (lambda x: x.clamp(0.0, 1.0), torch.zeros_like, False),
    ],
)
def test_the_signs_of_zeros(fn, kernel, right: bool) -> None:
    found = verify(kernel, trace(fn, ZEROS), (ZEROS,), sets=(GIVEN,))
    assert found.ok == right, found.summary()
    assert right or found.outputs[0].changes[0].kind == "signed zero"


HALF = torch.tensor([300.0, 2.0]).half().repeat(20)
"""The first of two squares is no float16."""


@pytest.mark.parametrize("removed", [True, False])
def test_an_overflow_that_fusing_removes_or_introduces(removed: bool) -> None:
    def narrow(x):
        return x * x / 300

    def wide(x):
        return (x.float() * x.float() / 300).half()

    eager, fused = (narrow, wide) if removed else (wide, narrow)
    found = verify(fused, trace(eager, HALF), (HALF,), sets=(GIVEN,))
    (change,) = found.outputs[0].changes
    assert (change.kind, change.count) == ("finiteness gained" if removed else "finiteness lost", 20)
    assert found.ok == removed


def selection(x):
    """The places of the largest values, and those of all beyond a bound: their number depends on the data."""
    y = torch.sigmoid(x * 1e-7)
    return y.topk(5).indices, (y > 0.5).nonzero()


def test_integers_on_a_tie_are_no_fault_and_others_are() -> None:
    def another_order(x):
        y = torch.sigmoid((x.flip(-1) * 1e-7).double()).float().flip(-1)
        return y.flip(-1).topk(5).indices.mul(-1).add(130), (y > 0.5).nonzero()

    def wrong(x):
        return (x + 0).topk(5).indices.flip(-1), (torch.sigmoid(x) > 0.5).nonzero()

    found = verify(another_order, trace(selection, X), (X,), sets=PLAIN)
    assert found.ok, found.summary()

    def sharp(x):
        return x.topk(5).indices, (x > 0.5).nonzero()

    found = verify(wrong, trace(sharp, X), (X,), sets=PLAIN)
    assert [c.output for c in found.failures][:1] == ["output 0"]
    assert any("output 1 has shape" in f for f in found.faults)


def test_mutations_are_compared_and_everything_is_restored() -> None:
    bn = torch.nn.BatchNorm1d(131)
    x = X.clone()

    def fn(x):
        return bn(x.add_(1))

    def forgets_the_buffer(x):
        return F.batch_norm(x.add_(1), None, None, bn.weight, bn.bias, True)

    before = {k: v.clone() for k, v in bn.state_dict().items()}
    module = torch.nn.Module()
    module.bn = bn
    module.forward = fn
    traced = trace(module, x)
    assert verify(fn, traced, (x,), eager=fn).ok
    wrong = verify(forgets_the_buffer, traced, (x,), eager=fn)
    assert {c.output for c in wrong.failures} >= {"buffer input 'bn.running_mean' (mutated)"}
    assert torch.equal(x, X) and all(torch.equal(v, before[k]) for k, v in bn.state_dict().items())


def test_an_input_that_eager_leaves_alone_must_not_change() -> None:
    def kernel(x):
        y = softmax(x)
        x.zero_()
        return y

    result = verify(kernel, trace(softmax, X), (X,))
    assert any("was changed, which eager does not" in f for f in result.faults)


@pytest.mark.parametrize(("held", "written", "ok"), [(-1, 0x7FC00000, True), (0, -(2**31), False)])
def test_only_the_bits_of_a_nan_may_change(held: int, written: int, ok: bool) -> None:
    """A NaN stays one, a zero keeps its sign."""
    x = torch.ones(3, 4)
    x.view(torch.int32)[1, 2] = held

    def kernel(x):
        y = softmax(x)
        x.view(torch.int32)[1, 2] = written
        return y

    assert verify(kernel, trace(softmax, x), (x,), sets=(GIVEN,)).ok is ok


def test_exceptions_have_to_agree() -> None:
    i = torch.tensor([0, 130])
    traced = trace(lambda x, i: x[:, i], X, i)
    bad = torch.tensor([0, 131])
    assert verify(lambda x, i: x[:, i], traced, (X, bad), sets=PLAIN).raised
    quiet = verify(lambda x, i: x[:, i % 131], traced, (X, bad), sets=PLAIN)
    assert any("does not raise where eager raises IndexError" in f for f in quiet.faults)
    loud = verify(lambda x, i: x[:, i + 1], traced, (X, i), sets=PLAIN)
    assert any("raises IndexError where eager does not" in f for f in loud.faults)


class Nondeterministic:
    """Adds a part in 10⁷ on every second call; takes note of being poisoned."""

    def __init__(self) -> None:
        self.calls, self.poison, self.was_poisoned = 0, False, False

    def __call__(self, x):
        self.calls += 1
        self.was_poisoned |= self.poison
        return softmax(x) * (1 + 1e-7 * (self.calls % 2))


def test_two_runs_have_to_agree_and_memory_is_poisoned() -> None:
    exe = Nondeterministic()
    result = verify(exe, trace(softmax, X), (X,))
    assert result.deterministic is False and not result.ok
    assert result.poisoned and exe.was_poisoned and exe.poison is False


def test_a_result_that_depends_on_the_threads() -> None:
    before = torch.get_num_threads()
    result = verify(lambda x: softmax(x) * (1 + 2e-7 * torch.get_num_threads()), trace(softmax, X), (X,))
    assert result.deterministic is True and result.threads is False and not result.ok
    assert torch.get_num_threads() == before


def test_tau_bounds_the_distance_from_eager() -> None:
    def near(x):
        return softmax(x) + 1e-4

    assert not verify(near, trace(softmax, X), (X,), sets=PLAIN).ok
    assert verify(near, trace(softmax, X), (X,), sets=PLAIN, tau=Tau(2e-4)).outputs[0].verdict == "within τ"
    assert verify(near, trace(softmax, X), (X,), sets=PLAIN, tau=Tau(5e-5)).outputs[0].verdict == "worse"


def test_eager_numerics_ask_for_equal_bits() -> None:
    def fn(x):
        return x * 3 + 1

    contracted = verify(
        lambda x: torch.addcmul(torch.ones_like(x.double()), x.double(), torch.tensor(3.0).double()).float(),
        trace(fn, X),
        (X,),
        numerics="eager",
    )
    assert not contracted.ok and verify(fn, trace(fn, X), (X,), numerics="eager").ok
    assert verify(lambda x: torch.exp(x.double()).float(), trace(torch.exp, X), (X,), numerics="eager").ok


def test_a_spent_budget_is_said() -> None:
    result = verify(softmax, trace(softmax, X), (X,), budget_s=0.0)
    assert result.sets == ("given",) and "large mean" in result.skipped


def test_sets_that_were_not_judged_are_named_with_the_reason() -> None:
    def refuses(x):
        if not x.is_contiguous():
            raise UsageError("laid out otherwise than captured", code="E123")
        return x + 1

    vector = verify(lambda x: x + 1, trace(lambda x: x + 1, X[0]), (X[0],), sets=CALLS)
    unwritten = (OVERLAPPING, "no argument is written that has another of its type beside it")
    assert vector.ok and vector.sets == (GAPPED,)
    assert vector.unjudged == (
        (TRANSPOSED, "no argument can lie so"), (EXPANDED, "no argument can lie so"), unwritten
    )  # fmt: skip

    matrix = verify(refuses, trace(lambda x: x + 1, X), (X,), sets=CALLS)
    refused = "the program refuses such arguments: E123"
    assert matrix.ok and not matrix.checks and matrix.sets == () and not matrix.notes
    assert matrix.unjudged == (*((s, refused) for s in LAYOUTS), unwritten)

    views = verify(lambda x: x.view(-1), trace(lambda x: x.view(-1), X), (X,), sets=LAYOUTS)
    assert views.unjudged == tuple((s, "eager itself does not give the same on them") for s in LAYOUTS)


def test_an_argument_beside_a_written_one_is_not_said_to_be_written() -> None:
    def fn(x, y):
        return x.add_(1), y + 1

    copies = (X.clone(), X.clone())
    found = verify(fn, trace(fn, *copies), copies, sets=(OVERLAPPING,))
    names = {c.output for c in found.checks}
    assert found.ok and "user input 'args_0' (mutated)" in names
    assert "user input 'args_1' (shares memory with a mutated one)" in names


def test_a_set_of_which_some_draws_were_refused_has_a_note() -> None:
    x, y, z = torch.randn(3, 8)

    def fn(x, y, z):
        return x.add_(1), y + 1, z + 1

    def beside_y_alone(x, y, z):
        if x.untyped_storage().data_ptr() == z.untyped_storage().data_ptr():
            raise UsageError("two arguments share memory", code="E204")
        return fn(x, y, z)

    copies = (x.clone(), y.clone(), z.clone())
    found = verify(beside_y_alone, trace(fn, *copies), copies, sets=(OVERLAPPING,))
    assert found.ok and found.sets == (OVERLAPPING,) and found.unjudged == ()
    assert "the program refuses such arguments: E204, on some of 'overlapping'" in found.notes


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_an_operator_without_a_float64_form_is_named() -> None:
    def fn(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize() + 1

    result = verify(fn, trace(fn, X), (X,), sets=(GIVEN,))
    note = "the fp64 reference runs aten::quantize_per_tensor in the user's types on 'given'"
    assert result.ok and result.notes == (note,)


def test_the_name_of_no_set_is_refused() -> None:
    captured = trace(torch.sin, torch.ones(3))
    with pytest.raises(UsageError, match="unknown set of values 'typo'"):
        verify(torch.sin, captured, (torch.ones(3),), sets=("typo",))


def test_a_number_gained_is_that_of_the_reference_or_of_one_that_roundings_moved() -> None:
    def fn(x):
        return (x * 512) / 1024

    x = torch.full((64,), 200.0).half() + torch.randn(64).half()
    captured = trace(fn, x)
    assert verify(lambda x: x / 2, captured, (x,), sets=("given",)).ok
    assert not verify(lambda x: (x * 512).clamp(max=65504) / 1024, captured, (x,), sets=("given",)).ok

    def longer(x):
        return ((x * 512).sum(-1, keepdim=True) - x.flip(-1) * 512 * 63) / 1024

    captured = trace(longer, x)
    wide = longer(x.float()).half()
    assert verify(lambda x: wide + wide.abs() * 2**-8, captured, (x,), sets=("given",)).ok, "it cancels"


def test_an_input_that_only_some_draws_write_is_judged_on_those() -> None:
    x = torch.full((8,), 0.5)

    def fn(x):
        x.clamp_(-3, 3)
        return x * 2

    def other(x):
        x.clamp_(-3, 2.9)
        return x * 2

    assert verify(fn, trace(fn, x), (x,), sets=("like", "wide range")).ok
    assert not verify(other, trace(fn, x), (x,), sets=("wide range",)).ok

    def silent(x):
        x.clamp_(-3, 3)

    assert not verify(lambda x: x.clamp_(-3, 2.9) and None, trace(silent, x), (x,), sets=("wide range",)).ok


def test_numbers_that_are_no_number_are_equal_to_their_like_alone() -> None:
    def fn(x):
        return x + 1, 5.0

    assert not verify(lambda x: (x + 1, float("nan")), trace(fn, X), (X,), sets=("given",)).ok


def test_a_large_result_that_is_given_is_judged_by_itself() -> None:
    x = torch.linspace(0, 1, 1 << 15)

    def fn(x):
        return (x * 5).exp()

    def off(x):
        y = fn(x)
        y[-1] *= 1 + 12 * 2**-23
        return y

    assert not verify(off, trace(fn, x), (x,), sets=("given",)).ok


def test_a_remainder_of_a_mask_has_a_reference() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x % x.any()).atan()

    found = verify(lambda x: fn(x.double()).float(), trace(fn, X), (X,), sets=(GIVEN,))
    assert found.ok and not found.notes, found
