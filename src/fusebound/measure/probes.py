"""Small machine-code loops that measure the machine: copies, strided reads, arithmetic, parallel regions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch

from fusebound.codegen import jit

CHAINS = 12
"""Independent multiply-add chains: more than latency times units on any core so far."""

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Probe:
    """One loop. `run` divides `count` iterations among the threads and passes `repeats` times over each
    share; an iteration is a vector, for "strided" a row of the matrix."""

    name: str
    _address: int

    def run(self, src: int, dst: int, count: int, repeats: int, threads: int) -> None:
        """Blocks until all threads are done; the interpreter lock is released meanwhile."""
        data = (ctypes.c_int64 * 4)(src, dst, count, repeats)
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(self._address)
        entry(ctypes.addressof(data), threads)


@dataclass(frozen=True, slots=True)
class Probes:
    """All loops, compiled once for this machine; `lanes` float32 numbers fit a vector."""

    lanes: int
    copy: Probe
    stream: Probe
    strided: Probe
    arithmetic: Probe
    nothing: Probe
    _module: jit.Compiled

    @property
    def vector_bytes(self) -> int:
        return 4 * self.lanes


@cache
def probes() -> Probes:
    """Compile the loops; raises BuildError where LLVM cannot."""
    lanes = max(jit.vector_bits() // 32, 4)
    streaming = jit.has_streaming_stores()
    bodies = {
        "copy": _copy_loop(lanes, streaming=False),
        "stream": _copy_loop(lanes, streaming=streaming),
        "strided": _strided_loop(lanes),
        "arithmetic": _arithmetic_loop(lanes),
        "nothing": "  ret void",
    }
    text = _module(bodies, streaming)
    module = jit.compile_module(text)
    made = {name: Probe(name, module.address(name)) for name in bodies}
    return Probes(lanes, _module=module, **made)


def _module(bodies: dict[str, str], streaming: bool) -> str:
    declarations = [
        "declare void @GOMP_parallel(ptr, ptr, i32, i32)",
        "declare i32 @omp_get_thread_num()",
        "declare i32 @omp_get_num_threads()",
    ]
    if streaming:
        declarations.append("declare void @llvm.x86.sse.sfence()")
        declarations.append("!0 = !{i32 1}")
    return "\n".join([*declarations, *(_entry(name, body) for name, body in bodies.items())])


def _entry(name: str, body: str) -> str:
    """`name(data, threads)` runs `body` in a parallel region, or directly for one thread."""
    return f"""
define void @{name}(ptr %data, i32 %threads) {{
  %many = icmp sgt i32 %threads, 1
  br i1 %many, label %parallel, label %serial
parallel:
  call void @GOMP_parallel(ptr @{name}_body, ptr %data, i32 %threads, i32 0)
  ret void
serial:
  call void @{name}_body(ptr %data)
  ret void
}}
define void @{name}_body(ptr %data) {{
entry:
{body}
}}"""


_SHARE = """
  %src = load ptr, ptr %data
  %dst.at = getelementptr i64, ptr %data, i64 1
  %dst = load ptr, ptr %dst.at
  %count.at = getelementptr i64, ptr %data, i64 2
  %count = load i64, ptr %count.at
  %repeats.at = getelementptr i64, ptr %data, i64 3
  %repeats = load i64, ptr %repeats.at
  %me32 = call i32 @omp_get_thread_num()
  %all32 = call i32 @omp_get_num_threads()
  %me = sext i32 %me32 to i64
  %all = sext i32 %all32 to i64
  %share = sdiv i64 %count, %all
  %first = mul i64 %me, %share
  %last = add i64 %first, %share
  br label %pass
pass:
  %p = phi i64 [0, %entry], [%p.next, %pass.end]
  br label %loop
"""

_NEXT_PASS = """
pass.end:
  %p.next = add i64 %p, 1
  %again = icmp slt i64 %p.next, %repeats
  br i1 %again, label %pass, label %done
