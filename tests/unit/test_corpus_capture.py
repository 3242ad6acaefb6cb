"""Every sixth region of the corpus: captured, verified, and its primitives compute what eager computes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import torch
from tests.unit.capture.interp import interpret
from torch.utils._pytree import tree_leaves

from fusebound.api.region import from_region
from fusebound.capture.torch import capture
from fusebound.ir.spec import verify

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12}


def test_corpus(shared: Path) -> None:
    opaque: Counter[str] = Counter()
    paths = sorted((shared / "corpus" / "regions").glob("*.json"))
    assert len(paths) == 240
    for path in paths[::6]:
        model = from_region(json.loads(path.read_text("utf-8")), path.stem)
        captured = capture(model.fn, model.args)
        verify(captured.graph)
        opaque.update(u.target for u in captured.graph.user_ops if u.why)
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in model.args]
        with torch.no_grad():
            want = tree_leaves(model.fn(*copies))
            got = interpret(captured, model.args)[: len(captured.graph.outputs)]
        for g, w in zip(got, want, strict=True):
            compare(g, w, path.stem)
    # Everything but running sums has primitives.
    assert set(opaque) <= {"aten.cumsum.default"}


def compare(got: torch.Tensor, want: torch.Tensor, name: str) -> None:
    if not want.dtype.is_floating_point:
        assert torch.equal(got, want), name
        return
    tol = TOLERANCE[want.dtype]
    finite = want[torch.isfinite(want)].double()
    size = float(finite.abs().mean()) if finite.numel() else 0.0
    torch.testing.assert_close(
        got, want, rtol=tol, atol=tol * size, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )
