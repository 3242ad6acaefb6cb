"""The float32 functions are within one ULP of the true value and of its class, on every kind of machine."""

from __future__ import annotations

import pytest
import torch

from fusebound.codegen.jit import Machine, host
from fusebound.codegen.math.accuracy import FUNCTIONS, ErrorKernel, measure
from fusebound.codegen.math.probe import MapKernel
from fusebound.engine.compile import Options, compile
from fusebound.verify.bits import ulp

AVX2 = Machine("haswell", "+avx2,+fma,+f16c,+bmi2")
INF = float("inf")
SPECIAL = [0.0, -0.0, INF, -INF, float("nan"), 1e-45, -1e-45, 1.0, -1.0, 88.72284, -103.97208]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_one_ulp(name: str) -> None:
    """Every 1009th float32 from the whole range, every 17th around one and around zero crossings."""
    kernel = ErrorKernel(name)
    error = kernel(0, 1 << 32, 1009)
    for sign in (0, 1 << 31):
        error = error.merged(kernel(sign | 0x3E000000, sign | 0x43000000, 17))  # 1/8 to 128
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0, error


@pytest.mark.skipif("avx2" not in host().isa, reason="the CPU lacks AVX2")
@pytest.mark.parametrize("lanes", [8, 4, 1])
@pytest.mark.parametrize("name", ["exp", "exp2", "tanh", "sigmoid", "erf", "log", "sin", "rsqrt", "sinh"])
def test_other_widths_and_avx2(name: str, lanes: int) -> None:
    error = ErrorKernel(name, lanes=lanes, machine=AVX2)(0, 1 << 32, 4099)
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0, error


@pytest.mark.parametrize("name", ["exp", "log2", "cos", "atanh", "erfc"])
def test_plain_instructions_and_libm(name: str) -> None:
    error = ErrorKernel(name, lanes=4, machine=Machine("x86-64", "+sse2"))(0, 1 << 32, 65537)
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0, error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str) -> None:
    """Class and sign of the results, against torch."""
    x = torch.tensor(SPECIAL)
    error = measure(MapKernel(name, ["float32"], "float32"), name, x)
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0, error


def test_error_kernel_finds_errors() -> None:
    """The measure itself: one ULP off is one, and a wrong class counts."""
    x = torch.tensor([1.0, 2.0, 4.0])
    wrong = MapKernel("sqrt", ["float32"], "float32")
    assert measure(wrong, "exp2", x).ulp > 1e6
    assert measure(wrong, "log", torch.tensor([-1.0, 0.0])).of_other_class == 1


def test_pow() -> None:
    g = torch.Generator().manual_seed(3)
    kernel = MapKernel("pow", ["float32", "float32"], "float32")
    base = torch.exp(8 * torch.randn(400_000, generator=g))
    exponent = torch.randn(400_000, generator=g) * 88 / torch.log(base).abs().clamp(min=1e-3)
    raw = torch.randint(0, 1 << 32, (2, 300_000), generator=g).to(torch.int32).view(torch.float32)
    whole = torch.randint(-40, 40, (100_000,), generator=g).float()
    for x, y in ((base, exponent), (raw[0], raw[1]), (torch.randn(100_000, generator=g) * 4, whole)):
        error = measure(kernel, "pow", x.contiguous(), y.contiguous())
        assert error.ulp <= 1.0, error
        assert error.of_other_class == 0


def test_pow_of_special_values() -> None:
    values = torch.tensor([*SPECIAL, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 16777216.0, -16777215.0, 3e38])
    x, y = (t.flatten() for t in torch.meshgrid(values, values, indexing="ij"))
    error = measure(
        MapKernel("pow", ["float32", "float32"], "float32"), "pow", x.contiguous(), y.contiguous()
    )
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0


def test_atan2() -> None:
    g = torch.Generator().manual_seed(4)
    kernel = MapKernel("atan2", ["float32", "float32"], "float32")
    values = torch.cat([torch.randn(300, generator=g) * 10, torch.tensor(SPECIAL)])
    x, y = (t.flatten() for t in torch.meshgrid(values, values, indexing="ij"))
    error = measure(kernel, "atan2", x.contiguous(), y.contiguous())
    assert error.ulp <= 1.0, error
    assert error.of_other_class == 0


def test_result_of_a_lane_does_not_depend_on_its_neighbours() -> None:
    kernel = MapKernel("sin", ["float32"], "float32")
    alone = torch.linspace(-100, 100, 1600)
    mixed = alone.clone()
    mixed[::16] = 1e30  # sends its vector through the branch for large arguments
    results = []
    for x in (alone, mixed):
        out = torch.empty_like(x)
        kernel(out.data_ptr(), [x.data_ptr()], x.numel())
        results.append(out)
    kept = torch.arange(1600) % 16 != 0
    assert torch.equal(results[0][kept], results[1][kept])


def test_pow_with_a_number_as_the_exponent() -> None:
    """Eager's scalar code, for short tensors, has all of its digits; rounded to float32 it costs 0.8 ULP (rms)."""
    x = torch.exp(8 * torch.randn(20_000, generator=torch.Generator().manual_seed(5)))
    options = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
    compiled = compile(lambda x: (x**1.7).neg(), options)
    exact = -(x.double() ** 1.7)
    error = (compiled(x).double() - exact) / ulp(exact, torch.float32)
    assert compiled.executable is not None
    assert error.abs().max() <= 0.6 and error.square().mean().sqrt() < 0.3
