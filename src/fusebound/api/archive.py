"""`.pt2` archives of torch.export, read without running anything that the file says, unless it is trusted.

torch is given a copy in memory that holds only what was checked, each file once and under its usual name: what two
readers of one ZIP file may see differently (files of one name, names in capitals, several roots) is not in it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from fusebound.api.model import Model
from fusebound.api.program_text import objection, without_extras
from fusebound.errors import FormatError, UsageError

REFUSED = "E107"
_TRUST = "`--trust` loads it; do that only with files from people you trust"
_OLD = ("serialized_exported_program.json", "serialized_state_dict.pt")
_PLAIN = re.compile(
    r"archive_format|archive_version|byteorder|\.data/\w+|data/(weights/weight|constants/tensor)_\d+"
)
_PAYLOAD = re.compile(r"(weight|tensor)_\d+")
_PICKLED = re.compile(r"data/(sample_inputs|weights|constants)/[^/]*\.pt")
_GROWTH = (1 << 26, 20)
"""Bytes that an archive may hold when unpacked, and how many times its own size; torch does not compress at all."""


def from_archive(path: Path, *, trust: bool) -> Model:
    """The program of a `.pt2` archive with the example inputs that it was exported with.

    Raises FormatError (E110) for a damaged archive and UsageError (E107) for one that holds pickled payloads,
    compiled code or unknown targets, unless `trust`.
    """
    source = path if trust else io.BytesIO(_checked(path))
    import torch

    try:
        with _silent():
            program = torch.export.load(source)
        if program.example_inputs is None:
            raise UsageError("the archive holds no example inputs", where=str(path), code="E103")
        args, kwargs = program.example_inputs
        # The guards would be Python made from strings of the archive; its inputs are the example ones here.
        return Model(path.name, program.module(check_guards=False), tuple(args), dict(kwargs))
    except UsageError:
        raise
    except Exception as error:
        what = str(error).strip().rpartition("\n")[2][:200]
        raise FormatError(f"the archive cannot be loaded: {what}", where=str(path)) from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """torch logs what it meets, with tracebacks; our diagnostic says it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _checked(path: Path) -> bytes:
    """The archive anew, with nothing in it that was not checked; raises for what loading would execute."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = _files(archive, path)
            copy = io.BytesIO()
            with zipfile.ZipFile(copy, "w") as target:
                for name, entry in files.items():
                    content = _content(name, archive.read(entry), files, path)
                    if content is not None:
                        target.writestr(f"archive/{name}", content)
    except UsageError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds
        raise FormatError(f"the archive is damaged: {error}", where=str(path)) from None
    return copy.getvalue()


def _files(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The archive's files by name below its root, each once."""
    entries = archive.infolist()
    files = {e.filename.partition("/")[2] or e.filename: e for e in entries}
    if len(files) != len(entries):
        raise FormatError("the archive holds several files of one name", where=str(path))
    least, times = _GROWTH
    if (total := sum(e.file_size for e in entries)) > max(least, times * path.stat().st_size):
        raise FormatError(f"the archive would unpack to {total:,} bytes", where=str(path))
    if not files.keys() & {"archive_format", *_OLD}:
        raise FormatError("the archive is none of torch.export", where=str(path))
    if "archive_format" not in files:
        raise _refused(path, "", "an old, pickled format")
    return files


def _refused(path: Path, name: str, what: str) -> UsageError:
    where = f"{path}: {name}" if name else str(path)
    return UsageError(f"the archive holds {what}", where=where, hint=_TRUST, code=REFUSED)


def _content(name: str, content: bytes, files: dict[str, zipfile.ZipInfo], path: Path) -> bytes | None:
    """What the copy holds of a file: its content, or nothing of a file that loading does not need."""
    if name.startswith("data/aotinductor/"):
        raise _refused(path, name, "compiled code")
    if name.endswith("_config.json"):
        if why := _payload_objection(json.loads(content), name.rpartition("/")[0], files):
            raise _refused(path, name, why)
        return content
    if _PICKLED.fullmatch(name):
        if not _plain_tensors(content):
            raise _refused(path, name, f"pickled {name.split('/')[1].replace('_', ' ')}")
        return content
    if name.startswith("models/"):
        program = without_extras(json.loads(content))
        if why := objection(program):
            raise _refused(path, name, why)
        return json.dumps(program).encode()
    return content if _PLAIN.fullmatch(name) else None


def _payload_objection(config: dict[str, Any], folder: str, files: dict[str, zipfile.ZipInfo]) -> str:
    """What is wrong with a list of tensors: pickled ones, and zeros that the archive does not hold."""
    for entry in config["config"].values():
        if entry["use_pickle"] or not _PAYLOAD.fullmatch(file := cast("str", entry["path_name"])):
            return "a pickled tensor or object"
        sizes = [d["as_int"] for d in entry["tensor_meta"]["sizes"]]
        if files[f"{folder}/{file}"].file_size == 0 and math.prod(sizes):
            return f"a tensor {sizes} without its values"
    return ""


def _plain_tensors(content: bytes) -> bool:
    """Whether a pickle holds tensors and plain containers alone, so that torch need not run what it says."""
    import torch

    if not content:
        return True
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception:
        return False
    return True
