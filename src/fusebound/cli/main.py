"""The `fusebound` command: a table of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

import fusebound
from fusebound.cli import diagnostic
from fusebound.errors import FuseboundError, UsageError

COMMANDS: dict[str, str] = {
    "run": "Capture, plan, build, verify and measure MODEL; print the table (the main job).",
    "plan": "Decide the fusion boundaries: traffic and launches before and after.",
    "why": "The four gates for one pair of operators, with numbers and what would flip them.",
    "log": "Every decision in order, filtered by operator, gate or code.",
    "explain": "What a code such as F301 means, with an example.",
    "verify": "Check the fused kernels against a float64 oracle.",
    "bench": "Measure the fused program against eager, and on request Inductor.",
    "sweep": "Time MODEL at growing sizes: from which one does fusing pay?",
    "kernel": "Show generated kernels: tile program, LLVM IR, assembly.",
    "diff": "Compare two saved plans.",
    "textbook": "The textbook's checker and its table, beside the policy `tile`.",
    "hardware": "List, show or calibrate hardware targets.",
    "cache": "List, clear or locate the kernel cache.",
    "doctor": "Versions, threads, CPU features, and what makes timings noisy here.",
}


class Commands(click.Group):
    """A group that knows its commands' names and summaries without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"fusebound.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean `{close[0]}`?" if close else "`fusebound --help` lists the commands"
            raise click.UsageError(f"there is no command `{args[0]}`; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="MODEL is a scenario (`fusebound run --list`), file.py:name, package.module:name, a .pt2 archive, "
    "or a graph, region or plan in JSON. Data goes to stdout, progress to stderr. "
    "Exit codes: 0 fine, 1 a check failed, 2 bad usage or input.",
)
@click.version_option(fusebound.__version__, "-V", "--version", prog_name="fusebound")
def group() -> None:
    """Decide operator-fusion boundaries in the open, and keep the evidence for every decision."""


def invoke(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; prints a diagnostic for whatever goes wrong.

    Where nobody reads stdout or stderr any more, as behind `| head`, it ends quietly, with 0.
    """
    try:
        code = _answered(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        return 0
    return code


def _answered(argv: Sequence[str]) -> int:
    debug = "--debug" in argv
    try:
        # Not `group.main`, which turns a closed pipe into a SystemExit that looks like the user's.
        with group.make_context("fusebound", list(argv)) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        diagnostic.usage(error)
        return 2
    except FuseboundError as error:
        diagnostic.show(error, debug=debug)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        what = error.strerror or str(error)
        diagnostic.show(UsageError(what, where=str(error.filename or "")), debug=debug)
        return 2
    except SystemExit as error:
        diagnostic.show(UsageError(f"the user's code ends the process: {error!r}", code="E104"), debug=debug)
        return 2
    except Exception as error:
        diagnostic.internal(error, debug=debug)
        return 2
    return result if isinstance(result, int) else 0


def _silence() -> None:
    """Send what is left in a stream without a reader nowhere: at exit the interpreter would complain of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main() -> None:
    """Entry point of the console script."""
    sys.exit(invoke(sys.argv[1:]))
