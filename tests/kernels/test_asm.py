"""Reading assembly: small texts whose answers one can count by hand."""

from __future__ import annotations

from kernels import asm
from kernels.targets import find_target

SASS = """
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_0:
        /*0010*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8] ;
        /*0020*/                   FADD R1, R1, R2 ;
        /*0030*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1);
"""

PTX = """
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
\t.loc\t2 1 5
\tcp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
\t.loc\t2 2 5
\tld.global.v2.b32 { %r3, %r4 }, [ %rd2 + 0 ];
\t@%p1 bra $L__BB0_1;
// %bb.2:
\tret;
"""


def test_the_inner_loop_is_counted_and_the_trap_at_the_end_is_not():
    assert asm.loop_instructions(SASS) == 3
    assert asm.sass_bytes(SASS) == 0x50
    assert asm.matrix_instruction(SASS) == "HGMMA.64x64x16.F32.BF16"


def test_code_without_loops_or_matrix_products_has_none():
    assert asm.loop_instructions("/*0000*/ EXIT ;") == 0
    assert asm.matrix_instruction("/*0000*/ EXIT ;") == ""


def test_load_widths_are_read_by_source_line(tmp_path):
    source = tmp_path / "source.py"
    source.write_text("k = tl.load(k_ptrs, mask=m)\nv = tl.load(v_ptrs, mask=m)\n")
    text = "\t.loc\t2 1 5\n\tcp.async.cg.shared.global [ %r9 + 0 ], [ %rd9 + 0 ], 0x10, %r2;\n" + PTX
    text += f'\t.file\t2 "{source}"\n'
    assert asm.load_widths(text) == {"k_ptr": 16, "v_ptr": 8}
    assert asm.bytes_ahead(text) == 16 + 8, "one copy before the loop, and what one turn loads into registers"


def test_ptxas_says_registers_and_spills():
    log = "info : 0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\ninfo : Used 168 registers, used 1"
    assert asm.ptxas_usage(log) == (168, 20)


def test_occupancy_is_the_tightest_of_four_limits():
    hopper = find_target("sm_90")
    assert hopper.programs(168, 4, 39424) == 3, "registers"
    assert hopper.programs(32, 4, 99000) == 2, "shared memory"
    assert hopper.programs(32, 8, 0) == 8, "warps"
    assert hopper.programs(16, 1, 0) == 32, "programs"


def test_a_hopper_processor_needs_about_22_kilobytes_in_flight():
    assert round(find_target("sm_90").bytes_needed / 1000) == 22
