"""Error, instruction count and speed of the float32 vector functions.

    python bench/vector_math.py                    every 101st float32, 42 million inputs per function
    python bench/vector_math.py --step 1 exp tanh  every float32 (up to a minute per function)

ULP is the greatest error in units in the last place; "class" counts inputs whose result is of another class
(finite, infinite, NaN, sign) than the true one. Instructions are those of the vector loop, with its load and
store, for one vector of `lanes`; calls count as one. Times are of one thread on data in the second-level
cache. pow takes random pairs.
"""

from __future__ import annotations

import argparse
import re
import time

import torch

from fusebound.codegen.jit import Machine, host
from fusebound.codegen.math.accuracy import FUNCTIONS, Error, ErrorKernel, measure
from fusebound.codegen.math.probe import MapKernel


def pairs(kernel: MapKernel, count: int) -> Error:
    """The error of pow over random bit patterns and over bases and exponents with finite results."""
    g = torch.Generator().manual_seed(0)
    raw = [torch.randint(0, 1 << 32, (count,), generator=g).to(torch.int32).view(torch.float32) for _ in "xy"]
    base = torch.exp(8 * torch.randn(count, generator=g))
    exponent = torch.randn(count, generator=g) * 88 / torch.log(base).abs().clamp(min=1e-3)
    return measure(kernel, "pow", *raw).merged(measure(kernel, "pow", base, exponent))


def nanoseconds(kernel: MapKernel, arity: int) -> float:
    """Time per element on normally distributed inputs, the best of several rounds."""
    args = [torch.randn(1 << 15).abs() for _ in range(arity)]
    out = torch.empty_like(args[0])
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        kernel(out.data_ptr(), [a.data_ptr() for a in args], out.numel())
        best = min(best, time.perf_counter() - start)
    return best / out.numel() * 1e9


def instructions(asm: str) -> int:
    """Instructions of the first loop: from its label to the last jump back to it."""
    lines = [line.strip() for line in asm.splitlines()]
    for at, line in enumerate(lines):
        label = re.fullmatch(r"(\.LBB\d+_\d+):.*", line)
        if label is None:
            continue
        back = [i for i in range(at, len(lines)) if re.fullmatch(rf"j\w+\s+{re.escape(label[1])}", lines[i])]
        if back:
            body = lines[at + 1 : back[-1] + 1]
            return sum(1 for text in body if text and not text.startswith((".", "#")))
    return 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("functions", nargs="*", default=[*FUNCTIONS, "pow"])
    parser.add_argument("--step", type=int, default=101, help="every so-many-th float32; 1 for all")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--plain", action="store_true", help="without instructions beyond AVX2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = host()
    if options.plain:
        machine = Machine("haswell", "+avx2,+fma,+f16c,+bmi2")
    print(f"{'function':10} {'ULP':>6} {'worst input':>28} {'class':>5} {'instr.':>6} {'ns/el.':>7}")
    for name in options.functions:
        arity = 2 if name == "pow" else 1
        kernel = MapKernel(name, ["float32"] * arity, "float32", lanes=options.lanes, machine=machine)
        if arity == 2:
            error = pairs(kernel, 1 << 22)
        else:
            error = ErrorKernel(name, lanes=options.lanes, machine=machine)(0, 1 << 32, options.step)
        worst = ", ".join(f"{x:.9g}" for x in error.worst)
        count = instructions(kernel.compiled.asm)
        print(
            f"{name:10} {error.ulp:6.3f} {worst:>28} {error.of_other_class:5} {count:6} "
            f"{nanoseconds(kernel, arity):7.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
