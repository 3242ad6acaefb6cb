"""What the text faces share: tables without rules, labelled lines, arrows from before to after."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

LEVEL_NAMES = {"register": "on chip", "l2": "L2", "l3": "L3", "dram": "memory"}
"""Memory levels of the analysis as people call them."""


def plain_table(*columns: tuple[str, str]) -> Table:
    """A table without rules; a column is (title, "left" | "right" | "whole"). Only "left" ones fold."""
    table = Table(box=None, pad_edge=True, padding=(0, 1), header_style="bold")
    for title, side in columns:
        if side == "left":
            table.add_column(title, overflow="fold")
        else:
            table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    return table


def labelled(lines: Iterable[tuple[str, str]]) -> Table:
    """Lines of text behind labels; a long one continues under its own beginning."""
    table = Table.grid(padding=(0, 1), pad_edge=True)
    table.add_column(style="bold", no_wrap=True, min_width=11)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(label, Text(text, style="bold" if label == "speed-up" else ""))
    return table


def plain(draw: Callable[[Console], None], width: int) -> str:
    """What `draw` prints, as plain lines of at most `width` characters without padding."""
    stream = io.StringIO()
    draw(Console(file=stream, width=width, highlight=False, no_color=True, force_terminal=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def arrow(before: str, after: str) -> str:
    """`before → after`, or one of them where nothing changed."""
    return after if before == after else f"{before} → {after}"
