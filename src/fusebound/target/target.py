"""What the gates and the cost model know of a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Device facts. Bandwidths are bytes per microsecond (= MB/s) over all threads; times are µs.

    Bandwidths count bytes read plus bytes written. `l1_bytes` and `l2_bytes` belong to one core (on a GPU:
    L1 to one multiprocessor, L2 to the device), `l3_bytes` to the machine. On a GPU a vector is a warp: 32
    float32 lanes. `calibrated` says whether the figures were measured on this machine, `source` where they
    come from. Other GPU fields are 0 on a CPU and the reverse.
    """

    name: str
    kind: str  # "cpu" or "gpu"
    source: str
    calibrated: bool
    threads: int
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    l2_bandwidth: float
    l3_bandwidth: float
    dram_bandwidth: float
    strided_fraction: float  # bandwidth of strided access as a share of the streaming one
    flops: float  # vector instructions per µs, all threads
    launch_us: float  # calling one fused kernel
    framework_us: float  # dispatching one framework operator
    fork_us: float  # entering a parallel region
    page_fault_us: float  # per MB (10⁶ bytes) of fresh memory written
    compile_us: float  # generating and compiling any kernel
    compile_primitive_us: float  # … and every primitive of it
    streams: int = 1
    sms: int = 0
    max_threads_per_sm: int = 0
    max_threads_per_block: int = 0
    max_blocks_per_sm: int = 0
    registers_per_sm: int = 0
    max_registers_per_thread: int = 0
    shared_static_bytes: int = 0
    shared_optin_bytes: int = 0
    shared_per_sm_bytes: int = 0

    @property
    def lanes(self) -> int:
        """float32 lanes of one vector register."""
        return max(self.vector_bits // 32, 1)
