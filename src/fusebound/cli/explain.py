"""`fusebound explain CODE`: what a code means, with an example."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console


def pages() -> dict[str, str]:
    """The pages of all codes: the gates' first, then those of errors."""
    from fusebound.gates.pages import HOME, read

    return {**read(HOME), **read("fusebound.cli")}


def _show(console: Console, text: str) -> None:
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.markdown import Markdown

    console.print(Markdown(text))


@click.command("explain", short_help="What a code means.")
@click.argument("code", required=False)
@with_options(OUTPUT)
def command(options: Options, code: str | None) -> None:
    """Explain CODE (F… of a gate, E… of an error), or list all codes."""
    from fusebound.gates.pages import headline, page

    known = pages()
    if code is None:
        rows = [(c, headline(text)) for c, text in known.items()]
        emit(
            options.format,
            text="\n".join(f"{c}  {t}" for c, t in rows),
            data=lambda: dict(rows),
            rows=lambda: [("code", "title"), *rows],
        )
        return
    code = code.upper()
    text = page(code, known)
    emit(
        options.format,
        text=lambda console: _show(console, text),
        data=lambda: {"code": code, "title": headline(text), "page": text},
        rows=lambda: [("code", "title"), (code, headline(text))],
    )
