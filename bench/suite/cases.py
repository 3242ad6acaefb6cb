"""All cases by name."""

from __future__ import annotations

from bench.suite import axes, images, losses, norms, pointwise, steps
from bench.suite.case import Case

CASES: dict[str, Case] = {
    case.name: case for module in (norms, pointwise, losses, steps, images, axes) for case in module.CASES
}
