"""`fusebound cache list|clear|path`: generated kernels and calibration records on disk."""

from __future__ import annotations

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit
from fusebound.files import TEMPORARY
from fusebound.settings import cache_directory
from fusebound.words import count

RECORD = "calibration-"
OURS = (f"{RECORD}*.json", f".*{TEMPORARY}", "kernels/*.o", "kernels/MANIFEST", f"kernels/.*{TEMPORARY}")
"""What lies in the directory; whatever else somebody keeps there is left alone."""


@click.group("cache", short_help="List, clear or locate the kernel cache.")
def command() -> None:
    """The directory where kernels and calibration records are kept (FB_CACHE_DIR)."""


@command.command("path")
def path() -> None:
    """Print the directory."""
    click.echo(cache_directory(create=False))


def _entries() -> list[tuple[str, int]]:
    """(path relative to the cache, bytes) of every file that fusebound keeps there."""
    root = cache_directory(create=False)
    files = sorted(p for pattern in OURS for p in root.glob(pattern) if p.is_file() or p.is_symlink())
    return [(str(p.relative_to(root)), p.lstat().st_size) for p in files]


@command.command("list")
@with_options(OUTPUT)
def list_(options: Options) -> None:
    """List what is in it, with sizes in bytes."""
    entries = _entries()
    lines = [f"{size:>10}  {name}" for name, size in entries]
    total = f"{sum(size for _, size in entries):>10}  bytes in {count(len(entries), 'file')}"
    emit(
        options.format,
        text="\n".join([*lines, total]),
        data=lambda: [{"file": name, "bytes": size} for name, size in entries],
        rows=lambda: [("file", "bytes"), *entries],
    )


@command.command("clear")
@click.option("--records", is_flag=True, help="Remove calibration records too.")
def clear(records: bool) -> None:
    """Remove the kernels; calibration records stay unless --records."""
    root = cache_directory(create=False)
    chosen = [name for name, _ in _entries() if records or not name.startswith(RECORD)]
    for name in chosen:
        (root / name).unlink(missing_ok=True)
    click.echo(f"removed {count(len(chosen), 'file')} from {root}", err=True)
