"""Text files: read whole and within bounds, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fusebound.errors import FormatError

LIMIT = 1 << 28
"""Bytes of a text file that are read at most; a plan of ten thousand operators has a tenth of it."""

TEMPORARY = ".tmp"
"""How the names of files end that are being written; a process that was killed leaves one behind."""


def read_text(path: Path, what: str) -> str:
    """The UTF-8 text of an ordinary file, which `what` names in messages ("the plan").

    Raises FormatError (E110; E102 where there is no such file) for a directory, a pipe, a device, more than `LIMIT`
    bytes, and bytes that are no text.
    """
    with _opened(path, what) as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise FormatError(f"cannot read {what}: it is larger than {LIMIT:,} bytes", where=str(path))
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"cannot read {what}: it is not UTF-8 text: {e}", where=str(path)) from e


def require_readable(path: Path, what: str) -> None:
    """Raise FormatError, as `read_text` does, for what cannot be opened or is no ordinary file."""
    with _opened(path, what):
        pass


@contextlib.contextmanager
def _opened(path: Path, what: str) -> Iterator[BinaryIO]:
    try:
        # A pipe without a writer would block an ordinary open for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FormatError(f"cannot read {what}: that is no ordinary file", where=str(path))
            yield file
    except FileNotFoundError as e:
        raise FormatError(f"cannot read {what}: there is no such file", where=str(path), code="E102") from e
    except (OSError, ValueError) as e:  # ValueError: a name with a null character
        why = e.strerror if isinstance(e, OSError) else str(e)
        raise FormatError(f"cannot read {what}: {why}", where=str(path)) from e


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text. Whatever happens on the way (a full disk, a kill), `path` holds the old file or the new one.

    A link keeps pointing where it does. Raises OSError.
    """
    real = Path(os.path.realpath(path))
    if real.exists() and not real.is_file():
        real.write_text(text, encoding="utf-8")  # /dev/stdout, a pipe: nothing to replace
    else:
        write_bytes(real, text.encode(), mode=0o666)


def write_bytes(path: Path, data: bytes, mode: int) -> None:
    """Write beside the final name, then rename: a reader sees the old file or the new one, never a part.

    A new file gets the permissions `mode` less the umask; one that is there keeps its own. Raises OSError and leaves
    nothing behind.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException as e:
        temporary.unlink(missing_ok=True)
        if isinstance(e, OSError):
            e.filename = str(path)  # a full disk names no file, and nobody knows the temporary one
        raise
