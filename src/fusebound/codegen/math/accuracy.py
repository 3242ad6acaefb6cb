"""How far the float32 functions are from the true values, in units in the last place.

Two ways: `ErrorKernel` runs over float32 bit patterns in machine code, fast enough for all 2³² of them;
`measure` takes given operands, for functions of two. The references are float64 functions, whose own error is
below 10⁻⁸ ULP of float32. Differences of class (finite, infinite, NaN, sign) are counted apart; none is
tolerated.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusebound.codegen import math
from fusebound.codegen.emit import Fn, Module, Reg
from fusebound.codegen.jit import Machine, compile_module, host
from fusebound.codegen.llvm_types import vec
from fusebound.codegen.math import arithmetic
from fusebound.codegen.math.basic import bits_of, fabs, floats_of
from fusebound.codegen.math.probe import MapKernel

if TYPE_CHECKING:
    import torch

FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "tanh", "erf", "erfc", "sin", "cos",
    "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "rsqrt", "sqrt", "reciprocal",
)  # fmt: skip
"""The functions of one argument."""


@dataclass(frozen=True, slots=True)
class Error:
    """The greatest error of a sample, `ulp`, and the operands that have it; how many results are of another
    class than the true one, and the operands of one of them."""

    ulp: float
    worst: tuple[float, ...]
    of_other_class: int
    example: tuple[float, ...] = ()

    def merged(self, other: Error) -> Error:
        """The errors of two samples together."""
        first = self if self.ulp >= other.ulp else other
        count = self.of_other_class + other.of_other_class
        return Error(first.ulp, first.worst, count, self.example or other.example)


class ErrorKernel:
    """Compares a float32 function with its float64 form over ranges of bit patterns."""

    def __init__(self, name: str, *, lanes: int = 16, machine: Machine | None = None) -> None:
        machine = machine or host()
        self._lanes = lanes
        self._compiled = compile_module(_error_module(name, lanes, machine.isa), machine=machine)
        signature = ctypes.CFUNCTYPE(
            None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
        )
        self._entry = signature(self._compiled.address("errors"))

    def __call__(self, lo: int, hi: int, step: int = 1) -> Error:
        """The error over the bit patterns `lo`, `lo + step`, … below `hi` (unsigned). The last vector is
        full, and may run over."""
        n = self._lanes
        errors, worst, counts, examples = (
            (ctypes.c_double * n)(), (ctypes.c_int32 * n)(), (ctypes.c_int32 * n)(), (ctypes.c_int32 * n)()
        )  # fmt: skip
        self._entry(errors, worst, counts, examples, lo, hi, step)
        at = max(range(n), key=lambda lane: errors[lane])
        other = next((_float(examples[lane]) for lane in range(n) if counts[lane]), None)
        return Error(errors[at], (_float(worst[at]),), sum(counts), () if other is None else (other,))


def _float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<i", bits))[0]


def _error_module(name: str, lanes: int, isa: frozenset[str]) -> str:
    module = Module(isa)
    outputs = [(n, "ptr") for n in ("errors", "worst", "counts", "examples")]
    fn = module.function("errors", [*outputs, ("lo", "i64"), ("hi", "i64"), ("step", "i32")])
    *pointers, lo, hi, step = fn.parameters
    ints, doubles = vec("i32", lanes), vec("double", lanes)
    offsets = fn.op("mul", fn.lane_ids("i32", lanes), fn.splat(step, lanes))
    stride = fn.op("mul", fn.cast("zext", step, "i64"), fn.const(lanes, "i64"))
    zero = fn.const(0, ints)
    with fn.loop(lo, hi, stride, carry=(fn.const(-1.0, doubles), zero, zero, zero)) as it:
        start = fn.splat(fn.cast("trunc", it.index, "i32"), lanes)
        pattern = fn.op("add", start, offsets)
        error, other = _compare(fn, name, floats_of(fn, pattern), lanes)
        most, worst, count, example = it.values
        greater = fn.fcmp("ogt", error, most)
        it.update(
            fn.select(greater, error, most),
            fn.select(greater, pattern, worst),
            fn.op("sub", count, fn.cast("sext", other, ints)),
            fn.select(other, pattern, example),
        )
    for value, pointer in zip(it.results, pointers, strict=True):
        fn.store(value, pointer, align=4)
    fn.ret()
    return module.render()


def _compare(fn: Fn, name: str, x: Reg, lanes: int) -> tuple[Reg, Reg]:
    """`(error, other)`: the error in ULP (float64; 0 where not finite), and whether the class differs."""
    got = math.apply(fn, name, [x], "float32", lanes, in_dtypes=["float32"])
    wide = fn.cast("fpext", x, vec("double", lanes))
    true = math.apply(fn, name, [wide], "float64", lanes, in_dtypes=["float64"])
    nearest = fn.cast("fptrunc", true, x.type)
    finite = fn.op("and", arithmetic.isfinite(fn, got), arithmetic.isfinite(fn, nearest))
    difference = fabs(fn, fn.op("fsub", fn.cast("fpext", got, wide.type), true))
    error = fn.select(finite, fn.op("fmul", difference, _inverse_ulp(fn, true)), fn.like(0.0, wide))
    differs = fn.op("xor", arithmetic.isfinite(fn, got), arithmetic.isfinite(fn, nearest))
    nan = fn.op("xor", arithmetic.isnan(fn, got), arithmetic.isnan(fn, nearest))
    sign = fn.icmp(
        "slt", fn.op("xor", bits_of(fn, got), bits_of(fn, nearest)), fn.const(0, vec("i32", lanes))
    )
    sign = fn.op("and", sign, fn.fcmp("ord", got, nearest))
    return error, fn.op("or", fn.op("or", differs, nan), sign)


def _inverse_ulp(fn: Fn, true: Reg) -> Reg:
    """1 / the distance of float32 numbers around float64 values; at most that of the subnormals."""
    bits = bits_of(fn, true)
    exponent = fn.op("and", fn.op("lshr", bits, fn.like(52, bits)), fn.like(0x7FF, bits))
    exponent = fn.intrinsic("llvm.umax", exponent, fn.like(1023 - 126, bits))
    biased = fn.op("sub", fn.like(2 * 1023 + 23, bits), exponent)
    return floats_of(fn, fn.op("shl", biased, fn.like(52, bits)))


def measure(kernel: MapKernel, name: str, *args: torch.Tensor) -> Error:
    """Run `kernel` (of float32) on contiguous `args` and compare with torch's float64 function `name`."""
    import torch

    got = torch.empty_like(args[0])
    kernel(got.data_ptr(), [a.data_ptr() for a in args], got.numel())
    true = getattr(torch, name)(*(a.double() for a in args))
    nearest = true.float()
    same = torch.isfinite(nearest) & torch.isfinite(got)
    exponent = torch.frexp(true).exponent.clamp(min=-125)
    ulp = torch.ldexp(torch.ones_like(true), exponent - 24)
    errors = torch.where(same, (got.double() - true).abs() / ulp, 0.0)
    worst = int(errors.argmax())
    other = _class(nearest) != _class(got)
    rows = other.nonzero().flatten()[:1].tolist()
    example = tuple(a[i].item() for i in rows for a in args)
    return Error(float(errors[worst]), tuple(a[worst].item() for a in args), int(other.sum()), example)


def _class(x: torch.Tensor) -> torch.Tensor:
    """0 NaN, ±1 finite, ±2 infinite."""
    import torch

    size = torch.where(torch.isinf(x), 2, 1)
    return torch.where(torch.isnan(x), 0, torch.where(torch.signbit(x), -size, size))
