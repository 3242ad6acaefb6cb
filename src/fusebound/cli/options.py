"""The options that commands share, parsed into one frozen record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusebound.settings import NUMERICS, POLICIES

if TYPE_CHECKING:
    from fusebound.analysis.tau import Tau


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. Fields that a command does not offer keep their defaults.

    `plan_file` is a saved plan to use; `tau` bounds |fused - eager|; `rules` is a TOML file; `shape` and `dtype`
    describe example inputs in order.
    """

    format: str = "text"
    threads: int | None = None
    debug: bool = False
    policy: str = "tile"
    numerics: str = "accurate"
    hardware: str = "host"
    plan_file: Path | None = None
    tau: Tau | None = None
    expected_calls: int = 1000
    rules: Path | None = None
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


def _tau(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Tau | None:
    """A bound as a usage error of its option."""
    if text is None:
        return None
    from fusebound.analysis.tau import Tau
    from fusebound.errors import UsageError

    try:
        return Tau.parse(text)
    except UsageError as e:
        raise click.BadParameter(f"{e.what}: {e.hint}") from e


def _hardware(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """The name of a target; raises UsageError (E101) before anything is loaded."""
    from fusebound.errors import unknown
    from fusebound.target import names

    if name not in names():
        raise unknown("hardware", name, names())
    return name


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
        type=click.Choice(NUMERICS),
        default="accurate",
        help="What must not change.",
    ),
    click.option(
        "--hardware",
        default="host",
        metavar="NAME",
        callback=_hardware,
        help="`host` or a table: `fusebound hardware list`.",
    ),
    click.option(
        "--tau", callback=_tau, metavar="T", help="Bound on |fused - eager|: 1e-6, or relative=1e-5,ulp=4."
    ),
    click.option(
        "--expected-calls",
        type=click.IntRange(1),
        default=1000,
        metavar="N",
        envvar="FB_EXPECTED_CALLS",
        help="Calls over which the compile time must pay.",
    ),
    click.option(
        "--rules",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="TOML file of forbid, require and tau rules.",
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
