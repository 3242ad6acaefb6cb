"""The machine and software that timings are taken on, and what makes them noisy here."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from fusebound.settings import current, knobs
from fusebound.target.machine import this_machine
from fusebound.target.record import read_record
from fusebound.words import count

PACKAGES = ("fusebound", "torch", "llvmlite", "numpy", "transformers", "jax")
_VECTOR_FEATURES = (
    "sse2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16",
    "avx512_fp16", "amx_tile", "asimd", "sve",
)  # fmt: skip
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_BOOST = Path("/sys/devices/system/cpu/cpufreq/boost")
_NO_TURBO = Path("/sys/devices/system/cpu/intel_pstate/no_turbo")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that matter; nothing is imported."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, Any]:
    """Plain data for `doctor`, reports and records: versions, CPU, threads, calibration, noise."""
    import torch

    machine = this_machine()
    record = read_record()
    return {
        "versions": versions(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": machine.model,
        "cores": machine.cores,
        "threads_per_core": machine.threads_per_core,
        "threads": torch.get_num_threads(),
        "features": [f for f in _VECTOR_FEATURES if f in machine.features],
        "caches": {"L1": machine.l1_bytes, "L2": machine.l2_bytes, "L3": machine.l3_bytes},
        "governor": _read(_GOVERNOR) or "unknown",
        "boost": _boost(),
        "huge_pages": _chosen(_read(_HUGE_PAGES)),
        "load": _load(),
        "virtual_machine": "hypervisor" in machine.features,
        "container": in_container(),
        "calibrated": f"{record.mode}, {record.date}{', doubtful' * bool(record.doubts)}" if record else "",
        "settings": {env: _setting(name) for name, env, _, _ in knobs()},
        "noise": list(noise()),
    }


def noise() -> tuple[str, ...]:
    """What makes timings noisy on this machine at this moment, one sentence each."""
    machine = this_machine()
    found: list[str] = []
    if (load := busy()) is not None:
        found.append(f"load average {load:.1f} on {count(machine.cores, 'core')}: other work runs beside")
    governor = _read(_GOVERNOR)
    if governor and governor != "performance":
        found.append(f"frequency governor {governor!r}: the clock follows the load")
    if not governor:
        found.append("no control over the clock frequency: it may change between rounds")
    elif _boost() == "on":
        found.append("boost is on: the clock depends on temperature and on other cores")
    if "hypervisor" in machine.features:
        found.append("virtual machine: neighbours share its caches and memory bandwidth")
    if machine.threads_per_core > 1:
        found.append("simultaneous multithreading is on: two threads share a core")
    quota = cpu_quota()
    if quota is not None and quota < machine.cores:
        found.append(f"CPU quota of {quota:.1f} cores: longer runs are throttled")
    if machine.cores < 3:
        found.append(f"{count(machine.cores, 'core')}: the system's own work competes with the threads")
    if "always" not in _chosen(_read(_HUGE_PAGES)):
        found.append("no transparent huge pages by default: fresh memory costs a fault every 4 KiB")
    return tuple(found)


def busy() -> float | None:
    """The load average where more runs than this process, which counts as one, and a tenth of the cores; else None."""
    load = _load()
    return load if load is not None and load > 1 + this_machine().cores / 10 else None


def crowded() -> tuple[str, ...]:
    """A sentence where more threads want to run than this program's own and one more, else nothing."""
    load, cores = _load(), this_machine().cores
    if load is None or load <= cores + 1:
        return ()
    return (f"load average {load:.1f} on {count(cores, 'core')}: other work took time from the threads",)


def cpu_quota() -> float | None:
    """Cores that the control group may use, or None without a limit."""
    limit, _, period = _read(_QUOTA).partition(" ")
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() else None


def in_container() -> bool:
    """Whether this seems to be a container."""
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(m.exists() for m in marks) or "container" in os.environ


def _setting(name: str) -> Any:
    return getattr(current(), name)


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _boost() -> str:
    if _read(_BOOST) in ("0", "1"):
        return "on" if _read(_BOOST) == "1" else "off"
    turbo = _read(_NO_TURBO)
    return {"0": "on", "1": "off"}.get(turbo, "unknown")


def _chosen(text: str) -> str:
    """The entry in brackets of a file such as `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or "unknown"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
