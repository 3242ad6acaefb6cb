"""`fusebound hardware list|show|calibrate`: what the gates and the cost model know of machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import HOST

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.target.record import Record
    from fusebound.target.target import Target


@click.group("hardware", short_help="List, show or calibrate hardware targets.")
def command() -> None:
    """Hardware targets: tables of public figures, and `host`, this machine."""


@command.command("list")
@with_options(OUTPUT)
def list_(options: Options) -> None:
    """List the targets."""
    from fusebound.target import get, names

    targets = [(name, get(name)) for name in names()]
    header = ("name", "kind", "memory GB/s", "calibrated", "source")
    rows = [(name, t.kind, round(t.dram_bandwidth / 1e3, 1), t.calibrated, t.source) for name, t in targets]
    emit(
        options.format,
        text=lambda console: _list(console, header, rows),
        data=lambda: [dict(zip(header, row, strict=True)) for row in rows],
        rows=lambda: [header, *rows],
    )


def _list(console: Console, header: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    from fusebound.report.layout import plain_table

    sides = ("left", "left", "right", "left", "left")
    table = plain_table(*zip(header, sides, strict=True))
    for row in rows:
        table.add_row(*(("yes" if c else "no") if isinstance(c, bool) else str(c) for c in row))
    console.print(table)


@command.command("show")
@click.argument("name", default=HOST)
@with_options(OUTPUT)
def show(options: Options, name: str) -> None:
    """Show every figure of a target (`host` by default), with its unit."""
    from fusebound.target import get
    from fusebound.target.record import read_record

    _emit(options, get(name))
    if name == HOST:
        _warn(read_record())


@command.command("calibrate")
@click.option("--quick", is_flag=True, help="A few seconds instead of the full measurement.")
@with_options(OUTPUT)
def calibrate_(options: Options, quick: bool) -> None:
    """Measure this machine: bandwidths, launch, dispatch and compile costs; the record goes to the cache."""
    from fusebound.cli.progress import Phases
    from fusebound.cli.session import set_threads
    from fusebound.measure.calibrate import calibrate

    if options.threads:
        set_threads(options.threads)
    with Phases()("calibrate"):
        record = calibrate(quick=quick)
    _emit(options, record.target)
    _warn(record)


def _warn(record: Record | None) -> None:
    """Say, as talk, why the figures may not be this machine's."""
    doubts = record.doubts if record else ()
    for doubt in doubts:
        click.echo(f"warning: {doubt}", err=True)
    if doubts:
        click.echo(
            "`fusebound hardware calibrate` measures anew; leave the machine alone meanwhile", err=True
        )


def _emit(options: Options, target: Target) -> None:
    figures = [(k, v, unit(k)) for k, v in asdict(target).items() if v != 0 or k.endswith("calibrated")]
    emit(
        options.format,
        text="\n".join(_line(*f) for f in figures),
        data=lambda: asdict(target),
        rows=lambda: [("figure", "value", "unit"), *figures],
    )


def _line(figure: str, value: object, unit: str) -> str:
    if unit == "bytes/µs" and isinstance(value, float):
        value, unit = value / 1e3, "GB/s"
    if not unit:
        return f"{figure:<24} {_text(value)}"
    return f"{figure:<24} {_text(value):>12} {unit}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:,.4g}"
    return str(value)


def unit(figure: str) -> str:
    """The unit of a figure of a target, from its name."""
    if figure.endswith("_bandwidth"):
        return "bytes/µs"
    if figure == "page_fault_us":
        return "µs/MB"
    if figure == "compile_us":
        return "µs per kernel"
    if figure == "compile_primitive_us":
        return "µs per primitive"
    if figure == "flops":
        return "vector instructions/µs"
    return {"us": "µs", "bytes": "bytes", "bits": "bits"}.get(figure.rpartition("_")[2], "")
