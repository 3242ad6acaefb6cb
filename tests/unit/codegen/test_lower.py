"""Tile programs of small graphs, and the faults that lowering once had."""

from __future__ import annotations

import pytest
import torch
from tests.unit.codegen.graphs import graph, program, run, values

from fusebound.codegen import jit, llvm, tile
from fusebound.codegen.spec import faults
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph

SOFTMAX = """\
kernel k(in x: float32, out f.6: float32)  # 1 tile, 16 lanes
  scratch s0: float32[56]
  parallel i0 in 0:3 by 3  # 1 tile
    for i0 in block of 0:3
      pass a1 = amax<float32>
        vector for i1 in 0:40
          t1 = x[40*i0 + i1]
          a1 += t1
      t2 = finish a1  # f
      pass a2 = sum<float32>
        vector for i1 in 0:40
          t3 = x[40*i0 + i1]
          t4 = sub(t3, t2) : float32  # f
          t5 = exp(t4) : float32  # f
          s0[i1] = t5
          a2 += t5
      t6 = finish a2  # f
      pass
        vector for i1 in 0:40
          t7 = s0[i1]
          t8 = div(t7, t6) : float32  # f
          f.6[40*i0 + i1] = t8
"""


def softmax(rows: int = 3, row: int = 40) -> Graph:
    def make(b: Builder) -> str:
        b.input("x", (rows, row), "float32")
        b.begin("f")
        m = b.emit("reshape", b.emit("amax", "x", axes=(1,)), shape=(rows, 1))
        e = b.emit("exp", b.emit("sub", "x", m))
        s = b.emit("reshape", b.emit("sum", e, axes=(1,)), shape=(rows, 1))
        return b.emit("div", e, s)

    return graph(make)


def test_softmax_keeps_its_exponentials_in_scratch() -> None:
    assert tile.show(program(softmax())) == SOFTMAX


def test_contiguous_axes_are_one_loop() -> None:
    def make(b: Builder) -> str:
        b.input("x", (3, 5, 7), "float32")
        b.begin("f")
        return b.emit("neg", "x")

    k = program(graph(make))
    assert [a.hi for a in k.nests[0].axes] == [105]


def padded_row() -> Graph:
    """Padding above, beside and inside of rows whose values are stored and reduced."""

    def make(b: Builder) -> list[str]:
        b.input("x", (1, 4), "float32")
        b.begin("f")
        p = b.emit("pad", "x", shape=(3, 7), lo=(2, 2), value=-2.0)
        return [b.emit("abs", p), b.emit("sum", b.emit("abs", p), axes=(1,))]

    return graph(make)


def padded_reduction() -> Graph:
    """A reduction exists on part of the result only."""

    def make(b: Builder) -> str:
        b.input("x", (20, 9), "int64")
        b.begin("f")
        m = b.emit("argmin", "x", axes=(0,))
        return b.emit("pad", m, shape=(14,), lo=(2,), value=1)

    return graph(make)


def joined_reductions() -> Graph:
    def make(b: Builder) -> str:
        b.input("x", (5, 9), "int64")
        b.input("y", (3, 9), "int64")
        b.begin("f")
        return b.emit("cat", b.emit("sum", "x", axes=(1,)), b.emit("amax", "y", axes=(1,)), dim=0)

    return graph(make)


def window_in_padding() -> Graph:
    def make(b: Builder) -> str:
        b.input("x", (6, 5, 1), "int64")
        b.begin("f")
        p = b.emit("pad", "x", shape=(6, 8, 2), lo=(0, 2, 0), value=0)
        return b.emit("slice", b.emit("amax", p, axes=(1,)), shape=(6, 1), dim=1, start=1, step=1)

    return graph(make)


def row_beside_its_sum() -> Graph:
    def make(b: Builder) -> str:
        b.input("x", (5, 8), "int64")
        b.begin("f")
        s = b.emit("reshape", b.emit("sum", "x", axes=(1,)), shape=(5, 1))
        return b.emit("cat", b.emit("neg", "x"), s, dim=1)

    return graph(make)


