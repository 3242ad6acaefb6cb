"""One form for every error: `error[CODE]: what`, ` --> where`, ` = help: hint`, on stderr."""

from __future__ import annotations

import sys
import traceback

import click
from click.core import ParameterSource

from fusebound.errors import FuseboundError

USAGE_CODE = "E100"
UNKNOWN_CODE = "E101"
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
    what = error.format_message()
    parameter = getattr(error, "param", None)
    if parameter is not None and _from_environment(context, parameter):
        what = what.replace(f"'{parameter.opts[0]}'", f"{parameter.envvar} (as {parameter.opts[0]})")
    code = UNKNOWN_CODE if isinstance(getattr(parameter, "type", None), click.Choice) else USAGE_CODE
    click.echo(_styled(render(code, what, where, hint)), err=True)


def _from_environment(context: click.Context | None, parameter: click.Parameter) -> bool:
    """Whether a value that cannot be used is that of an environment variable."""
    if context is None or parameter.name is None or not parameter.envvar:
        return False
    return context.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT


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
