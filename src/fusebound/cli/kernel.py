"""`fusebound kernel MODEL`: generated kernels as tile program, LLVM IR or assembly."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session
from fusebound.errors import UsageError

if TYPE_CHECKING:
    from fusebound.codegen.build import Kernel

STAGES = {"tile": "source", "llvm": "llvm", "asm": "asm"}


@click.command("kernel", short_help="Show generated kernels.")
@click.argument("model")
@click.option("--group", metavar="ID", help="Only the kernel of this group of the plan.")
@click.option("--what", type=click.Choice(tuple(STAGES)), default="tile", help="Which stage to show.")
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, group: str | None, what: str) -> None:
    """Show the kernels that fusebound generates for MODEL: your operators as comments, and the order of each sum."""
    session = Session(model, options)
    ids = [g.id for g in session.plan.kernels]
    if group is not None and group not in ids:
        hint = f"kernels: {', '.join(ids)}" if ids else "this plan has no kernel"
        raise UsageError(f"there is no kernel `{group}`", where="--group", hint=hint, code="E101")
    pairs = zip(ids, session.executable.kernels, strict=True)
    chosen = {id: kernel for id, kernel in pairs if group in (None, id)}
    emit(
        options.format,
        text="\n".join(text(id, k, what) for id, k in chosen.items()),
        data=lambda: [_record(id, k, what) for id, k in chosen.items()],
        rows=lambda: [("group", "name", what), *((id, k.name, _stage(k, what)) for id, k in chosen.items())],
    )


def text(id: str, kernel: Kernel, what: str) -> str:
    """A kernel's listing with a line of facts above it, and one for the order of each sum."""
    sign = {"tile": "#", "llvm": ";", "asm": "#"}[what]
    source = "from the cache" if kernel.cached else f"compiled in {1e3 * kernel.compile_s:.0f} ms"
    orders = "".join(f"{sign} order of {o}\n" for o in kernel.orders)
    return f"{sign} group {id}: {kernel.name}, {source}\n{orders}{_stage(kernel, what)}"


def _stage(kernel: Kernel, what: str) -> str:
    return getattr(kernel, STAGES[what])


def _record(id: str, kernel: Kernel, what: str) -> dict[str, object]:
    return {
        "group": id,
        "name": kernel.name,
        "inputs": list(kernel.inputs),
        "outputs": list(kernel.outputs),
        "cached": kernel.cached,
        "resources": asdict(kernel.resources),
        "orders": [str(o) for o in kernel.orders],
        what: _stage(kernel, what),
    }
