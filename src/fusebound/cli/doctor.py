"""`fusebound doctor`: versions, threads, CPU features, what makes timings noisy, whether kernels work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console


@click.command("doctor", short_help="Versions, threads, CPU features, noise.")
@with_options(OUTPUT)
def command(options: Options) -> int:
    """Describe this machine and installation, and compile and check one small kernel.

    Exits with 1 if that kernel does not work.
    """
    from fusebound.measure.environment import describe
    from fusebound.settings import cache_directory

    facts = describe() | {"cache": str(cache_directory(create=False))}
    facts["kernel"] = problem = try_kernel()
    emit(
        options.format,
        text=lambda console: _show(console, facts),
        data=lambda: facts,
        rows=lambda: [("fact", "value"), *lines(facts)],
    )
    return 1 if problem else 0


def try_kernel() -> str:
    """Build and run a small fused kernel; returns what is wrong, or nothing."""
    import torch

    from fusebound.api.functions import plan as make_plan
    from fusebound.api.model import Model
    from fusebound.api.pipeline import build_plan, capture_model

    x = torch.linspace(-3, 3, 1 << 20).reshape(256, 4096)
    captured = capture_model(Model("doctor", lambda x: torch.softmax(x * 2 + 1, -1), (x,)))
    try:
        executable = build_plan(make_plan(captured.graph, expected_calls=10**9), captured)
        found, wanted = executable(x), torch.softmax(x.double() * 2 + 1, -1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not executable.kernels:
        return "the plan has no kernel"
    return "" if torch.allclose(found.double(), wanted, rtol=1e-5, atol=1e-9) else "its numbers are wrong"


def lines(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and text of every fact; nested ones are joined, several notes are several lines."""
    for name, value in facts.items():
        label = name.replace("_", " ")
        match value:
            case _ if name == "kernel":
                yield "test kernel", value or "builds, runs, right numbers"
            case _ if name == "caches":
                yield label, ", ".join(f"{k} {v // 1024} KiB" for k, v in value.items())
            case _ if name == "calibrated":
                yield (
                    label,
                    value or "no; `fusebound hardware calibrate` takes a minute, `run` does a quick one",
                )
            case {}:
                yield label, ", ".join(f"{k} {v}" for k, v in value.items())
            case [*notes] if name == "noise":
                yield from ((label if i == 0 else "", note) for i, note in enumerate(notes or ["none found"]))
            case [*parts]:
                yield label, " ".join(map(str, parts))
            case bool():
                yield label, "yes" if value else "no"
            case float():
                yield label, f"{value:.2f}"
            case _:
                yield label, str(value)


def _show(console: Console, facts: Mapping[str, Any]) -> None:
    from fusebound.report.layout import labelled

    console.print(labelled(lines(facts)))
