"""A time is taken only where everybody trusted agrees; baselines compute the same thing in their own words."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from experiments.ablation.baseline.base import Baseline, UnsupportedError
from experiments.ablation.baseline.conch import Conch
from experiments.ablation.baseline.flashinfer import FlashInfer
from experiments.ablation.baseline.flex import Flex
from experiments.ablation.baseline.sdpa import Sdpa
from experiments.ablation.baseline.torch_copy import TorchCopy
from experiments.ablation.baseline.torch_write import TorchWrite
from experiments.ablation.ceilings import Ceilings
from experiments.ablation.check import judge
from experiments.ablation.measured import DisagreementError, measure
from experiments.ablation.point import Point
from experiments.ablation.timing import Quantiles, Timer
from experiments.ablation.variant.copy_blocks import CopyBlocks
from experiments.ablation.variant.scatter import Scatter
from experiments.ablation.variant.varlen import Varlen
from kernels.attention import naive
from kernels.tuning import load

CPU, TUNING = torch.device("cpu"), load("interpreter")
CEILINGS = Ceilings(copy=1e9, product=1e12, dtype="fp32")
POINT = Point(batch=2, context=70, num_kv_heads=1, gqa_ratio=2, head_dim=32, dtype="fp32", block_size=16)


class Fixed(Timer):
    """Every call takes half a second on the device, a second back to back; the calls are really made."""

    def measure(self, call):
        call()
        return Quantiles(0.4, 0.5, 0.6, 9)

    def host_seconds(self, call):
        call()
        return 1.0


def measured(variant, point, *baselines, ceilings=CEILINGS):
    return measure(variant, point, TUNING, baselines, CPU, Fixed(), ceilings)


def test_rates_and_shares_follow_from_time_work_and_ceilings():
    row, work = measured(Varlen(), POINT), Varlen().work(POINT)
    assert (row["p20_us"], row["p50_us"], row["p80_us"], row["host_us"]) == (4e5, 5e5, 6e5, 1e6)
    assert row["gb_per_s"] == pytest.approx(work.bytes / 0.5 / 1e9)
    assert row["tflop_per_s"] == pytest.approx(work.flops / 0.5 / 1e12)
    assert row["share_of_ceiling"] == pytest.approx(work.bytes / 1e9 / 0.5)
    assert row["limit"] == "bytes"


SHAPES = {
    "decode": POINT,
    "prefill": Point(**{**POINT.row(), "query_len": 70}),
    "chunk": Point(**{**POINT.row(), "query_len": 37}),
    "long chunk": Point(**{**POINT.row(), "query_len": 150, "context": 300, "batch": 1, "block_size": 64}),
}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("baseline", [Sdpa(), Sdpa("math"), Flex(compiled=False)], ids=lambda b: b.name)
def test_torch_attention_over_dense_or_paged_keys_equals_the_plain_reference(baseline, shape):
    inputs = Varlen().inputs(SHAPES[shape], CPU, seed=5)
    call = baseline.bind(inputs, SHAPES[shape])
    verdict = judge(baseline.results(inputs, call()), Varlen().reference(inputs), "fp32")
    assert verdict.passed, verdict.describe()


def test_the_blocks_a_paged_mask_lists_cover_just_what_queries_see():
    """The compiled FlexAttention visits the listed blocks only, which its eager form on a CPU does not."""
    from experiments.ablation.baseline.flex import paged_mask

    point = Point(batch=2, query_len=150, context=300, block_size=16, num_kv_heads=1, placement="shuffled")
    table = Varlen().inputs(point, CPU, seed=2).pool.block_table
    mask = paged_mask(table, point, 2 * 19 + 1)
    assert mask.full_kv_num_blocks is not None
    assert mask.full_kv_indices is not None
    for r in range(2):
        for tile, (first, last) in enumerate(((0, 127), (128, 149))):
            whole = mask.full_kv_indices[r, 0, tile][: int(mask.full_kv_num_blocks[r, 0, tile])].tolist()
            partly = mask.kv_indices[r, 0, tile][: int(mask.kv_num_blocks[r, 0, tile])].tolist()
            ends = [(i + 1) * 16 - 1 for i in range(19)]
            assert whole == [int(table[r, i]) for i in range(19) if ends[i] <= 150 + first]
            assert partly == [int(table[r, i]) for i in range(19) if ends[i] > 150 + first and i * 16 <= 150 + last]


def test_baselines_stand_in_the_row_by_name_with_a_time_or_a_reason():
    row = measured(Varlen(), POINT, Sdpa(), Flex(compiled=False), Conch(), FlashInfer(), TorchCopy())
    assert row["sdpa_us"] == row["flex_us"] == 5e5
    assert (row["sdpa_note"], row["conch_us"], row["conch_note"]) == (None, None, "not installed")
    assert row["flashinfer_note"] == "not installed"
    assert "torch_us" not in row, "a copy is no baseline of attention"
    coarse = Point(**{**POINT.row(), "block_size": 24})
    assert "power of two" in measured(Varlen(), coarse, Flex(compiled=False))["flex_note"]


class Liar(Baseline):
    name, op = "liar", "attention"

    def bind(self, inputs, point):
        return lambda: torch.zeros_like(inputs.q)

    def results(self, inputs, returned):
        return [returned]


class TrustedLiar(Liar):
    trusted = True


class Breaks(Liar):
    def bind(self, inputs, point):
        raise RuntimeError("no kernel image\nis available")


def test_nothing_is_timed_where_a_trusted_baseline_disagrees():
    with pytest.raises(DisagreementError, match=r"liar disagrees: relative error 1, bound 1e-05"):
        measured(Varlen(), POINT, TrustedLiar())


def test_an_untrusted_baseline_that_disagrees_or_breaks_has_no_time_but_a_reason():
    row = measured(Varlen(), POINT, Liar())
    assert row["liar_us"] is None
    assert row["liar_note"].startswith("disagrees")
    row = measured(Varlen(), POINT, Breaks())
    assert row["liar_note"] == "RuntimeError: no kernel image is available"
    assert row["p50_us"] == 5e5


def test_writing_and_copying_have_torch_beside_them():
    point = Point(batch=2, query_len=9, context=40, num_kv_heads=2, head_dim=32, dtype="fp16")
    assert measured(Scatter(), point, TorchWrite())["torch_us"] == 5e5
    assert measured(CopyBlocks(num_layers=2), point, TorchCopy())["torch_us"] == 5e5


def test_an_unknown_backend_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="one of flash, cudnn, efficient, math, or null, got 'fast'"):
        Sdpa("fast")


class Wrapper:
    """FlashInfer's interface as its documentation gives it, computed by the plain reference."""

    def __init__(self, workspace, layout):
        assert workspace.dtype == torch.uint8
        assert layout == "NHD"

    def plan(self, *args, causal=None, q_data_type, kv_data_type):
        *starts, indptr, indices, last, heads, kv_heads, _, size = args
        self.starts, self.size = (starts[0] if starts else torch.arange(len(indptr))), size
        self.table = [indices[a:b] for a, b in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)]
        self.lens = [(len(row) - 1) * size + n for row, n in zip(self.table, last.tolist(), strict=True)]
        assert causal is (True if starts else None)
        assert (heads % kv_heads, q_data_type) == (0, kv_data_type)

    def run(self, q, cache):
        lens = torch.tensor(self.lens)
        return naive.attention(q, *cache, torch.stack(self.table), self.starts, lens, 0, 0)[0]


