"""The CPU that this process runs on, read from the operating system: model, cores, features, caches."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fusebound.errors import UsageError

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. `cores` counts the logical processors that this process may use; cache sizes are bytes
    (L1 data and L2 of one core, L3 of the machine), 0 where the system does not say."""

    model: str
    arch: str
    cores: int
    features: frozenset[str]
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads_per_core: int

    @property
    def fingerprint(self) -> str:
        """Equal for machines whose calibration may be exchanged: model, cores, vector features, caches."""
        vector = sorted(f for f in self.features if f.startswith(("avx", "fma", "f16c", "asimd", "sve")))
        facts = (self.model, self.arch, self.cores, vector, self.l1_bytes, self.l2_bytes, self.l3_bytes)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    @property
    def table(self) -> str:
        """The nearest named target."""
        if self.features >= _AVX512:
            return "cpu-avx512"
        if self.features >= {"avx2", "fma"}:
            return "cpu-avx2"
        if self.arch in ("aarch64", "arm64"):
            return "cpu-neon"
        return "cpu-generic"


@cache
def this_machine() -> Machine:
    """The machine at hand. Never fails: what the system does not tell is empty or 0."""
    info = _cpuinfo(_read(_CPUINFO))
    affinity = getattr(os, "sched_getaffinity", None)
    level = _cache_sizes()
    return Machine(
        model=info.get("model name") or info.get("CPU part") or platform.processor() or platform.machine(),
        arch=platform.machine(),
        cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
        features=frozenset((info.get("flags") or info.get("Features") or "").split()),
        l1_bytes=level.get(1, 0),
        l2_bytes=level.get(2, 0),
        l3_bytes=level.get(3, 0),
        threads_per_core=_span(_read(_CACHES.parent / "topology" / "thread_siblings_list")) or 1,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _cpuinfo(text: str) -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo."""
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cache_sizes() -> dict[int, int]:
    """Bytes by level: data and unified caches of processor 0; L3 times the number of its instances."""
    sizes: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size"))
        level = _read(index / "level")
        if _read(index / "type") == "Instruction" or not size or not level.isdigit():
            continue
        amount = int(size[1]) * _UNITS[size[2]]
        if level == "3":
            shared = _span(_read(index / "shared_cpu_list")) or 1
            amount *= max((os.cpu_count() or 1) // shared, 1)
        sizes[int(level)] = amount
    return sizes


def _span(cpus: str) -> int:
    """How many processors a list such as `0-3,8-11` names."""
    total = 0
    for part in filter(None, cpus.split(",")):
        low, _, high = part.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            return 0
        total += int(high or low) - int(low) + 1
    return total


def require_memory(nbytes: int) -> None:
    """Raise UsageError (E105) for a tensor of more bytes than this machine has: Linux would promise them, and end the
    process that writes them."""
    try:
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return
    if nbytes > present:
        what = f"an input of {nbytes / 1e9:,.1f} GB does not fit into this machine's {present / 1e9:,.1f} GB"
        raise UsageError(what, code="E105")
