"""One native Python function for all kernels: tensors in, pointers out to machine code, without ctypes in between.

Calling a kernel through ctypes costs more than a small kernel takes. The trampoline is a METH_FASTCALL builtin made
over JIT code: it fetches each tensor's data pointer, releases the interpreter lock for large work, runs the kernel
and returns the flag word. Its `self` is the address of a `_Target`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from fusebound.codegen import jit
from fusebound.runtime.private import tensor_data_address

MAX_PARAMS = 128

_METH_FASTCALL = 0x80

Native = Callable[..., int]
"""`f(*tensors, threads) -> flag`: runs a kernel on the tensors' memory."""


class _Target(ctypes.Structure):
    """What the JIT code reads: the kernel's entry point, its number of pointers, whether to release the lock."""

    _fields_ = (("entry", ctypes.c_void_p), ("params", ctypes.c_int64), ("release", ctypes.c_int64))


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("method", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


_TEXT = """
define ptr @fb_trampoline(ptr %self, ptr %args, i64 %count) {{
entry:
  %slots = alloca [{slots} x ptr], align 64
  %flag = alloca i32, align 4
  store i32 0, ptr %flag, align 4
  %word = call i64 {as_long}(ptr %self)
  %target = inttoptr i64 %word to ptr
  %kernel = load ptr, ptr %target, align 8
  %params.at = getelementptr i64, ptr %target, i64 1
  %params = load i64, ptr %params.at, align 8
  %release.at = getelementptr i64, ptr %target, i64 2
  %release = load i64, ptr %release.at, align 8
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %one]
  %more = icmp slt i64 %i, %params
  br i1 %more, label %one, label %ready
one:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at, align 8
  %data = call ptr {data}(ptr %arg)
  %slot = getelementptr ptr, ptr %slots, i64 %i
  store ptr %data, ptr %slot, align 8
  %after = add i64 %i, 1
  br label %next
ready:
  %last = getelementptr ptr, ptr %slots, i64 %params
  store ptr %flag, ptr %last, align 8
  %threads.at = getelementptr ptr, ptr %args, i64 %params
  %threads.obj = load ptr, ptr %threads.at, align 8
  %threads.long = call i64 {as_long}(ptr %threads.obj)
  %threads = trunc i64 %threads.long to i32
  %unlock = icmp ne i64 %release, 0
  br i1 %unlock, label %unlocked, label %locked
locked:
  call void %kernel(ptr %slots, i32 %threads)
  br label %done
unlocked:
  %state = call ptr {save}()
  call void %kernel(ptr %slots, i32 %threads)
  call void {restore}(ptr %state)
  br label %done
done:
  %code = load i32, ptr %flag, align 4
  %wide = sext i32 %code to i64
  %result = call ptr {from_long}(i64 %wide)
  ret ptr %result
}}
"""


def _pointer(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"


def _api(name: str) -> str:
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return _pointer(found)


@cache
def _method() -> _MethodDef | None:
    """The compiled trampoline, or None where torch does not export what it needs."""
    address = tensor_data_address()
    if address is None:
        return None
    text = _TEXT.format(
        slots=MAX_PARAMS + 1, data=_pointer(address), as_long=_api("PyLong_AsLong"),
        from_long=_api("PyLong_FromLong"), save=_api("PyEval_SaveThread"), restore=_api("PyEval_RestoreThread"),
    )  # fmt: skip
    _keep.append(compiled := jit.compile_module(text))
    return _MethodDef(b"kernel", compiled.address("fb_trampoline"), _METH_FASTCALL, None)


_keep: list[Any] = []


def native(entry: int, params: int, *, release: bool) -> Native | None:
    """A builtin that calls the kernel at `entry`; None where the trampoline cannot be had (use ctypes then)."""
    method = _method() if _works() and params <= MAX_PARAMS else None
    return None if method is None else _bind(method, entry, params, release)


def _bind(method: _MethodDef, entry: int, params: int, release: bool) -> Native:
    target = _Target(entry, params, release)
    _keep.append(target)  # kernels live as long as the process keeps their functions: a few bytes each
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), ctypes.addressof(target), None)


@cache
def _works() -> bool:
    """Try it on a kernel that copies one float."""
    method = _method()
    if method is None:
        return False
    copy = jit.compile_module(
        "define void @fb_probe(ptr %a, i32 %n) {\n %q = getelementptr ptr, ptr %a, i64 1\n %x = load ptr, ptr %a\n"
        " %y = load ptr, ptr %q\n %v = load float, ptr %x\n store float %v, ptr %y\n ret void\n}\n"
    )
    source, target = torch.tensor([1.0, 7.0])[1:], torch.zeros(1)
    flag = _bind(method, copy.address("fb_probe"), 2, True)(source, target, 1)
    return flag == 0 and target.item() == 7.0
