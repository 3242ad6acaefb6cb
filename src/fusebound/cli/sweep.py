"""`fusebound sweep MODEL`: one model at growing sizes, and the size from which fusing pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, ROUNDS, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session
from fusebound.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.api.model import Model
    from fusebound.measure.sweep import Built, Point, Shape, Sweep

STEPS, STEP = 5, 4
SIZE = "N"


@click.command("sweep", short_help="The size from which fusing pays.")
@click.argument("model")
@click.option(
    "--sizes",
    metavar="N,N,…",
    help="Sizes, from small to large; by default the model's own and four smaller ones, each a quarter.",
)
@with_options(MODEL, PLAN, ROUNDS, OUTPUT)
def command(options: Options, model: str, sizes: str | None) -> None:
    """Build and time MODEL at several sizes, fused and eagerly.

    Inputs whose first axis is as long as that of the first input are cut or repeated to each size.
    With --shape, an `N` stands for the size: `--shape N,2048 --shape 2048 --sizes 16,256,4096`.
    """
    at, own = _family(model, options)
    chosen = _parse(sizes) if sizes else tuple(sorted({max(own // STEP**k, 1) for k in range(STEPS)}))
    session = Session(model, options)
    if len(chosen) < STEPS and not sizes:
        listed = ", ".join(map(str, chosen))
        session.phases.say(f"  the first axis is only {own} long: sizes {listed}; --sizes takes others")
    found = _swept(session, at, chosen)
    emit(
        options.format,
        text=lambda console: _show(console, found),
        data=lambda: {"points": list(map(_record, found.points)), "pays_from": _first(found)},
        rows=lambda: _rows(found),
    )


def _family(spec: str, options: Options) -> tuple[Callable[[int], Model], int]:
    """The model at any size, and its own size (4096 where shapes are templates)."""
    if any(SIZE in shape for shape in options.shape):

        def from_template(n: int) -> Model:
            shapes = tuple(shape.replace(SIZE, str(n)) for shape in options.shape)
            return Session(spec, replace(options, shape=shapes)).model

        return from_template, 4096
    from fusebound.api.resize import leading, resized

    given = Session(spec, options).model
    return lambda n: resized(given, n), leading(given)


def _parse(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
        if min(sizes) < 0:
            raise ValueError(text)
        return sizes
    except ValueError:
        raise click.BadParameter(
            f"sizes are numbers separated by commas, not `{text}`", param_hint="--sizes"
        ) from None


def _swept(session: Session, at: Callable[[int], Model], sizes: tuple[int, ...]) -> Sweep:
    from fusebound.measure.sweep import sweep

    shapes = [(n,) for n in sizes]
    return sweep(lambda shape: _built(session, at(shape[0])), shapes, rounds=session.options.rounds or 15)


def _built(session: Session, model: Model) -> Built:
    exe, _ = session.build(model)
    kernels = count(len(exe.kernels), "kernel")
    session.phases.say(f"  {model.name}: {kernels} of {count(len(exe.plan.groups), 'step')}")
    return exe, model.fn, model.args, model.kwargs


def _first(found: Sweep) -> int | None:
    return found.pays_from[0] if found.pays_from else None


def _show(console: Console, found: Sweep) -> None:
    from fusebound.report import units
    from fusebound.report.layout import plain_table

    table = plain_table(
        ("size", "right"), ("eager", "right"), ("fused", "right"), ("speed-up", "right"), ("95 %", "right")
    )
    for p in found.points:
        speedup = (units.times(p.speedup.value), f"{p.speedup.low:.2f} to {p.speedup.high:.2f}")
        table.add_row(_size(p.shape), units.micros(p.eager.median), units.micros(p.fused.median), *speedup)
    console.print(table)
    first = _first(found)
    console.print(
        f"\n fusing pays from size {first} on" if first else "\n fusing does not pay at the largest size"
    )


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _record(p: Point) -> dict[str, object]:
    return {
        "size": p.shape[0],
        "eager_us": p.eager.median,
        "fused_us": p.fused.median,
        "speedup": p.speedup.value,
        "low": p.speedup.low,
        "high": p.speedup.high,
        "rounds": p.speedup.rounds,
    }


def _rows(found: Sweep) -> Iterator[tuple[object, ...]]:
    records = [_record(p) for p in found.points]
    yield tuple(records[0])
    yield from (tuple(r.values()) for r in records)
