"""Which of the framework's operators a saved graph may run: those that only compute."""

from __future__ import annotations

import pytest

from fusebound.capture.replay import resolve
from fusebound.errors import FormatError

REFUSED = (
    "aten.save.default aten.from_file.default aten.manual_seed.default aten._print.default aten.set_.source_Storage "
    "aten.resize_.default aten.nope.default aten.add aten.__class__.default aten.add.__call__ os.system.x "
    "builtins.eval.x torch.load torch.ops.load_library operator.attrgetter operator.methodcaller math.__loader__ "
    "higher_order.__class__ higher_order.nope profiler._record_function_enter.default c10d.barrier.default"
)


@pytest.mark.parametrize("name", REFUSED.split())
def test_what_does_more_than_compute_is_refused(name: str) -> None:
    with pytest.raises(FormatError) as e:
        resolve(name)
    assert e.value.code == "E113"


@pytest.mark.parametrize(
    "name", ["aten.add.Tensor", "prims.sum.default", "operator.getitem", "torch.sym_max"]
)
def test_what_computes_is_found(name: str) -> None:
    assert callable(resolve(name))
