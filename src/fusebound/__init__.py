"""fusebound decides operator-fusion boundaries in the open.

Public names are loaded when they are first used, so that `import fusebound` loads neither torch nor numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusebound.api import (
        bench,
        build,
        can_fuse,
        capture,
        compile,
        load,
        plan,
        register_op,
        verify,
        why,
    )
    from fusebound.ir.graph import Graph
    from fusebound.plan.plan import Plan
    from fusebound.report.schema import Report

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "Plan",
    "Report",
    "bench",
    "build",
    "can_fuse",
    "capture",
    "compile",
    "load",
    "plan",
    "register_op",
    "verify",
    "why",
]

_HOME: dict[str, str] = {
    "Graph": "fusebound.ir.graph",
    "Plan": "fusebound.plan.plan",
    "Report": "fusebound.report.schema",
}


class _Namespace(ModuleType):
    """`capture`, `plan` and `verify` are packages too; importing one must not hide the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Namespace


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOME.get(name, "fusebound.api")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
