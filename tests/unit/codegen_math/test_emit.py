"""The emitter's structured control flow, constants and checks; loading from cached objects."""

from __future__ import annotations

import ctypes
import threading

import pytest

from fusebound.codegen.emit import Fn, Module
from fusebound.codegen.jit import Compiled, compile_module, load_object
from fusebound.errors import BuildError


def call(compiled: Compiled, name: str, *args: int) -> int:
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))
    return signature(compiled.address(name))(*args)


def sum_below(name: str = "sums") -> Module:
    """i64 sums(i64 lo, i64 hi, i64 step): the sum of range(lo, hi, step), odd terms doubled."""
    module = Module()
    fn = module.function(name, [("lo", "i64"), ("hi", "i64"), ("step", "i64")], "i64")
    lo, hi, step = fn.parameters
    with fn.loop(lo, hi, step, carry=(fn.const(0, "i64"),)) as it:
        odd = fn.icmp("ne", fn.op("and", it.index, fn.const(1, "i64")), fn.const(0, "i64"))
        with fn.when(odd, keep=(it.index,)) as arm:
            arm.update(fn.op("mul", it.index, fn.const(2, "i64")))
        it.update(fn.op("add", it.values[0], arm.results[0]))
    fn.ret(it.results[0])
    return module


@pytest.mark.parametrize("bounds", [(0, 10, 1), (0, 10, 3), (5, 5, 1), (9, 2, 1), (-4, 4, 2)])
def test_loops_run_zero_times_or_more(bounds: tuple[int, int, int]) -> None:
    compiled = compile_module(sum_below().render())
    assert call(compiled, "sums", *bounds) == sum(2 * i if i % 2 else i for i in range(*bounds))


def test_object_code_can_be_loaded_again() -> None:
    first = compile_module(sum_below().render())
    again = load_object(first.object, first.text)
    assert call(again, "sums", 0, 100, 1) == call(first, "sums", 0, 100, 1)
    assert "sums" in again.asm


def test_threads_compile_at_once() -> None:
    results: dict[int, int] = {}

    def work(i: int) -> None:
        results[i] = call(compile_module(sum_below(f"sums{i}").render()), f"sums{i}", 0, i, 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: sum(2 * k if k % 2 else k for k in range(i)) for i in range(4)}


def test_constants_are_exact() -> None:
    fn = Fn("f", [])
    assert fn.const(0.1, "float").name == "0x3FB99999A0000000"
    assert fn.const(0.1, "double").name == "0x3FB999999999999A"
    assert fn.const(-1, "<4 x i8>").name == "splat (i8 -1)"
    assert fn.const(255, "i8").name == "-1"
    assert fn.const(1e60, "float").name == fn.const(float("inf"), "float").name


def test_constants_stay_constants() -> None:
    fn = Fn("f", [])
    three = fn.splat(fn.const(3.0, "float"), 8)
    assert three == fn.const(3.0, "<8 x float>")
    assert fn.extract(three, 5) == fn.const(3.0, "float")


def test_operands_of_different_types_are_refused() -> None:
    fn = Fn("f", [("a", "<4 x float>"), ("b", "<8 x float>")])
    with pytest.raises(BuildError, match="fadd of different types"):
        fn.op("fadd", *fn.parameters)


def test_loop_must_hand_its_values_on() -> None:
    fn = Fn("f", [])
    with pytest.raises(BuildError, match="needs `update`"), fn.loop(0, 4, carry=(fn.const(0, "i64"),)):
        fn.comment("nothing")


def test_loop_keeps_the_types_of_its_values() -> None:
    fn = Fn("f", [])
    with pytest.raises(BuildError, match="other types"), fn.loop(0, 4, carry=(fn.const(0, "i64"),)) as it:
        it.update(fn.const(0, "i32"))


def test_text_that_llvm_rejects_is_a_build_error() -> None:
    with pytest.raises(BuildError, match="LLVM rejects"):
        compile_module("define i64 @f() {\n  ret i32 0\n}\n")


def test_unknown_function_name() -> None:
    with pytest.raises(BuildError, match="no function missing"):
        compile_module(sum_below().render()).address("missing")


def test_declarations_and_comments_are_in_the_text() -> None:
    module = Module()
    fn = module.function("f", [("x", "<8 x float>")], "<8 x float>")
    fn.comment("layers.0.act\nsecond line")
    fn.ret(fn.fma(fn.parameters[0], fn.parameters[0], fn.const(1.0, "<8 x float>")))
    text = module.render()
    assert text.count("declare <8 x float> @llvm.fma.v8f32") == 1
    assert "  ; layers.0.act\n  ; second line\n" in text


def test_damaged_object_code_is_a_build_error() -> None:
    with pytest.raises(BuildError, match="cannot be loaded"):
        load_object(b"not an object", sum_below().render())
