"""`.pt2` archives of torch.export, read without running anything that the file says, unless it is trusted."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusebound.api.model import Model
from fusebound.api.sizes import is_size
from fusebound.errors import FormatError, UsageError

REFUSED = "E107"
_TRUST = "`--trust` loads it; do that only with files from people you trust"
_OLD = ("serialized_exported_program.json", "serialized_state_dict.pt")
_TARGETS = ("torch.ops.", "_operator.", "math.", "torch.sym_")


def from_archive(path: Path, *, trust: bool) -> Model:
    """The program of a `.pt2` archive with the example inputs that it was exported with.

    Raises FormatError (E110) for a damaged archive and UsageError (E107) for one that holds pickled payloads,
    compiled code or unknown targets, unless `trust`.
    """
    if not trust:
        _refuse_code(path)
    import torch

    try:
        program = torch.export.load(path)
    except Exception as error:
        raise FormatError(f"the archive cannot be loaded: {error}", where=str(path)) from error
    if program.example_inputs is None:
        raise UsageError("the archive holds no example inputs", where=str(path), code="E103")
    args, kwargs = program.example_inputs
    # The guards would be Python made from strings of the archive; its inputs are the example ones here.
    return Model(path.name, program.module(check_guards=False), args, kwargs)


def _refuse_code(path: Path) -> None:
    """Raise for everything in the archive that loading would execute."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name.partition("/")[2]: name for name in archive.namelist()}
            if not files.keys() & {"archive_format", *_OLD}:
                raise FormatError("the archive is none of torch.export", where=str(path))
            if "archive_format" not in files:
                raise UsageError(
                    "the archive is of an old, pickled format", where=str(path), hint=_TRUST, code=REFUSED
                )
            for short, full in files.items():
                if why := _objection(short, archive.read(full)):
                    raise UsageError(
                        f"the archive holds {why}", where=f"{path}: {short}", hint=_TRUST, code=REFUSED
                    )
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, RecursionError, EOFError) as error:
        raise FormatError(f"the archive is damaged: {error}", where=str(path)) from None


def _objection(name: str, content: bytes) -> str:
    """What is wrong with one file of the archive, or nothing."""
    if name.startswith("data/aotinductor/"):
        return "compiled code"
    if name.endswith("_config.json"):
        entries = json.loads(content)["config"].values()
        return "a pickled tensor or object" if any(e["use_pickle"] for e in entries) else ""
    if name.startswith("data/sample_inputs/"):
        return "" if _plain_tensors(content) else "pickled sample inputs"
    if name.startswith("models/"):
        return _unknown_text(json.loads(content))
    return ""


def _plain_tensors(content: bytes) -> bool:
    import torch

    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception:
        return False
    return True


def _unknown_text(program: Any) -> str:
    """A target outside the operators, or a size that is not arithmetic."""
    for key, value in _strings(program):
        if key == "target" and "." in value and not value.startswith(_TARGETS):
            return f"an unknown target `{value}`"
        if key == "expr_str" and not is_size(value):
            return f"a size that is not arithmetic: `{value}`"
    return ""


def _strings(x: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a JSON value with the key that it stands under."""
    match x:
        case str():
            yield key, x
        case dict():
            for k, v in x.items():
                yield from _strings(v, k)
        case list():
            for v in x:
                yield from _strings(v, key)
        case _:
            return
