"""Writing K and V: every slot gets its token, every other slot keeps its poison."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import naive as attention_naive
from kernels.attention import varlen
from kernels.write import naive, rope_scatter, scatter, scatter_quantised

FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def pool(num_blocks, block_size, heads, dim, dtype=torch.float32, head_major=False):
    """All NaN, or for int8 all −128, which no quantised value is."""
    poison = -128 if dtype == torch.int8 else float("nan")
    if head_major:
        return torch.full((num_blocks, heads, block_size, dim), poison).to(dtype).transpose(1, 2)
    return torch.full((num_blocks, block_size, heads, dim), poison).to(dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


def both(reference, launcher, inputs, outputs, device, **options):
    """Run both over equal poisoned outputs and compare every bit of them."""
    mine = [t.to(device) for t in outputs]
    result = launcher(*[t.to(device) for t in inputs[0]], *mine, *[t.to(device) for t in inputs[1]], **options)
    expected = reference(*inputs[0], *outputs, *inputs[1], **{k: v for k, v in options.items() if k != "validate"})
    for theirs, ours in zip(outputs, mine, strict=True):
        assert torch.equal(bits(ours), bits(theirs))
    return result, expected


def slots_of(num_tokens, num_slots, seed=0):
    slots = torch.randperm(num_slots, generator=torch.Generator().manual_seed(seed))[:num_tokens]
    slots[::5] = -1  # these tokens are not to be written
    return slots


@pytest.mark.parametrize("block_size", [1, 16, 24], ids=lambda b: f"bs{b}")
@pytest.mark.parametrize(("dim", "dim_v"), [(64, 64), (80, 48), (192, 128)], ids=lambda d: f"D{d}")
def test_scatter_writes_its_slots_and_nothing_else(block_size, dim, dim_v, dtype, device):
    k, v = torch.randn(19, 2, dim).to(dtype), torch.randn(19, 2, dim_v).to(dtype)
    pools = pool(30, block_size, 2, dim, dtype), pool(30, block_size, 2, dim_v, dtype, head_major=True)
    slots = slots_of(19, 30 * block_size)
    both(naive.scatter, scatter.scatter, ([k, v], [slots]), pools, device, validate=True)


def test_scatter_copies_bf16_bit_for_bit_in_the_interpreter_too(device):
    k = torch.randn(19, 2, 64).bfloat16()
    pools = pool(3, 16, 2, 64, torch.bfloat16), pool(3, 16, 2, 64, torch.bfloat16)
    both(naive.scatter, scatter.scatter, ([k, -k], [slots_of(19, 48)]), pools, device)


def test_scatter_takes_slices_of_a_fused_projection(device):
    fused = torch.randn(7, 8, 32)
    both(
        naive.scatter,
        scatter.scatter,
        ([fused[:, 4:6], fused[:, 6:8]], [slots_of(7, 24)]),
        (pool(3, 8, 2, 32), pool(3, 8, 2, 32)),
        device,
    )


def test_slots_outside_the_pool_write_nothing(device):
    slots = torch.tensor([-1, -100, 48, 10**12, 5])
    both(
        naive.scatter,
        scatter.scatter,
        ([torch.randn(5, 2, 32)] * 2, [slots]),
        (pool(3, 16, 2, 32), pool(3, 16, 2, 32)),
        device,
    )


def test_no_tokens_write_nothing(device):
    none = torch.zeros(0, 2, 32)
    both(
        naive.scatter,
        scatter.scatter,
        ([none, none], [slots_of(0, 48)]),
        (pool(3, 16, 2, 32), pool(3, 16, 2, 32)),
        device,
    )


@settings(deadline=None, max_examples=15, derandomize=True)
@given(data=st.data())
def test_drawn_shapes_scatter_like_the_reference(data, device):
    tokens, heads = data.draw(st.integers(1, 40), "tokens"), data.draw(st.integers(1, 3), "heads")
    block_size = data.draw(st.sampled_from([1, 3, 8, 48]), "block_size")
    dims = [data.draw(st.sampled_from([16, 40, 64]), name) for name in ("dim", "dim_v")]
    k, v = (torch.randn(tokens, heads, d) for d in dims)
    pools = [pool(50, block_size, heads, d, head_major=data.draw(st.booleans(), "head_major")) for d in dims]
    slots = slots_of(tokens, 50 * block_size, data.draw(st.integers(0, 99), "seed"))
    both(naive.scatter, scatter.scatter, ([k, v], [slots]), pools, device, validate=True)


@pytest.mark.parametrize("interleaved", [False, True], ids=["neox", "interleaved"])
@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (80, 80), (96, 24), (128, 64)], ids=lambda d: f"{d}")
def test_rope_scatter_turns_q_and_k_and_writes(dim, rotary, interleaved, dtype, device):
    torch.manual_seed(0)
    q, k, v = (torch.randn(19, heads, d).to(dtype) for heads, d in ((4, dim), (2, dim), (2, 48)))
    angles = torch.outer(torch.arange(100.0), 10000 ** (-torch.arange(0, rotary, 2) / rotary))
    positions = torch.randint(0, 100, (19,))
    pools = [pool(4, 16, 2, dim, dtype), pool(4, 16, 2, 48, dtype)]
    mine = [t.to(device) for t in pools]
    slots = slots_of(19, 64)
    inputs = q, k, v, angles.cos(), angles.sin(), positions
    on_device = [t.to(device) for t in inputs]
    turned = rope_scatter.rope_scatter(*on_device, *mine, slots.to(device), interleaved=interleaved, validate=True)
    expected = naive.rope_scatter(*inputs, *pools, slots, interleaved=interleaved)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2  # one rounding may differ where a GPU contracts a·b+c
    torch.testing.assert_close(turned.cpu(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(mine[0].cpu(), pools[0], atol=tolerance, rtol=tolerance, equal_nan=True)
    assert torch.equal(bits(mine[1]), bits(pools[1]))


def test_rotation_keeps_lengths_and_depends_on_distance_alone(device):
    q, k = torch.randn(1, 1, 64), torch.randn(1, 1, 64)
    angles = torch.outer(torch.arange(100.0), 10000 ** (-torch.arange(0, 64, 2) / 64))
    tables = angles.cos().to(device), angles.sin().to(device)

    def product(i, j):
        cache = pool(1, 1, 1, 64).to(device), pool(1, 1, 1, 64).to(device)
        turn = [torch.tensor([p], device=device) for p in (i, j)]
        slot = torch.zeros(1, dtype=torch.int64, device=device)
        x = rope_scatter.rope_scatter(q.to(device), k.to(device), k.to(device), *tables, turn[0], *cache, slot)
        rope_scatter.rope_scatter(k.to(device), k.to(device), k.to(device), *tables, turn[1], *cache, slot)
        torch.testing.assert_close(x.norm().cpu(), q.norm())
        return (x[0, 0] @ cache[0][0, 0, 0]).item()

    assert product(7, 3) == pytest.approx(product(94, 90), abs=1e-3)


@pytest.mark.parametrize("scale", [0.25, 0.5, 4.0])
@pytest.mark.parametrize("dtype8", FP8, ids=["e4m3", "e5m2"])
def test_fp8_with_one_scale_reads_back(scale, dtype8, device):
    k, v = torch.randn(19, 2, 64) * 3, torch.randn(19, 2, 48)
    pools = [pool(3, 16, 2, 64, dtype8), pool(3, 16, 2, 48, dtype8)]
    scales = [torch.tensor([scale]), torch.tensor([0.5])]
    slots = torch.randperm(48)[:19]
    both(
        naive.scatter_quantised,
        _fixed_scales(scatter_quantised.scatter_quantised),
        ([k, v], [*scales, slots]),
        pools,
        device,
    )
    back = pools[0].float().flatten(0, 1)[slots] * scale
    torch.testing.assert_close(back, k, rtol=0.13, atol=0.02 * scale)  # half a step of 2 or 3 mantissa bits


def _fixed_scales(launcher):
    """`both` compares outputs bit for bit; a per-tensor scale is an input."""
    return lambda k, v, kc, vc, ks, vs, slots: launcher(k, v, kc, vc, ks, vs, slots, validate=True)


@pytest.mark.parametrize("dtype8", [*FP8, torch.int8], ids=["e4m3", "e5m2", "int8"])
def test_scales_per_token_and_head_are_written_beside_the_slots(dtype8, device):
    k, v = torch.randn(19, 2, 80) * torch.logspace(-3, 3, 19)[:, None, None], torch.randn(19, 2, 64)
    k[3, 0] = 0.0  # an all-zero row has no scale of its own
    outputs = [pool(3, 16, 2, 80, dtype8), pool(3, 16, 2, 64, dtype8)]
    outputs += [torch.full((3, 16, 2), float("nan")), torch.full((3, 16, 2), float("nan"))]
    slots = torch.randperm(48)[:19]
    mine = [t.to(device) for t in outputs]
    scatter_quantised.scatter_quantised(k.to(device), v.to(device), *mine, slots.to(device), validate=True)
    naive.scatter_quantised(k, v, *outputs, slots)
    for theirs, ours in zip(outputs, mine, strict=True):
        assert torch.equal(bits(ours), bits(theirs))
    back = (outputs[0].float() * outputs[2][..., None]).flatten(0, 1)[slots]
    step = {torch.int8: 1 / 127, torch.float8_e4m3fn: 1 / 8, torch.float8_e5m2: 1 / 4}[dtype8]
    assert ((back - k).abs() <= k.abs().amax(-1, keepdim=True) * step / 2 + 1e-6).all()


def read_back(k, dtype8, device):
    """Rows of `k` written with scales of their own and read back, and the same by the reference."""
    backs = []
    for launcher, place in ((scatter_quantised.scatter_quantised, device), (naive.scatter_quantised, "cpu")):
        caches = [pool(1, len(k), 1, k.shape[2], dtype8).to(place) for _ in range(2)]
        scales = [torch.full((1, len(k), 1), float("nan"), device=place) for _ in range(2)]
        rows = k.to(place)
        launcher(rows, rows, *caches, *scales, torch.arange(len(k), device=place))
        backs.append((caches[0].float()[0] * scales[0][0, ..., None]).cpu())
    return backs


@pytest.mark.parametrize("dtype8", [*FP8, torch.int8], ids=["e4m3", "e5m2", "int8"])
def test_a_row_too_small_for_a_scale_of_its_own_is_stored_as_zeros(dtype8, device):
    smallest = [0.0, 1e-45, 3e-43, 1e-38, 2.0**-100, 2.0**-99]
    k = torch.zeros(len(smallest), 1, 16)
    k[:, 0, 3] = torch.tensor(smallest)
    for back in read_back(k, dtype8, device):
        assert torch.equal(back[:-1], torch.zeros_like(back[:-1]))
        torch.testing.assert_close(back[-1], k[-1], rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype8", [*FP8, torch.int8], ids=["e4m3", "e5m2", "int8"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, of the interpreter: that is the case
def test_what_is_not_finite_is_not_hidden_by_quantising(bad, dtype8, device):
    k = torch.randn(3, 1, 16)
    k[1, 0, 5] = bad
    for back in read_back(k, dtype8, device):
        assert not back[1].isfinite().any()
        assert back[[0, 2]].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_one_scale_for_the_pool_saturates_infinities_and_keeps_nan(device):
    k = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0]).view(4, 1, 1).repeat(1, 1, 16).to(device)
    # e5m2 alone: in the interpreter a cast to e4m3 loses NaN
    caches = [pool(1, 4, 1, 16, torch.float8_e5m2).to(device) for _ in range(2)]
    one = torch.ones(1, device=device)
    scatter_quantised.scatter_quantised(k, k, *caches, one, one, torch.arange(4, device=device))
    rows = caches[0].float()[0, :, 0, 0].cpu()
    assert rows[0].isnan()
    assert rows[1:].tolist() == [57344.0, -57344.0, 1.0]


@pytest.mark.parametrize("dtype8", FP8, ids=["e4m3", "e5m2"])
def test_fp8_saturates_and_rounds_to_even_over_its_whole_range(dtype8, device):
    every = torch.arange(256, dtype=torch.uint8).view(dtype8).float()
    every = every[every.isfinite()].sort().values
    between = (every[1:] + every[:-1]) / 2
    values = torch.cat([every, between, torch.nextafter(between, every[1:]), torch.tensor([1e6, -1e6])])
    k = torch.nn.functional.pad(values, (0, -len(values) % 64)).view(-1, 1, 64)
    caches = [pool(len(k), 1, 1, 64, dtype8).to(device) for _ in range(2)]
    one = torch.ones(1, device=device)
    k = k.to(device)
    scatter_quantised.scatter_quantised(k, k, *caches, one, one, torch.arange(len(k), device=device))
    largest = torch.finfo(dtype8).max
    assert torch.equal(caches[0].float().view(-1), k.clamp(-largest, largest).to(dtype8).float().view(-1))


@pytest.mark.parametrize("dtype8", [*FP8, torch.int8], ids=["e4m3", "e5m2", "int8"])
@pytest.mark.parametrize("scales", ["tensor", "token"])
def test_attention_over_a_quantised_pool_gives_the_reference(dtype8, scales, dtype, make_case, agree, device):
    if dtype8 == torch.int8 and scales == "tensor":
        pytest.skip("int8 takes scales per token and head")
    case = make_case([1, 4], [50, 33], block_size=24, dim=80, dim_v=64)
    k_cache, v_cache = case.k_cache, case.v_cache
    blocks, slots = k_cache[:, :, 0, 0].isfinite().nonzero(as_tuple=True)
    quantised = [pool(*k_cache.shape, dtype8), pool(*v_cache.shape, dtype8)]
    if scales == "token":
        s = [torch.full(k_cache.shape[:3], float("nan")) for _ in range(2)]
    else:
        s = [torch.tensor([0.25]), torch.tensor([4.0])]
    k, v = k_cache[blocks, slots], v_cache[blocks, slots]
    naive.scatter_quantised(k, v, *quantised, *s, blocks * 24 + slots)
    case.q, case.k_cache, case.v_cache = case.q.to(dtype), *quantised
    options = {"k_scale": s[0], "v_scale": s[1]}
    moved = {name: t.to(device) for name, t in options.items()}
    actual = varlen.attention(*case.args(device), return_lse=True, validate=True, **moved)
    agree(actual, attention_naive.attention(*case.args(), return_lse=True, **options), dtype)


def test_what_is_written_is_what_attention_reads(make_case, agree, device):
    case = make_case([3, 1], [20, 9], block_size=8)
    written, expected = (
        make_case([3, 1], [20, 9], block_size=8),
        attention_naive.attention(*case.args(), return_lse=True),
    )
    blocks, slots = case.k_cache[:, :, 0, 0].isfinite().nonzero(as_tuple=True)
    written.k_cache.fill_(float("nan"))
    written.v_cache.fill_(float("nan"))
    args = written.args(device)
    tokens = [t[blocks, slots].to(device) for t in (case.k_cache, case.v_cache)]
    scatter.scatter(*tokens, args[1], args[2], (blocks * 8 + slots).to(device), validate=True)
    agree(varlen.attention(*args, return_lse=True), expected)


@pytest.mark.parametrize(
    ("reference", "launcher"),
    [
        (naive.scatter, scatter.scatter),
        (naive.rope_scatter, rope_scatter.rope_scatter),
        (naive.scatter_quantised, scatter_quantised.scatter_quantised),
    ],
)
def test_the_reference_has_the_launchers_name_and_argument_order(reference, launcher):
    names = list(inspect.signature(reference).parameters)
    assert reference.__name__ == launcher.__name__
    assert list(inspect.signature(launcher).parameters)[: len(names)] == names