CASES = [padded_row, padded_reduction, joined_reductions, window_in_padding, row_beside_its_sum]


@pytest.mark.parametrize("make", CASES)
def test_parts_of_a_space_compute_what_they_store(make: object) -> None:
    g = make()  # type: ignore[operator]
    assert not faults(g, program(g))
    inputs = {
        i: torch.randint(-5, 6, g.values[i].shape).to(getattr(torch, g.values[i].dtype)) for i in g.input_ids
    }
    want = values(g, inputs)
    for v, got in run(g, inputs).items():
        assert torch.equal(got, want[v]), v


def machines() -> list[tuple[int, jit.Machine]]:
    """The host, and narrower machines that the host can play."""
    host = jit.host()
    found = [(jit.vector_bits() // 32, host), (4, jit.Machine("", "")), (1, jit.Machine("", ""))]
    if {"avx2", "fma"} <= host.isa:
        found.append((8, jit.Machine("haswell", "+avx2,+fma,+f16c,+bmi,+bmi2")))
    return found


@pytest.mark.parametrize(("lanes", "machine"), machines(), ids=lambda x: str(getattr(x, "cpu", x)))
@pytest.mark.parametrize("row", [1, 17, 40])
def test_narrower_machines(lanes: int, machine: jit.Machine, row: int) -> None:
    g = softmax(5, row)
    x = torch.randn(5, row)
    got = run(g, {"x": x}, lanes=lanes, machine=machine)
    torch.testing.assert_close(got[g.outputs[0]], torch.softmax(x, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("lanes", "machine"), machines(), ids=lambda x: str(getattr(x, "cpu", x)))
@pytest.mark.parametrize("shape", [(9, 40), (64, 17), (31, 33)])
@pytest.mark.parametrize("apart", [1, 2, 3, 4])
def test_narrower_machines_turn_and_shuffle(
    lanes: int, machine: jit.Machine, shape: tuple[int, int], apart: int
) -> None:
    rows, columns = shape

    def make(b: Builder) -> list[str]:
        b.input("x", shape, "float32", (apart * columns, apart))
        b.begin("f")
        y = b.emit("neg", "x")
        return [y, b.emit("reshape", b.emit("permute", y, perm=(1, 0)), shape=(columns, rows), user=True)]

    g = graph(make)
    x = torch.randn(rows, apart * columns)[:, ::apart]
    x = torch.empty_strided(shape, (apart * columns, apart)).copy_(x)
    got = run(g, {"x": x}, lanes=lanes, machine=machine)
    first, second = g.outputs
    assert torch.equal(got[first], -x) and torch.equal(got[second], -x.t())


def test_the_order_of_a_sum_depends_on_shapes_alone() -> None:
    def make(b: Builder) -> str:
        b.input("x", (700, 300), "float32")
        b.begin("f")
        return b.emit("sum", "x", axes=(1,))

    g = graph(make)
    x = torch.randn(700, 300)
    results = [run(g, {"x": x}, threads=n)["f"] for n in (1, 2, 3, 7)]
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool"])
@pytest.mark.parametrize("row", [15, 16, 17, 33])
def test_narrow_stores_keep_to_their_width(dtype: str, row: int) -> None:
    """LLVM 22 stores 32 bits for the last 16-bit element of a row of 17."""

    def make(b: Builder) -> list[str]:
        b.input("x", (4, row), dtype, (2 * row, 2))
        b.begin("f")
        y = b.emit("eq", "x", "x")
        return [b.emit("cast", y, dtype=dtype, user=True), b.emit("maximum", "x", "x")]

    g = graph(make)
    x = torch.ones(4, 2 * row)[:, ::2].to(getattr(torch, dtype))
    x = torch.empty_strided((4, row), (2 * row, 2), dtype=x.dtype).copy_(x)
    want = values(g, {"x": x})
    room = {v: torch.zeros(4 * row + 64, dtype=x.dtype) for v in g.outputs}
    k = program(g)
    compiled = jit.compile_module(llvm.emit(k, large=False, isa=jit.host().isa))
    _launch(compiled, [x if not p.written else room[p.value] for p in k.params])
    for v, memory in room.items():
        assert torch.equal(memory[: 4 * row].view(4, row), want[v])
        assert not memory[4 * row :].any()


def _launch(compiled: jit.Compiled, tensors: list[torch.Tensor], name: str = "k") -> None:
    import ctypes

    flag = ctypes.c_int32(0)
    array = (ctypes.c_int64 * (len(tensors) + 1))(*(t.data_ptr() for t in tensors), ctypes.addressof(flag))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(compiled.address(name))(ctypes.byref(array), 1)


def test_the_text_says_what_the_user_wrote() -> None:
    text = llvm.emit(program(softmax()), large=False)
    assert "define void @k(ptr %args, i32 %threads)" in text and "; f" in text
    assert "GOMP_parallel" in text and "sfence" not in text and "@llvm.prefetch" not in text
    assert "call void @llvm.prefetch" in llvm.emit(program(softmax()), large=True)


def test_streaming_kernels_have_a_form_for_fresh_memory() -> None:
    def make(b: Builder) -> str:
        b.input("x", (64, 256), "float32")
        b.begin("f")
        return b.emit("mul", "x", "x")

    g = graph(make)
    x = torch.randn(64, 256)
    k = program(g, stream=True)
    compiled = jit.compile_module(llvm.emit(k, large=True, isa=jit.host().isa))
    assert k.streams
    for name in ("k", "k" + llvm.FRESH):
        room = torch.zeros(64, 256)
        _launch(compiled, [x if not p.written else room for p in k.params], name)
        assert torch.equal(room, x * x)
    plain, fresh = (
        compiled.asm.split(f"{name}.tiles:", 1)[1].split("retq", 1)[0] for name in ("k", "k.fresh")
    )
    assert "vmovnt" in plain or "movnt" in plain
    assert "movnt" not in fresh


def test_deep_chains_lower() -> None:
    def make(b: Builder) -> str:
        b.input("x", (3,), "int64")
        b.begin("f")
        v = "x"
        for _ in range(1500):
            v = b.emit("add", v, "x")
        return v

    g = graph(make)
    x = torch.tensor([1, 2, 3])
    assert torch.equal(run(g, {"x": x})[g.outputs[0]], x * 1501)


GATE = """\
    vector for i0 in block of 0:40
      t1 = g[i0]
      t2 = sigmoid(t1) : float32  # f
      s0[i0] = t2
    for i0 in block of 0:40
      t3 = s0[i0]
      vector for i1 in 0:49
        t4 = x[49*i0 + i1]
        t5 = mul(t4, t3) : float32  # f
        f.2[49*i0 + i1] = t5
"""


def gated(rows: int, row: int, along: int) -> Graph:
    """x · sigmoid(g), g along one of the axes of x."""

    def make(b: Builder) -> str:
        shape = (rows, 1) if along == 0 else (1, row)
        b.input("x", (rows, row), "float32")
        b.input("g", shape, "float32")
        b.begin("f")
        gate = b.emit("expand", b.emit("sigmoid", "g"), shape=(rows, row))
        return b.emit("mul", "x", gate)

    return graph(make)


def test_what_every_row_needs_one_of_is_computed_by_vectors_before() -> None:
    assert GATE in tile.show(program(gated(40, 49, 0)))


def test_what_every_row_computes_again_is_computed_once_before() -> None:
    text = tile.show(program(gated(40, 49, 1)))
    assert text.index("sigmoid") < text.index("block of 0:40") < text.index("= s0[i1]")


@pytest.mark.parametrize(("rows", "row", "along"), [(40, 5000, 0), (3, 49, 0), (3, 49, 1), (40, 20000, 1)])
def test_rows_too_long_or_too_few_are_not_prepared(rows: int, row: int, along: int) -> None:
    assert not program(gated(rows, row, along)).scratch
