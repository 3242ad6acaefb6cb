"""A failing case as a script that needs torch and fusebound alone (and the user's code where that makes operators)."""

from __future__ import annotations

import base64
from typing import Any

import torch

from fusebound.plan.plan import Plan
from fusebound.verify.bisect import Culprit

LITERAL = 512
"""Elements up to which a tensor is written out as numbers."""

_TEMPLATE = '''\
"""Found by `fusebound verify --bisect`: {place}.

{why}

Prints what was found; ends with 1 while the fault is there, with 0 once it is gone.
"""

import base64
import math
import operator
import sys

import torch

{loading}{bound}from fusebound.capture.torch import capture
{imports}from fusebound.verify.check import verify

inf, nan = math.inf, math.nan
{registered}

{function}

def inputs():
    return (
{inputs}
    )


def main():
    captured = capture(f, inputs())
    compiled = {compiled}
    found = verify(compiled, captured, inputs(), numerics={numerics!r}, tau={tau!r}, sets=("given",))
    print("eager:   ", f(*inputs()))
    print("compiled:", compiled(*inputs()))
    print(found.summary())
    return 0 if found.ok else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
'''
_COMPILED = {
    "fusebound": "build(one_kernel(captured.graph, numerics={numerics!r}), captured)",
    "plan": "build(plan(captured.graph, target=get({target!r}), policy={policy!r}, numerics={numerics!r},"
    " expected_calls={calls}), captured)",
    "inductor": "torch.compile(f, dynamic=False)",
}
_IMPORTS = {
    "fusebound": "from fusebound.engine.build import build\nfrom fusebound.plan.trial import one_kernel\n",
    "plan": "from fusebound.engine.build import build\nfrom fusebound.plan.greedy import plan\n"
    "from fusebound.target import get\n",
    "inductor": "",
}
_BOUND = "from fusebound.analysis.tau import Tau\n"
_LOADING = "from fusebound.api.python_model import load\n"
_LOAD = "\n# It registers the operators of {names}.\nload({place!r})\n"


def script(culprit: Culprit, plan: Plan | None, numerics: str, place: str = "") -> str:
    """The script for a culprit with a source; `plan` is the plan that fails, None where Inductor compiled.

    `place` is the file or module of the user's program ("" for none); the script loads it where the culprit has
    operators that are not torch's own, since that registers them.
    """
    source = culprit.source
    assert source is not None
    loads = bool(place and source.libraries)
    failures = culprit.found.failures
    why = f"{failures[0].verdict}: {failures[0].detail}" if failures else "; ".join(culprit.found.faults)
    how = "inductor" if plan is None else "plan" if culprit.whole else "fusebound"
    options = (
        {} if plan is None else {"target": plan.target, "policy": plan.policy, "calls": plan.expected_calls}
    )
    return _TEMPLATE.format(
        place=culprit.place,
        why=why,
        loading=_LOADING if loads else "",
        imports=_IMPORTS[how],
        registered=_LOAD.format(names=", ".join(source.libraries), place=place) if loads else "",
        function=source.text,
        inputs="\n".join(f"        {_literal(a)}," for a in culprit.args),
        compiled=_COMPILED[how].format(numerics=numerics, **options),
        numerics=numerics,
        tau=culprit.tau,
        bound=_BOUND if culprit.tau else "",
    )


def _literal(a: Any) -> str:
    """An argument as an expression that makes it again: type, shape, strides and every bit."""
    if not isinstance(a, torch.Tensor):
        return repr(a)
    if not a.numel():
        return f"torch.empty({list(a.shape)}, dtype={a.dtype})"
    dense = a.contiguous()
    if a.numel() <= LITERAL and a.dtype.itemsize > 1 and not a.is_complex():
        made = f"torch.tensor({dense.tolist()}, dtype={a.dtype})"
    else:
        data = base64.b64encode(dense.view(-1).view(torch.uint8).numpy().tobytes()).decode()
        flat = f'torch.frombuffer(bytearray(base64.b64decode("{data}")), dtype={a.dtype})'
        made = f"{flat}.reshape({list(a.shape)})"
    if a.is_contiguous():
        return made
    return f"torch.empty_strided({list(a.shape)}, {a.stride()}, dtype={a.dtype}).copy_({made})"
