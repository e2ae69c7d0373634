"""Compile any launch for a GPU that is not here, and report what the compiler made of it.

    python -m kernels.aot --target sm_90            one table of all shipped variants; last line is JSON

A `Launch` built from meta tensors is compiled with the specialisation Triton's JIT would choose at the call: which
arguments are multiples of 16 (they decide 16-byte loads), which are 1, which are None. Meta tensors count as aligned,
as torch's allocations are. Registers and spills are those of the `ptxas` run inside the compilation; loops and matrix
instructions come from the disassembler in Triton's wheel.

    occupancy        resident warps / most resident warps, by registers, shared memory and warps per program
    bytes in flight  per processor: payload bytes per thread on their way at once (`asm.bytes_ahead`) × threads ×
                     resident programs, against `Target.bytes_needed` (Little's law). A static estimate.

Knows nothing of time: nothing here ran.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from rich.console import Console
from rich.table import Table
from triton import knobs
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from kernels import asm
from kernels.launch import Launch, interpreted
from kernels.shipped import shipped
from kernels.targets import TARGETS, Target, find_target
from kernels.tuning import load

SILENCE = 15.0
"""Seconds between two words of progress."""
TRITON_NAMES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What one launch became on one target. Bytes and counts; times in seconds.

    `k_load_bytes` and `v_load_bytes` are the narrowest global load per thread of K and of V (0: the kernel has none);
    `load_bytes` that of any payload, which for copies, merges and rotations is not called K or V.
    """

    variant: str
    target: str
    registers: int
    spills: int
    static_shared: int
    dynamic_shared: int
    num_warps: int
    programs: int
    occupancy: float
    bytes_in_flight: int
    bytes_needed: int
    k_load_bytes: int
    v_load_bytes: int
    load_bytes: int
    matrix_instruction: str
    loop_instructions: int
    code_bytes: int
    compile_seconds: float


