"""Every shipped variant compiles for GPUs that are not here: no spills, 16-byte loads, matrix instructions.

Compiling needs TRITON_INTERPRET unset, so it happens in processes of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MATRIX = {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTC", "gfx942": "v_mfma"}


def aot(*arguments, **env):
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "kernels.aot", *arguments],
        cwd=ROOT, env=clean | env, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("target", MATRIX)
def test_shipped_variants_compile(target):
    run = aot("--target", target)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout.splitlines()[-1])
    assert summary["variants"] == len(summary["reports"]) >= 20
    assert summary["spilling_variants"] == []
    reports = {r["variant"]: r for r in summary["reports"]}
    for r in reports.values():
        assert r["programs"] >= 1, r
        for which in ("k_load_bytes", "v_load_bytes"):
            assert r[which] in (0, 16), r
    assert reports["prefill"]["matrix_instruction"].startswith(MATRIX[target])
    assert reports["split"]["bytes_in_flight"] >= reports["split"]["bytes_needed"]
    if target != "gfx942":
        assert summary["min_load_bytes"] >= 16


@pytest.mark.parametrize(
    ("arguments", "env", "what"),
    [
        (["--target", "sm_75"], {}, "unknown target 'sm_75': there are sm_80, sm_90, sm_100, gfx942"),
        ([], {"TRITON_INTERPRET": "1"}, "needs TRITON_INTERPRET unset"),
    ],
    ids=["unknown target", "interpreter"],
)
def test_what_cannot_be_done_is_said_in_one_sentence(arguments, env, what):
    run = aot(*arguments, **env)
    assert run.returncode == 2
    assert what in run.stderr
    assert "Traceback" not in run.stderr


SPECIALISED = """
import json, torch
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend
from kernels.aot import specialise
values = [1, 0, 16, 17, -1, 2**31, 2**40 + 1, True, 1.5, None]
values += [torch.empty(3, device="meta", dtype=d) for d in (torch.float16, torch.float8_e5m2, torch.int64, torch.int8)]
for value in values:
    kind, attribute = native_specialize_impl(BaseBackend, value, False, True, True)
    aligned = kind != "constexpr" and attribute == "D"
    assert specialise(value) == (kind, aligned), (value, kind, attribute, specialise(value))
"""


def python(code):
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )


def test_arguments_are_specialised_as_tritons_jit_does_at_the_call():
    run = python(SPECIALISED)
    if "ImportError" in run.stderr:
        pytest.skip("this Triton specialises elsewhere")
    assert run.returncode == 0, run.stderr


NO_DISASSEMBLER = """
from types import SimpleNamespace
from kernels import aot
aot.knobs = SimpleNamespace(nvidia=SimpleNamespace(nvdisasm=SimpleNamespace(path="/nowhere/nvdisasm")))
aot.disassemble(b"")
"""


def test_a_missing_disassembler_is_named():
    assert "RuntimeError: no nvdisasm at /nowhere/nvdisasm" in python(NO_DISASSEMBLER).stderr
