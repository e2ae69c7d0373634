"""Every attention variant against the plain-torch reference, over a poisoned pool."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import cascade, merge, naive, split_kv, varlen
from kernels.attention.problem import Options, Scoring
from kernels.tuning import AttentionConfig

TILES = AttentionConfig(32, 64)
VARIANTS = {"varlen": varlen.attention, "split_kv": lambda *a, **k: split_kv.attention(*a, **k, num_splits=3)}


def check(variant, case, agree, device, dtype=torch.float32, **options):
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    actual = VARIANTS[variant](*case.args(device), return_lse=True, validate=True, config=TILES, **moved)
    agree(actual, naive.attention(*case.args(), return_lse=True, **options), dtype)


@pytest.fixture(params=list(VARIANTS))
def variant(request):
    return request.param


@pytest.mark.parametrize("block_size", [1, 8, 16, 24, 32, 48, 64, 128, 256], ids=lambda b: f"bs{b}")
def test_any_block_size_gives_the_reference(block_size, variant, make_case, agree, device):
    lens = [111, max(1, block_size - 1), block_size + 1]
    check(variant, make_case([1, 1, 5 if block_size > 5 else 1], lens, block_size=block_size), agree, device)


@pytest.mark.parametrize(
    ("dim", "dim_v"),
    [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256), (64, 128), (16, 24)],
    ids=lambda d: f"D{d}",
)
def test_any_head_dims_give_the_reference(dim, dim_v, variant, dtype, make_case, agree, device):
    case = make_case([1, 3], [63, 25], dim=dim, dim_v=dim_v, block_size=24, dtype=dtype)
    check(variant, case, agree, device, dtype)


@pytest.mark.parametrize("group", [1, 3, 5, 8, 16], ids=lambda g: f"G{g}")
def test_any_group_size_packs_into_the_query_tile(group, variant, make_case, agree, device):
    case = make_case([1, 9, 2], [33, 40, 2], heads=2 * group, kv_heads=2, block_size=16)
    check(variant, case, agree, device)


@pytest.mark.parametrize("length", [1, 16, 17, 111], ids=lambda n: f"L{n}")
def test_a_whole_prompt_in_one_pass(length, dtype, variant, make_case, agree, device):
    check(variant, make_case([length], [length], block_size=16, heads=2, kv_heads=1, dtype=dtype), agree, device, dtype)


OPTIONS = {
    "plain": {},
    "not causal": {"causal": False},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 1.0])},
    "sinks": {"sinks": torch.tensor([0.5, -3.0, 4.0, float("-inf")])},
    "scale": {"scale": 0.3},
    "kv_starts": {"kv_starts": torch.tensor([7, 0, 30])},
    "all": {
        "window": 9,
        "softcap": 5.0,
        "alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 1.0]),
        "sinks": torch.tensor([0.5, -3.0, 4.0, 0.0]),
        "kv_starts": torch.tensor([7, 0, 3]),
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_the_reference(name, variant, make_case, agree, device):
    check(variant, make_case([4, 1, 20], [70, 1, 33], block_size=8), agree, device, **OPTIONS[name])


@pytest.mark.parametrize("window", [1, 15, 16, 17, 63, 64, 65], ids=lambda w: f"w{w}")
def test_window_edges(window, variant, make_case, agree, device):
    check(variant, make_case([3, 1], [66, 16], block_size=16), agree, device, window=window)


def test_head_major_layout_differs_by_strides_only(variant, make_case, agree, device):
    check(variant, make_case([5, 1], [29, 50], head_major=True, block_size=24), agree, device)


def test_strided_queries(variant, make_case, agree, device):
    case = make_case([3, 2], [20, 9])
    case.q = torch.randn(5, 3, 4, 64)[:, 1]  # a slice of a fused QKV
    check(variant, case, agree, device)


def test_requests_without_queries_or_keys(variant, make_case, agree, device):
    check(variant, make_case([0, 1, 0, 2], [0, 1, 5, 2]), agree, device)


def test_an_empty_batch_is_an_empty_result(variant, make_case, device):
    out, lse = VARIANTS[variant](*make_case([0], [0]).args(device), return_lse=True)
    assert out.shape == (0, 4, 64)
    assert lse.shape == (0, 4)


def test_rows_that_see_nothing_are_zeros_with_lse_minus_infinity(variant, make_case, device):
    case = make_case([2, 1], [10, 5])
    starts = torch.tensor([10, 0], dtype=torch.int32).to(device)
    out, lse = VARIANTS[variant](*case.args(device), return_lse=True, kv_starts=starts)
    assert torch.equal(out[:2].cpu(), torch.zeros(2, 4, 64))
    assert torch.isneginf(lse[:2]).all()
    assert torch.isfinite(lse[2:]).all()


def test_a_first_key_past_the_end_leaves_nothing_to_see(variant, make_case, device):
    """In the same key tile as the end, and in a later one."""
    case = make_case([1, 1, 1], [66, 66, 66])
    starts = torch.tensor([70, 66, 640], device=device)
    out, lse = VARIANTS[variant](*case.args(device), return_lse=True, kv_starts=starts, config=TILES)
    assert bool((out == 0).all())
    assert bool((lse == float("-inf")).all())


def test_a_64_bit_block_id_is_not_cut_to_32_bits(variant, make_case, agree, device):
    case = make_case([1], [40])
    case.block_table = case.block_table.long()
    case.block_table[0, 1] += 2**32
    options = {"return_lse": True}
    actual = VARIANTS[variant](*case.args(device), config=TILES, **options)
    agree(actual, naive.attention(*case.args(), **options))


@pytest.mark.parametrize("bad", [-1, 10**6], ids=["negative", "past-the-pool"])
@pytest.mark.parametrize("block_size", [16, 64], ids=lambda b: f"bs{b}")
def test_blocks_outside_the_pool_are_left_out_never_read_as_block_0(bad, block_size, variant, make_case, agree, device):
    case = make_case([1], [130], block_size=block_size)
    case.k_cache[0] = case.v_cache[0] = 1e4
    case.block_table[0] = torch.where(case.block_table[0] == 0, 1, case.block_table[0])
    case.k_cache.nan_to_num_(0.5)
    case.v_cache.nan_to_num_(0.5)
    case.block_table[0, 1] = bad
    actual = VARIANTS[variant](*case.args(device), return_lse=True, config=TILES)
    agree(actual, naive.attention(*case.args(), return_lse=True))
    assert actual[0].abs().max() < 100


def test_the_pool_is_only_read(variant, make_case, device):
    case = make_case([1, 4], [20, 33])
    args = case.args(device)
    VARIANTS[variant](*args)
    assert torch.equal(args[1].cpu().view(torch.int32), case.k_cache.view(torch.int32))
    assert torch.equal(args[2].cpu().view(torch.int32), case.v_cache.view(torch.int32))


DRAWN_DTYPES = (torch.float32, torch.float16)
JUNK = [-1, 2**31 - 1, -(2**31), 10**6, 0]
"""What a table may hold past a request's last block; block 0 is somebody's, or poison."""


@settings(deadline=None, max_examples=16, derandomize=True)
@given(data=st.data())
def test_drawn_calls_give_the_reference_whatever_their_layout_and_options(data, make_case, spread, agree, device):
    def draw(name, *choices):
        return data.draw(st.sampled_from(choices), name)

    queries = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 9]), max_size=3), "query_lens")
    block_size = data.draw(st.integers(1, 32), "block_size")
    cached = [draw("cached", 0, 1, block_size - 1, block_size, block_size + 1, 40) for _ in queries]
    kv_heads, group, dtype = draw("kv_heads", 1, 2), data.draw(st.integers(1, 8), "group"), draw("dtype", *DRAWN_DTYPES)
    heads, seed = kv_heads * group, data.draw(st.integers(0, 99), "seed")
    case = make_case(
        queries, [n + c for n, c in zip(queries, cached, strict=True)], heads=heads, kv_heads=kv_heads,
        dim=draw("dim", 16, 48, 64, 80), dim_v=draw("dim_v", 8, 40, 64), block_size=block_size, dtype=dtype, seed=seed,
    )  # fmt: skip
    for r, n in enumerate(case.seq_lens.tolist()):
        for i in range(-(-n // block_size), case.block_table.shape[1]):
            case.block_table[r, i] = draw("junk", *JUNK)
    if draw("long ids", False, True):
        for name in ("block_table", "query_start_loc", "seq_lens"):
            setattr(case, name, getattr(case, name).long())
    case.q *= draw("magnitude", 1, 1, 100)
    for i, name in enumerate(("q", "k_cache", "v_cache", "block_table")):
        setattr(case, name, spread(getattr(case, name), seed + i))
    options = {
        "window": draw("window", None, None, 1, block_size, 17),
        "softcap": draw("softcap", None, None, 0.5, 30.0),
        "sinks": draw("sinks", None, None, torch.linspace(-2, 2, heads)),
        "alibi_slopes": draw("alibi", None, None, torch.linspace(0.01, 1, heads)),
        "kv_starts": draw("kv_starts", None, None, case.seq_lens // 2),
    }
    check(draw("variant", *VARIANTS), case, agree, device, dtype, **options)


def names_of(function, kinds):
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]


@pytest.mark.parametrize(
    ("reference", "launcher", "options"),
    [
        (naive.attention, varlen.attention, Options),
        (naive.attention, split_kv.attention, Options),
        (naive.cascade, cascade.cascade, Scoring),
        (naive.merge, merge.merge, None),
    ],
)
def test_the_reference_has_the_launchers_name_argument_order_and_options(reference, launcher, options):
    order = {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert reference.__name__ == launcher.__name__
    assert names_of(launcher, order) == names_of(reference, order)
    offered = {*names_of(launcher, {inspect.Parameter.KEYWORD_ONLY}), *(options.__annotations__ if options else ())}
    assert set(names_of(reference, {inspect.Parameter.KEYWORD_ONLY})) <= offered


def test_an_option_nobody_knows_is_refused_by_name(variant, make_case, device):
    with pytest.raises(TypeError, match="windwo"):
        VARIANTS[variant](*make_case([1], [5]).args(device), windwo=3)
