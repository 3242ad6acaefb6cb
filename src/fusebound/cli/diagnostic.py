"""One form for every error: `error[CODE]: what`, ` --> where`, ` = help: hint`, on stderr."""

from __future__ import annotations

import sys
import traceback

import click

from fusebound.errors import FuseboundError

USAGE_CODE = "E100"
INTERNAL_CODE = "E000"


def render(code: str, what: str, where: str = "", hint: str = "") -> str:
    """The diagnostic's lines; continuation lines of a part are indented under it."""
    lines = [f"error[{code}]: {_indent(what, 4)}"]
    if where:
        lines.append(f"  --> {_indent(where, 6)}")
    if hint:
        lines.append(f"  = help: {_indent(hint, 10)}")
    return "\n".join(lines)


def _indent(text: str, width: int) -> str:
    return text.strip().replace("\n", "\n" + " " * width)


def show(error: FuseboundError, *, debug: bool) -> None:
    """Print one error that fusebound raised on purpose; with `debug` its traceback first."""
    if debug:
        traceback.print_exception(error)
    click.echo(_styled(render(error.code, error.what, error.where, error.hint)), err=True)


def usage(error: click.ClickException) -> None:
    """Print an error of click's own: a missing argument, an unknown option."""
    context = getattr(error, "ctx", None)
    where = context.get_usage().removeprefix("Usage: ") if context is not None else ""
    hint = f"`{context.command_path} --help` shows what it takes" if context is not None else ""
    click.echo(_styled(render(USAGE_CODE, error.format_message(), where, hint)), err=True)


def internal(error: Exception, *, debug: bool) -> None:
    """Print an exception that nobody expected: a fault of fusebound or of the user's own code."""
    if debug:
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    hint = "this is a fault of fusebound; `--debug` shows the traceback" if not debug else ""
    click.echo(_styled(render(INTERNAL_CODE, what, _origin(error), hint)), err=True)


def _origin(error: Exception) -> str:
    """The innermost frame of the exception."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _styled(text: str) -> str:
    """Bold red head in a terminal; `click.echo` drops the codes elsewhere."""
    if not sys.stderr.isatty():
        return text
    head, colon, rest = text.partition(":")
    return click.style(head, fg="red", bold=True) + colon + rest
