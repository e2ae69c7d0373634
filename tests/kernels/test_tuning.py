"""Tile sizes come from a table, by a rule one can say in a sentence."""

from __future__ import annotations

import pytest

from kernels.shipped import Shape, attention_launches, cascade_launch, copy_launch, shipped, write_launch
from kernels.targets import TARGETS, find_target
from kernels.tuning import CONF, FALLBACK, SECTIONS, AttentionConfig, Tuning, load, section_for

TABLES = sorted(path.stem for path in CONF.glob("*.yaml"))


@pytest.mark.parametrize("arch", TABLES)
def test_every_table_loads_and_tiles_every_section(arch):
    table = load(arch)
    assert table.arch == arch
    assert set(table.rows) <= set(SECTIONS)
    for section in SECTIONS:
        for head_dim in (64, 80, 96, 128, 192, 256):
            config = table.attention(section, head_dim, 2)
            assert 512 % config.tile_kv == 0, "segments of invariant mode are whole tiles"


def test_every_target_has_a_table():
    assert {target.name for target in TARGETS} <= set(TABLES)


def test_the_first_row_whose_bounds_hold_wins():
    first, second, last = ({"tile_q": n} for n in (16, 32, 64))
    rows = [{"head_dim": 64, "bytes": 2, "use": first}, {"head_dim": 128, "use": second}, {"use": last}]
    table = Tuning("here", decode=rows)
    assert table.attention("decode", 64, 2).tile_q == 16
    assert table.attention("decode", 64, 4).tile_q == 32
    assert table.attention("decode", 129, 2).tile_q == 64


def test_without_a_row_the_fallback_is_used():
    table = Tuning("here", decode=[{"head_dim": 64, "use": {"tile_q": 64}}])
    assert table.attention("decode", 128, 2) == FALLBACK
    assert table.attention("prefill", 64, 2) == FALLBACK


def test_invariant_mode_reads_one_section_for_prefill_and_decode_alike():
    assert section_for(1, 4, invariant=True) == section_for(8192, 4, invariant=True) == "invariant"
    assert section_for(1, 4, invariant=False) == "decode"
    assert section_for(8192, 4, invariant=False) == "prefill"


@pytest.mark.parametrize(
    "make",
    [
        lambda: AttentionConfig(tile_q=48),
        lambda: AttentionConfig(tile_kv=8),
        lambda: AttentionConfig(num_warps=3),
        lambda: AttentionConfig(num_stages=0),
        lambda: Tuning("here", decoding=[]),
        lambda: Tuning("here", decode=[{"batch": 3, "use": {}}]),
        lambda: load("sm_75"),
        lambda: find_target("sm_75"),
        lambda: FALLBACK and load("sm_90").attention("decoding", 64, 2),
        lambda: attention_launches("flash", Shape(), FALLBACK),
        lambda: write_launch("gather", Shape()),
        lambda: copy_launch("swap", Shape()),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises((ValueError, TypeError)):
        make()


def test_shipped_variants_are_planned_without_memory():
    for name, build in shipped(load("sm_90")).items():
        launch = build()
        assert all(n > 0 for n in launch.grid), name
    assert cascade_launch(Shape(batch=64), FALLBACK).grid[1] == 8
