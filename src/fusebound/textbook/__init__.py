"""The textbook's fusion rules, exactly as taught (docs/textbook.md tells where they err).

from fusebound.textbook import FusionBoundaryChecker, Operator

checker = FusionBoundaryChecker()
relu = checker.add_op(Operator("Relu", "elementwise", ["x"], ["t1"]))
add = checker.add_op(Operator("Add", "elementwise", ["t1", "b"], ["t2"]))
ok, checks = checker.fuse(relu, add)
"""

from fusebound.textbook.checker import REGISTER_LIMIT, FusionBoundaryChecker, Gain, NoFuse
from fusebound.textbook.operator import Operator

__all__ = ["REGISTER_LIMIT", "FusionBoundaryChecker", "Gain", "NoFuse", "Operator"]
