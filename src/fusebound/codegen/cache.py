"""Machine code kept on disk between processes, keyed by the code's text, the machine and the compiler's version.

`kernels/` in the cache directory holds one object file for each key, and `MANIFEST`: a line `SHA-256  file` for each,
as `sha256sum` writes them. Code is loaded only if its file is what the manifest says under its own name; whatever is
wrong, the kernel is compiled anew (docs/security.md).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import warnings
from pathlib import Path

import llvmlite

from fusebound.codegen import jit
from fusebound.errors import UsageError
from fusebound.files import write_bytes
from fusebound.settings import make_private

KERNELS = "kernels"
MANIFEST = "MANIFEST"

_VERSION = "2"
_LINE = re.compile(r"([0-9a-f]{64})  ([0-9a-f]{64}\.o)")
_LARGEST = 1 << 26
"""Bytes of a file that are read at most; kernels have kilobytes."""

_said: set[str] = set()


class CacheNotice(UserWarning):
    """Kernels are not kept on disk, and why: they work, and are compiled in every process. Said once for a reason."""


def compile_cached(text: str, directory: Path | None) -> tuple[jit.Compiled, bool]:
    """Machine code of an LLVM module, and whether it came from `directory`.

    A directory that is not this user's alone is not used, and one that cannot be written costs nothing but the time
    to compile: both are said once, by a CacheNotice.
    """
    if directory is None:
        return jit.compile_module(text), False
    try:
        place = make_private(directory / KERNELS)
    except UsageError as why:
        _say(f"{why.what} ({why.where}); {why.hint}")
        return jit.compile_module(text), False
    name = f"{_key(text)}.o"
    image = _read(place / name)
    if image is not None and _digests(place).get(name) == hashlib.sha256(image).hexdigest():
        return jit.load_object(image, text), True
    compiled = jit.compile_module(text)
    try:
        _write(place, name, compiled.object)
    except OSError as why:
        _say(f"cannot write to {place}: {why.strerror or why}")
    return compiled, False


def _say(why: str) -> None:
    if why not in _said:
        _said.add(why)
        warnings.warn(f"kernels are not kept on disk: {why}", CacheNotice, stacklevel=3)


def _key(text: str) -> str:
    machine = jit.host()
    parts = (_VERSION, llvmlite.__version__, machine.cpu, machine.features, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    """The bytes of an ordinary file of sensible size; links are not followed, pipes not waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
                return None
            return file.read(_LARGEST)
    except OSError:
        return None


def _digests(place: Path) -> dict[str, str]:
    """The manifest: the last whole line for a file counts, and anything else is no line."""
    lines = (_read(place / MANIFEST) or b"").decode("ascii", "replace").splitlines()
    return {found[2]: found[1] for line in lines if (found := _LINE.fullmatch(line))}


def _write(place: Path, name: str, image: bytes) -> None:
    """The object first, its line after it: a process that is killed between the two leaves an object without a line.

    Lines are added by one `write` each, so that two processes do not mix theirs.
    """
    write_bytes(place / name, image, mode=0o600)
    flags = (
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    handle = os.open(place / MANIFEST, flags, 0o600)
    try:
        os.write(handle, f"{hashlib.sha256(image).hexdigest()}  {name}\n".encode())
    finally:
        os.close(handle)