def specialise(value: Any) -> tuple[str, bool]:
    """Triton's type of an argument, and whether it is known to be a multiple of 16. 1 and None become constants."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1):
        return "constexpr", False
    if isinstance(value, torch.Tensor):
        return f"*{TRITON_NAMES[value.dtype]}", value.data_ptr() % 16 == 0
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, float):
        return "fp32", False
    return ("i32" if -(2**31) <= value < 2**31 else "i64"), value % 16 == 0


def source_of(launch: Launch) -> ASTSource:
    """The launch as Triton's compiler takes it."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for i, param in enumerate(launch.kernel.params):
        value = launch.args[param.name]
        kind, aligned = ("constexpr", False) if param.is_constexpr else specialise(value)
        signature[param.name] = kind
        if kind == "constexpr":
            constants[param.name] = value
        if aligned:
            attributes[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(launch.kernel, signature, constants, attributes)


def compile_launch(launch: Launch, target: Target) -> tuple[Any, str, float]:
    """Compile afresh for `target`: Triton's compiled kernel, the log of `ptxas -v` (CUDA only), seconds.

    Raises RuntimeError if this process interprets kernels, or if Triton's compiler fails (its own error follows).
    """
    if interpreted(launch.kernel):
        raise RuntimeError("compiling ahead of time needs TRITON_INTERPRET unset when Python starts: it is set here")
    options = {
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
        "enable_fp_fusion": launch.fp_fusion,
    }
    log = io.StringIO()
    with knobs.nvidia.scope(), knobs.compilation.scope(), contextlib.redirect_stdout(log):
        knobs.nvidia.dump_ptxas_log = True
        knobs.compilation.always_compile = True
        begin = time.perf_counter()
        try:
            kernel = compile_source(source_of(launch), target=target.triton, options=options)
        except Exception as error:
            raise RuntimeError(f"{launch.kernel.__name__} does not compile for {target.name}: {error}") from error
        seconds = time.perf_counter() - begin
    return kernel, log.getvalue(), seconds


def disassemble(cubin: bytes) -> str:
    """Machine code as text, labels included. Raises RuntimeError where Triton's wheel has no nvdisasm."""
    tool = Path(knobs.nvidia.nvdisasm.path)
    if not tool.is_file():
        raise RuntimeError(f"no nvdisasm at {tool}: Triton's wheel carries it, or set TRITON_NVDISASM_PATH")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([tool, "-c", "-ndf", file.name], capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"nvdisasm failed: {run.stderr.strip()}")
    return run.stdout


def study(variant: str, launch: Launch, target: Target) -> Report:
    """Compile `launch` for `target` and report on it. Raises RuntimeError as `compile_launch` and `disassemble` do."""
    kernel, log, seconds = compile_launch(launch, target)
    if target.backend == "cuda":
        text, code = kernel.asm["ptx"], disassemble(kernel.asm["cubin"])
        registers, spills = asm.ptxas_usage(log)
        static, code_bytes = 0, asm.sass_bytes(code)
    else:
        text = code = kernel.asm["amdgcn"]
        registers = asm.amd_field(text, "TotalNumVgprs")
        spills = 4 * asm.amd_field(text, "vgpr_spill_count")
        static, code_bytes = asm.amd_field(text, "LDSByteSize"), asm.amd_field(text, "codeLenInByte")
    num_warps, shared = kernel.metadata.num_warps, kernel.metadata.shared
    programs = target.programs(registers, num_warps, static + shared)
    widths = asm.load_widths(text)
    ahead = asm.bytes_ahead(text) * target.warp_size * num_warps * programs
    return Report(
        variant=variant,
        target=target.name,
        registers=registers,
        spills=spills,
        static_shared=static,
        dynamic_shared=shared,
        num_warps=num_warps,
        programs=programs,
        occupancy=round(programs * num_warps / target.max_warps, 3),
        bytes_in_flight=ahead,
        bytes_needed=round(target.bytes_needed),
        k_load_bytes=widths.get("k_ptr", 0),
        v_load_bytes=widths.get("v_ptr", 0),
        load_bytes=min(widths.values(), default=0),
        matrix_instruction=asm.matrix_instruction(code),
        loop_instructions=asm.loop_instructions(code),
        code_bytes=code_bytes,
        compile_seconds=round(seconds, 3),
    )


def study_shipped(
    target: Target, only: str = "", say: Callable[[int, int, str], None] = lambda number, of, variant: None
) -> list[Report]:
    """Reports on every shipped variant whose name contains `only`, tiled by the target's own table.

    `say` is told number, count and name before each is compiled.
    """
    fp8 = "fp8e5m2" if target.arch == 80 else "fp8e4m3"  # Ampere has no e4m3 conversion in Triton
    variants = shipped(load(target.name), fp8)
    chosen = {name: build for name, build in variants.items() if only in name}
    reports = []
    for number, (name, build) in enumerate(chosen.items(), 1):
        say(number, len(chosen), name)
        reports.append(study(name, build(), target))
    return reports


class Progress:
    """A line on standard error before the first variant and then every `SILENCE` seconds."""

    def __init__(self) -> None:
        self._said: float | None = None

    def __call__(self, number: int, of: int, variant: str) -> None:
        """About to compile variant `number`."""
        now = time.perf_counter()
        if self._said is None or now - self._said >= SILENCE:
            self._said = now
            print(f"compiling {number} of {of}: {variant}", file=sys.stderr, flush=True)


def summary(reports: Sequence[Report]) -> dict[str, Any]:
    """The last line of the command: counts, the variants that spill, the narrowest load of K, V or other payload."""
    return {
        "target": sorted({r.target for r in reports}),
        "variants": len(reports),
        "spilling_variants": [f"{r.target} {r.variant}" for r in reports if r.spills],
        "min_load_bytes": min((r.load_bytes for r in reports if r.load_bytes), default=0),
        "triton": triton.__version__,
        "reports": [asdict(r) for r in reports],
    }


def show(reports: Sequence[Report], target: Target, console: Console) -> None:
    """Print one table."""
    table = Table(title=f"{target.name} ({target.gpu}), Triton {triton.__version__}: nothing here was run")
    table.add_column("variant", no_wrap=True)
    for heading in ("regs", "spills", "shared", "warps", "progs", "occ", "in flight", "needed", "K", "V", "any"):
        table.add_column(heading, justify="right")
    table.add_column("matrix", no_wrap=True)
    for heading in ("loop", "code", "s"):
        table.add_column(heading, justify="right")
    for r in reports:
        table.add_row(
            r.variant, str(r.registers), str(r.spills), str(r.static_shared + r.dynamic_shared), str(r.num_warps),
            str(r.programs), f"{r.occupancy:.0%}", f"{r.bytes_in_flight / 1024:.0f}K", f"{r.bytes_needed / 1024:.0f}K",
            str(r.k_load_bytes or "-"), str(r.v_load_bytes or "-"), str(r.load_bytes or "-"),
            r.matrix_instruction or "-", str(r.loop_instructions or "-"), str(r.code_bytes), f"{r.compile_seconds:.1f}",
        )  # fmt: skip
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: 0, or 2 with one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="python -m kernels.aot", description="Compile kernels with no GPU present.")
    parser.add_argument("--target", default="sm_90", help=f"one of {', '.join(t.name for t in TARGETS)}")
    parser.add_argument("--only", default="", help="variants whose name contains this")
    arguments = parser.parse_args(argv)
    try:
        target = find_target(arguments.target)
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise RuntimeError("compiling ahead of time needs TRITON_INTERPRET unset: it is set in this environment")
        reports = study_shipped(target, arguments.only, Progress())
    except (ValueError, RuntimeError) as error:
        print(f"kernels.aot: {error}", file=sys.stderr)
        return 2
    show(reports, target, Console(width=None if sys.stdout.isatty() else 200))
    print(json.dumps(summary(reports)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
