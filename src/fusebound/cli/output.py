"""stdout: one result as text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 110


def emit(
    format: str,
    *,
    text: str | Callable[[Console], None],
    data: Callable[[], Any],
    rows: Callable[[], Iterable[Sequence[object]]],
) -> None:
    """Print a result in the chosen format; only that format's function is called.

    `rows` yields a header first. JSON keeps the order of the data.
    """
    match format:
        case "json":
            click.echo(json.dumps(data(), indent=2, ensure_ascii=False))
        case "csv":
            click.echo(to_csv(rows()), nl=False)
        case _ if isinstance(text, str):
            click.echo(text)
        case _:
            _print(text)


def _print(text: Callable[[Console], None]) -> None:
    """To a terminal with its width and colours; to a pipe as plain lines of a fixed width without padding."""
    from rich.console import Console

    if sys.stdout.isatty():
        text(Console(highlight=False))
        return
    from fusebound.report.layout import plain

    click.echo(plain(text, int(os.environ.get("COLUMNS") or PIPE_WIDTH)))


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as comma-separated lines ending in a newline; None is an empty field."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()
