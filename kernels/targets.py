"""The four GPUs kernels are compiled for, as numbers: what fits on one processor, and what its memory asks for.

Limits per processor (streaming multiprocessor or compute unit) are the vendors' architecture guides; bandwidth and
processor counts are the data sheets of A100 80GB SXM, H200 SXM, B200 and MI300X. Latency is an *assumption*, not a
measurement: an idle global load takes some hundreds of cycles (microbenchmarks such as Luo et al. 2024, arXiv
2402.13499), a busy memory system about twice as long; 600 ns stands for that, 800 ns on MI300X.

By Little's law a processor must keep `bandwidth × latency / processors` bytes in flight to use all of its bandwidth.
Knows nothing of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.backends.compiler import GPUTarget

from kernels.launch import cdiv


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU. Registers count 32-bit registers; `max_warps` are resident warps (waves) per processor."""

    name: str
    gpu: str
    backend: str
    arch: int | str
    warp_size: int
    processors: int
    registers: int
    max_registers: int
    register_unit: int
    max_warps: int
    max_programs: int
    shared_bytes: int
    shared_reserved: int
    bandwidth: float
    latency: float

    @property
    def triton(self) -> GPUTarget:
        """What Triton's compiler takes."""
        return GPUTarget(self.backend, self.arch, self.warp_size)

    @property
    def bytes_needed(self) -> float:
        """Bytes in flight per processor that cover the latency at full bandwidth."""
        return self.bandwidth * self.latency / self.processors

    def programs(self, registers: int, num_warps: int, shared: int) -> int:
        """Programs resident on one processor, by registers per thread, warps per program and shared bytes."""
        per_thread = max(cdiv(registers, self.register_unit), 1) * self.register_unit
        by_registers = self.registers // (per_thread * self.warp_size) // num_warps
        by_shared = self.shared_bytes // (shared + self.shared_reserved) if shared else self.max_programs
        return min(by_registers, by_shared, self.max_warps // num_warps, self.max_programs)


TARGETS = (
    Target("sm_80", "A100 80GB", "cuda", 80, 32, 108, 65536, 255, 8, 64, 32, 164 * 1024, 1024, 2.039e12, 600e-9),
    Target("sm_90", "H200", "cuda", 90, 32, 132, 65536, 255, 8, 64, 32, 228 * 1024, 1024, 4.8e12, 600e-9),
    Target("sm_100", "B200", "cuda", 100, 32, 148, 65536, 255, 8, 64, 32, 228 * 1024, 1024, 8.0e12, 600e-9),
    # four SIMDs of 512 registers × 64 lanes, eight waves each
    Target("gfx942", "MI300X", "hip", "gfx942", 64, 304, 131072, 512, 8, 32, 32, 64 * 1024, 0, 5.3e12, 800e-9),
)


def find_target(name: str) -> Target:
    """Raises ValueError naming the targets there are."""
    for target in TARGETS:
        if target.name == name:
            return target
    raise ValueError(f"unknown target {name!r}: there are {', '.join(t.name for t in TARGETS)}")
