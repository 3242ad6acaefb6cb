"""Targets by name: tables of public figures, and `host`, the machine at hand."""

from __future__ import annotations

from fusebound.errors import unknown
from fusebound.target.host import host
from fusebound.target.load import load_table, table_names
from fusebound.target.target import Target

__all__ = ["Target", "get", "names"]


def names() -> tuple[str, ...]:
    """All target names, `host` first."""
    return ("host", *table_names())


def get(name: str) -> Target:
    """The target called `name`; raises UsageError (E101), with the nearest name, for an unknown one."""
    if name == "host":
        return host()
    if name in table_names():
        return load_table(name)
    raise unknown("hardware", name, names())
