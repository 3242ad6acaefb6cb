"""A map kernel of one primitive, `out[i] = op(a[i], ...)`: what the tests and the accuracy bench run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from fusebound.codegen import math
from fusebound.codegen.emit import Fn, Module, Reg
from fusebound.codegen.jit import Compiled, Machine, compile_module, host
from fusebound.codegen.llvm_types import vec
from fusebound.ir.dtypes import DTYPES


class MapKernel:
    """`primitive` compiled as a vector loop with a masked tail; keeps its machine code alive.

    Calling it takes the output's address, the inputs' addresses and the number of elements, and returns the
    flag word: 0, or the code of the fault that a lane met.
    """

    def __init__(
        self,
        primitive: str,
        in_dtypes: Sequence[str],
        dtype: str,
        *,
        lanes: int = 16,
        machine: Machine | None = None,
    ) -> None:
        machine = machine or host()

        def body(fn: Fn, args: list[Reg]) -> Reg:
            return math.apply(fn, primitive, args, dtype, lanes, in_dtypes=in_dtypes)

        self.text = map_module(body, in_dtypes, dtype, lanes, machine.isa)
        self.compiled: Compiled = compile_module(self.text, machine=machine)
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(in_dtypes) + 2), ctypes.c_int64)
        self._entry = signature(self.compiled.address("probe"))

    def __call__(self, out: int, inputs: Sequence[int], count: int) -> int:
        """Run over `count` elements; addresses as integers."""
        flag = ctypes.c_int32(0)
        self._entry(ctypes.addressof(flag), out, *inputs, count)
        return flag.value


def map_module(
    body: Callable[[Fn, list[Reg]], Reg],
    in_dtypes: Sequence[str],
    dtype: str,
    lanes: int,
    isa: frozenset[str],
) -> str:
    """LLVM assembly of `void probe(ptr flag, ptr out, ptr in..., i64 n)` that maps `body` over arrays."""
    module = Module(isa)
    names = [f"in{i}" for i in range(len(in_dtypes))]
    pointers = [("flag", "ptr"), ("out", "ptr", "noalias"), *((n, "ptr", "noalias") for n in names)]
    fn = module.function("probe", [*pointers, ("n", "i64")])
    fn.flags, out, *inputs, n = fn.parameters

    def step(index: Reg, mask: Reg | None) -> None:
        args = []
        for pointer, kind in zip(inputs, in_dtypes, strict=True):
            stored, size = math.storage_type(kind), _size(kind)
            raw = fn.load(vec(stored, lanes), fn.gep(pointer, stored, index), align=size, mask=mask)
            args.append(math.load_convert(fn, raw, kind, lanes))
        value = math.store_convert(fn, body(fn, args), dtype, lanes)
        fn.store(value, fn.gep(out, math.storage_type(dtype), index), align=_size(dtype), mask=mask)

    main = fn.op("and", n, fn.const(-lanes, "i64"))
    with fn.loop(0, main, lanes) as it:
        step(it.index, None)
    lane = fn.op("add", fn.splat(main, lanes), fn.lane_ids("i64", lanes))
    fn.active = fn.icmp("slt", lane, fn.splat(n, lanes))
    with fn.when(fn.any(fn.active)):
        step(main, fn.active)
    fn.ret()
    return module.render()


def _size(dtype: str) -> int:
    return DTYPES[dtype].itemsize