@pytest.mark.parametrize("shape", ["decode", "chunk"])
def test_flashinfer_and_conch_are_called_as_their_documentation_says(shape, monkeypatch):
    point = SHAPES[shape]
    wrappers = {f"Batch{kind}WithPagedKVCacheWrapper": Wrapper for kind in ("Decode", "Prefill")}
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(**wrappers))

    def paged_attention(q, k, v, table, lens):
        return naive.attention(q, k, v, table, torch.arange(len(lens) + 1), lens, 1, 0)[0]

    def varlen_attention(q, k, v, starts, max_q, lens, max_k, table, causal):
        assert (causal, max_q, max_k) == (True, point.query_len, point.context)
        return naive.attention(q, k, v, table, starts, lens, max_q, max_k)[0]

    for name, function in (("paged_attention", paged_attention), ("varlen_attention", varlen_attention)):
        module = ModuleType(f"conch.ops.attention.{name}")
        setattr(module, name, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for package in ("conch", "conch.ops", "conch.ops.attention"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    row = measured(Varlen(), point, FlashInfer(), Conch())
    assert (row["flashinfer_us"], row["conch_us"]) == (5e5, 5e5), (row["flashinfer_note"], row["conch_note"])


def test_a_quantised_cache_is_for_those_who_can_read_it():
    point = Point(**{**POINT.row(), "dtype": "fp16", "kv_dtype": "int8", "scales": "token"})
    inputs = Varlen().inputs(point, CPU, seed=1)
    for baseline in (Sdpa(), Flex(), Conch(), FlashInfer()):
        with pytest.raises(UnsupportedError, match="no int8 cache"):
            baseline.bind(inputs, point)