"""


def _copy_loop(lanes: int, *, streaming: bool) -> str:
    """dst[i] = src[i] over vectors; each thread owns a contiguous share."""
    hint = ", !nontemporal !0" if streaming else ""
    moves = "\n".join(
        f"  %i{u} = add i64 %i, {u}\n"
        f"  %s{u} = getelementptr <{lanes} x float>, ptr %src, i64 %i{u}\n"
        f"  %d{u} = getelementptr <{lanes} x float>, ptr %dst, i64 %i{u}\n"
        f"  %v{u} = load <{lanes} x float>, ptr %s{u}\n"
        f"  store <{lanes} x float> %v{u}, ptr %d{u}{hint}"
        for u in range(_UNROLL)
    )
    fence = "  call void @llvm.x86.sse.sfence()\n" if streaming else ""
    return f"""{_SHARE}loop:
  %i = phi i64 [%first, %pass], [%i.next, %loop]
{moves}
  %i.next = add i64 %i, {_UNROLL}
  %more = icmp slt i64 %i.next, %last
  br i1 %more, label %loop, label %pass.end
{_NEXT_PASS}done:
{fence}  ret void"""


def _strided_loop(lanes: int) -> str:
    """dst[j, i] = src[i, j] for a square matrix of `count` rows: neighbours of a result lie `count` numbers
    apart."""
    gathers = "\n".join(
        f"  %r{u} = add i64 %i, {u}\n"
        f"  %o{u} = mul i64 %r{u}, %count\n"
        f"  %x{u} = add i64 %o{u}, %j\n"
        f"  %s{u} = getelementptr float, ptr %src, i64 %x{u}\n"
        f"  %f{u} = load float, ptr %s{u}\n"
        f"  %v{u} = insertelement <{lanes} x float> {f'%v{u - 1}' if u else 'poison'}, float %f{u}, i32 {u}"
        for u in range(lanes)
    )
    return f"""{_SHARE}loop:
  %j = phi i64 [%first, %pass], [%j.next, %row.end]
  %row = mul i64 %j, %count
  br label %inner
inner:
  %i = phi i64 [0, %loop], [%i.next, %inner]
{gathers}
  %y = add i64 %row, %i
  %d = getelementptr float, ptr %dst, i64 %y
  store <{lanes} x float> %v{lanes - 1}, ptr %d, align 4
  %i.next = add i64 %i, {lanes}
  %inside = icmp slt i64 %i.next, %count
  br i1 %inside, label %inner, label %row.end
row.end:
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %last
  br i1 %more, label %loop, label %pass.end
{_NEXT_PASS}done:
  ret void"""


def _arithmetic_loop(lanes: int) -> str:
    """`count` times `CHAINS` independent vector multiply-adds a thread; the sum is stored to keep it
    alive."""
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{c} = phi {vector} [%x, %pass], [%b{c}, %loop]" for c in range(CHAINS))
    steps = "\n".join(
        f"  %b{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{c}, {vector} %x, {vector} %x)"
        for c in range(CHAINS)
    )
    sums = "\n".join(
        f"  %t{c} = fadd {vector} {'%b0' if c == 1 else f'%t{c - 1}'}, %b{c}" for c in range(1, CHAINS)
    )
    start = _SHARE.replace(
        "  br label %pass\n",
        f"  %half = insertelement {vector} zeroinitializer, float 0.5, i32 0\n"
        f"  %x = shufflevector {vector} %half, {vector} poison, <{lanes} x i32> zeroinitializer\n"
        f"  br label %pass\n",
        1,
    )
    return f"""{start}loop:
  %i = phi i64 [%first, %pass], [%i.next, %loop]
{phis}
{steps}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %last
  br i1 %more, label %loop, label %fold
fold:
{sums}
  %d = getelementptr {vector}, ptr %dst, i64 %me
  store {vector} %t{CHAINS - 1}, ptr %d
  br label %pass.end
{_NEXT_PASS}done:
  ret void"""


def aligned(nbytes: int) -> torch.Tensor:
    """Touched memory whose address is a multiple of 64, as bytes."""
    raw = torch.zeros(nbytes + 64, dtype=torch.uint8)
    return raw[-raw.data_ptr() % 64 :][:nbytes]
