"""fusebound decides operator-fusion boundaries in the open; public names are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    pass

_HOME: dict[str, str] = {
    "bench": "fusebound.api",
    "build": "fusebound.api",
    "can_fuse": "fusebound.api",
    "capture": "fusebound.api",
    "compile": "fusebound.api",
    "load": "fusebound.api",
    "plan": "fusebound.api",
    "register_op": "fusebound.api",
    "verify": "fusebound.api",
    "Graph": "fusebound.ir.graph",
    "Plan": "fusebound.plan.plan",
    "Report": "fusebound.report.schema",
}
