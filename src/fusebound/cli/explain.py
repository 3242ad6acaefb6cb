"""`fusebound explain CODE`: what a code means, with an example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit
from fusebound.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def pages() -> dict[str, Traversable]:
    """The pages of all codes: the gates' first, then those of errors."""
    homes = (files("fusebound.gates"), files("fusebound.cli"))
    found = [p for home in homes for p in home.joinpath("pages").iterdir() if p.name.endswith(".md")]
    ordered = sorted(found, key=lambda p: (p.name[0] == "E", p.name))
    return {p.name.removesuffix(".md"): p for p in ordered}


def page(code: str) -> str:
    """The Markdown page of a code; raises UsageError (E101) for an unknown one."""
    known = pages()
    if code in known:
        return known[code].read_text(encoding="utf-8")
    close = get_close_matches(code, known, 3, 0.5)
    hint = f"close ones: {', '.join(close)}" if close else "`fusebound explain` lists all codes"
    raise UsageError(f"there is no code `{code}`", where="explain", hint=hint, code="E101")


def title(code: str) -> str:
    """The first line of a page, without the code."""
    return page(code).splitlines()[0].lstrip("# ").removeprefix(code).lstrip(" :—-")


def _list() -> Iterator[tuple[str, str]]:
    for code in pages():
        yield code, title(code)


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
    if code is None:
        rows = list(_list())
        emit(
            options.format,
            text="\n".join(f"{c}  {t}" for c, t in rows),
            data=lambda: dict(rows),
            rows=lambda: [("code", "title"), *rows],
        )
        return
    code = code.upper()
    text = page(code)
    emit(
        options.format,
        text=lambda console: _show(console, text),
        data=lambda: {"code": code, "title": title(code), "page": text},
        rows=lambda: [("code", "title"), (code, title(code))],
    )
