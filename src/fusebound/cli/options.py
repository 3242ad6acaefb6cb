"""The options that commands share, parsed into one frozen record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

POLICIES = ("none", "textbook-strict", "textbook", "elementwise", "loop", "tile", "library")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. Fields that a command does not offer keep their defaults.

    `plan_file` is a saved plan to use; `tau` bounds |fused - eager| in the outputs' unit; `shape` and `dtype`
    describe example inputs in order.
    """

    format: str = "text"
    threads: int | None = None
    debug: bool = False
    policy: str = "tile"
    numerics: str = "accurate"
    hardware: str = "host"
    plan_file: Path | None = None
    tau: float | None = None
    expected_calls: int = 1000
    shape: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    trust: bool = False
    rounds: int | None = None
    against: tuple[str, ...] = ("eager",)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

OUTPUT: tuple[Decorator, ...] = (
    click.option(
        "--format",
        type=click.Choice(("text", "json", "csv")),
        default="text",
        help="How to print the result.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(0),
        metavar="N",
        envvar="FB_THREADS",
        help="Threads for kernels and torch; 0 leaves them to torch.",
    ),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)


def _number(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """A range lets NaN pass: no comparison with it is true."""
    if value is not None and value != value:
        raise click.BadParameter("nan is not a bound")
    return value


MODEL: tuple[Decorator, ...] = (
    click.option(
        "--shape",
        multiple=True,
        metavar="N,N,…",
        help="Shape of one example input; repeat it for each, in order. `scalar` gives a 0-d tensor.",
    ),
    click.option(
        "--dtype",
        multiple=True,
        metavar="TYPE",
        help="Type of the inputs of --shape: one for all, or one each.",
    ),
    click.option("--trust", is_flag=True, help="Load .pt2 archives that hold pickled data."),
)
PLAN: tuple[Decorator, ...] = (
    click.option(
        "--plan",
        "plan_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Use this saved plan of MODEL instead of making one.",
    ),
    click.option("--policy", type=click.Choice(POLICIES), default="tile", help="What may be fused."),
    click.option(
        "--numerics",
        type=click.Choice(("accurate", "eager")),
        default="accurate",
        help="What must not change.",
    ),
    click.option(
        "--hardware", default="host", metavar="NAME", help="`host` or a table: `fusebound hardware list`."
    ),
    click.option(
        "--tau", type=click.FloatRange(0), callback=_number, metavar="T", help="Bound on |fused - eager|."
    ),
    click.option(
        "--expected-calls",
        type=click.IntRange(1),
        default=1000,
        metavar="N",
        envvar="FB_EXPECTED_CALLS",
        help="Calls over which the compile time must pay.",
    ),
)
ROUNDS: tuple[Decorator, ...] = (
    click.option(
        "--rounds", type=click.IntRange(3), metavar="N", help="Interleaved rounds of the measurement."
    ),
)
MEASURE: tuple[Decorator, ...] = (
    *ROUNDS,
    click.option(
        "--against",
        type=click.Choice(("eager", "inductor")),
        multiple=True,
        default=("eager",),
        help="What to measure beside the fused program; repeat it for both.",
    ),
)

_FIELDS = tuple(f.name for f in fields(Options))


def with_options(*groups: tuple[Decorator, ...]) -> Decorator:
    """Add the options of `groups`, and hand the command one `Options` as its first argument."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def packed(**given: Any) -> Any:
            chosen = {name: given.pop(name) for name in _FIELDS if name in given}
            return function(Options(**chosen), **given)

        command: Callable[..., Any] = packed
        for group in reversed(groups):
            for option in reversed(group):
                command = option(command)
        return command

    return decorate
