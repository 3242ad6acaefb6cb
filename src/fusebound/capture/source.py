"""Where the user wrote an operator: module path, file, line, code."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

import torch
import torch.fx
from torch.fx.proxy import TracerBase

from fusebound.ir.graph import Source

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in .*)?$')
_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_SCENARIOS = _PACKAGE + "scenarios" + os.sep
_GENERATED = "<eval_with_key>"
_INSTALLED = tuple({sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_user_file(file: str) -> bool:
    """Neither the framework's code nor this package's own, whose scenarios are programs like a user's."""
    if file.startswith(_PACKAGE):
        return file.startswith(_SCENARIOS)
    return not file.startswith((_TORCH, _GENERATED, "<frozen", "<string>"))


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
        if any(f.filename.startswith(_GENERATED) for f in below):
            below = _written_by_user(below, sys._getframe())
        return traceback.StackSummary.from_list([f for f in below if is_user_file(f.filename)])

    TracerBase._filter_traceback_frames = inside
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = original


def _written_by_user(
    frames: Iterable[traceback.FrameSummary], top: FrameType | None
) -> list[traceback.FrameSummary]:
    """Frames in code that the framework generated (the branches of control flow), as the user's frames that it was
    generated from."""
    running: dict[str, torch.fx.GraphModule] = {}
    while top is not None:
        file, module = top.f_code.co_filename, top.f_locals.get("self")
        if file.startswith(_GENERATED) and isinstance(module, torch.fx.GraphModule):
            running[file] = module
        top = top.f_back
    found: list[traceback.FrameSummary] = []
    for f in frames:
        module = running.get(f.filename)
        found += _frames_of(module, f.line or "") if module is not None else [f]
    return found


def _frames_of(module: torch.fx.GraphModule, line: str) -> list[traceback.FrameSummary]:
    """The user's frames behind a generated line, `mul = x * 2`: those of the node of that name."""
    name = re.split(r"[ :=]", line.strip(), maxsplit=1)[0]
    trace = next((n.meta.get("stack_trace") for n in module.graph.nodes if n.name == name), None)
    matches = [m for text in (trace or "").splitlines() if (m := _FRAME.match(text))]
    return [traceback.FrameSummary(m["file"], int(m["line"]), "") for m in matches]


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
