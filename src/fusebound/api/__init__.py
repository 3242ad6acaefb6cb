"""The public functions, re-exported by `fusebound`; torch is imported when one of them is called."""

from fusebound.api.functions import bench, build, can_fuse, capture, load, plan, verify, why
from fusebound.api.transform import compile, register_op

__all__ = ["bench", "build", "can_fuse", "capture", "compile", "load", "plan", "register_op", "verify", "why"]
