"""Where the user wrote an operator: module path, file, line, code."""

from __future__ import annotations

import contextlib
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import torch
import torch.fx
from torch.fx.proxy import TracerBase

from fusebound.ir.graph import Source

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in .*)?$')
_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_user_file(file: str) -> bool:
    """Neither the framework's code nor this package's capture."""
    return not file.startswith((_TORCH, _HERE, "<frozen", "<string>"))


def is_own_file(file: str) -> bool:
    """Code of the user's own project: neither the standard library nor an installed package."""
    return is_user_file(file) and not file.startswith(_INSTALLED)


def shown(source: Source) -> str:
    """File, line and the line's text, for an error's `where`."""
    return f"{source}: {source.code}" if source.code else str(source)


def source_of(node: torch.fx.Node) -> Source:
    """The innermost frame of the user's code that led to this node."""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    found = Source()
    for i, text in enumerate(lines):
        frame = _FRAME.match(text)
        if frame and is_user_file(frame["file"]):
            code = lines[i + 1].strip() if i + 1 < len(lines) and not _FRAME.match(lines[i + 1]) else ""
            found = Source(frame["file"], int(frame["line"]), code)
    return found


@contextlib.contextmanager
def full_stacks() -> Iterator[None]:
    """Let the tracer record every frame of the user's code, not only functions called `forward`."""
    original = TracerBase._filter_traceback_frames

    def inside(self: TracerBase, user_stack_summary: traceback.StackSummary) -> traceback.StackSummary:
        inner = [i for i, f in enumerate(user_stack_summary) if f.filename.startswith(_HERE)]
        below = user_stack_summary[inner[-1] + 1 :] if inner else user_stack_summary
        return traceback.StackSummary.from_list([f for f in below if is_user_file(f.filename)])

    TracerBase._filter_traceback_frames = inside
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = original


def scope_of(node: torch.fx.Node) -> str:
    """The path of the innermost module that ran the node: `layers.0.mlp`."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L__self__").removeprefix("L['self'].").lstrip(".")


def written_as(node: torch.fx.Node, originals: dict[str, torch.fx.Node]) -> torch.fx.Node | None:
    """The node of the undecomposed program that this one came from."""
    for step in node.meta.get("from_node") or ():
        found = originals.get(step.name)
        if found is not None:
            return found
    return None


def line_of(trace: TracebackType | None) -> Source:
    """The innermost frame of the user's code in a traceback."""
    found = Source()
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if is_user_file(file):
            found = Source(file, line, linecache.getline(file, line).strip())
    return found
