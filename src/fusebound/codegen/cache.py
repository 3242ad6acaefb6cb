"""Machine code kept on disk between processes, keyed by the code's text, the machine and the compiler's version."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import llvmlite

from fusebound.codegen import jit

_VERSION = "1"


def compile_cached(text: str, directory: Path | None) -> tuple[jit.Compiled, bool]:
    """Machine code of an LLVM module, and whether it came from `directory`.

    A file holds the SHA-256 of its object code before the code itself; one that does not match is ignored. A
    directory that cannot be written costs nothing but the time to compile.
    """
    if directory is None:
        return jit.compile_module(text), False
    path = directory / "kernels" / f"{_key(text)}.o"
    image = _read(path)
    if image is not None:
        return jit.load_object(image, text), True
    compiled = jit.compile_module(text)
    _write(path, compiled.object)
    return compiled, False


def _key(text: str) -> str:
    machine = jit.host()
    parts = (_VERSION, llvmlite.__version__, machine.cpu, machine.features, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, image = data[:32], data[32:]
    return image if hashlib.sha256(image).digest() == digest else None


def _write(path: Path, image: bytes) -> None:
    """Write beside the final name, then rename: a reader never sees half a file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(hashlib.sha256(image).digest() + image)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return
