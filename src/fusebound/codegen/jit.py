"""From LLVM IR text to machine code in this process: a light pass pipeline, one linker."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import llvmlite.binding as llvm

from fusebound.errors import BuildError

_lock = threading.RLock()
_serial = itertools.count()


def _unlock_in_child() -> None:
    """A fork may happen while another thread compiles: the child gets a lock that nobody holds."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_in_child)


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for: an LLVM CPU name and its features in LLVM's notation (`+avx2,-sse4a`)."""

    cpu: str
    features: str

    @property
    def isa(self) -> frozenset[str]:
        """The names of the features that are present."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))


@cache
def host() -> Machine:
    """This machine, with vectors as wide as it has."""
    with _lock:
        _initialize()
        features = llvm.get_host_cpu_features().flatten()
        return Machine(llvm.get_host_cpu_name(), f"{features},-prefer-256-bit")


def vector_bits(machine: Machine | None = None) -> int:
    """The width of the widest vectors that the code generator uses."""
    isa = (machine or host()).isa
    return 512 if "avx512f" in isa else 256 if "avx2" in isa and "fma" in isa else 128


def has_streaming_stores(machine: Machine | None = None) -> bool:
    """Whether non-temporal vector stores, and the fence that they need, exist."""
    return "sse2" in (machine or host()).isa


class Compiled:
    """Machine code of one module. It lives as long as the object; `object` is what a disk cache keeps."""

    def __init__(self, text: str, machine: Machine, opt: int, image: bytes) -> None:
        self.text = text
        self.machine = machine
        self.object = image
        self._opt = opt
        self._names = frozenset(re.findall(r"^define [^@]*@([\w.$]+)\(", text, re.MULTILINE))
        self._code = _link(image, machine, self._names)

    def address(self, name: str) -> int:
        """The entry point of function `name`; raises BuildError for a name the module lacks."""
        if name not in self._names:
            raise BuildError(f"the compiled module has no function {name}")
        return self._code[name]

    @cached_property
    def asm(self) -> str:
        """The assembly, generated again on demand."""
        return assembly(self.text, self.machine, self._opt)


def assembly(text: str, machine: Machine | None = None, opt: int = 3) -> str:
    """The assembly that `compile_module` would make of an LLVM module."""
    with _lock:
        target = _target_machine(machine or host(), opt)
        return target.emit_assembly(_optimized(text, target))


def compile_module(text: str, *, machine: Machine | None = None, opt: int = 3) -> Compiled:
    """Compile LLVM assembly and load it. Raises BuildError where LLVM rejects the text.

    `machine` is the host by default; code for another one can be inspected, and run only if the host can.
    """
    machine = machine or host()
    with _lock:
        target = _target_machine(machine, opt)
        image = target.emit_object(_optimized(text, target))
        return Compiled(text, machine, opt, image)


def load_object(image: bytes, text: str, *, machine: Machine | None = None, opt: int = 3) -> Compiled:
    """Load what `compile_module(text, ...).object` returned in an earlier process, without compiling."""
    with _lock:
        _initialize()
        return Compiled(text, machine or host(), opt, image)


def _optimized(text: str, target: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM rejects the generated code: {error}") from error
    module.triple = target.triple
    module.data_layout = str(target.target_data)
    # The emitter's code is explicit vectors in rotated loops: folding and clean-up are all that it needs.
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    with llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=1)) as builder:
        passes.run(module, builder)
    return module


def _link(image: bytes, machine: Machine, names: frozenset[str]) -> llvm.ResourceTracker:
    """Bring object code into memory; it stays while the result, the names' addresses, is referenced."""
    _load_symbols(image)
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for name in names:
        builder.export_symbol(name)
    try:
        return builder.link(_linker(machine), f"kernel{next(_serial)}")
    except RuntimeError as error:
        raise BuildError(f"the object code cannot be loaded: {error}") from error


@cache
def _linker(machine: Machine) -> llvm.LLJIT:
    """One for the process. JITLink places code and constants together, as the small code model needs."""
    return llvm.create_lljit_compiler(_target_machine(machine, 1), use_jit_link=True, suppress_errors=True)


def _target_machine(machine: Machine, opt: int) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=opt, reloc="pic", codemodel="small"
    )


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _load_symbols(image: bytes) -> None:
    """Make the libraries that the object names visible to the linker; torch itself is not imported."""
    if b"GOMP_" in image or b"omp_get_" in image:
        _load_library("libgomp*")
    if b"Sleef_" in image:
        _load_library("libtorch_cpu*")


@cache
def _load_library(pattern: str) -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("torch is not installed", hint="generated kernels use torch's own libraries")
    package = Path(spec.origin).parent
    found = [*sorted((package / "lib").glob(pattern)), *sorted((package.parent / "torch.libs").glob(pattern))]
    if not found:
        raise BuildError(f"torch has no library {pattern}", where=str(package / "lib"))
    llvm.load_library_permanently(str(found[0]))
