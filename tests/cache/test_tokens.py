"""Both encodings of token ids tell blocks apart exactly as the ids do."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.tokens import INT32_MAX, PackedTokens, TraceTokens, pack, unpack

ids32 = st.lists(st.integers(0, INT32_MAX), max_size=40)


@given(ids32)
def test_packing_is_little_endian_int32_and_reversible(ids):
    assert pack(ids) == struct.pack(f"<{len(ids)}i", *ids)
    assert unpack(pack(ids)) == ids == PackedTokens.of(ids).tolist()


@pytest.mark.parametrize("bad", [-1, 2**31, 2**32, 2**32 + 5, 2**70])
def test_ids_outside_int32_are_refused_and_never_wrap(bad):
    with pytest.raises(ValueError, match="int32"):
        PackedTokens.of([1, bad, 2])


def test_bytes_that_are_no_whole_ids_are_refused():
    with pytest.raises(ValueError, match="4 bytes"):
        PackedTokens(b"12345")


@given(ids32, st.integers(1, 9))
def test_packed_contents_are_the_full_blocks(ids, block_size):
    blocks = [ids[i : i + block_size] for i in range(0, len(ids) - block_size + 1, block_size)]
    assert [unpack(content) for content in PackedTokens.of(ids).contents(block_size)] == blocks


@st.composite
def traces(draw):
    """Two sequences over few ids, so that equal blocks are common, of one unit."""
    unit = draw(st.integers(1, 12))
    ids = st.lists(st.integers(0, 3), min_size=1, max_size=8)

    def sequence():
        named = draw(ids)
        return TraceTokens(named, len(named) * unit - draw(st.integers(0, unit - 1)), unit)

    return sequence(), sequence()


@given(traces(), st.integers(1, 30))
def test_trace_contents_are_equal_exactly_where_the_made_up_tokens_are(pair, block_size):
    # Dividing, divided by, and coprime to the unit are all among the block sizes.
    lazy = [content for tokens in pair for content in tokens.contents(block_size)]
    real = [content for tokens in pair for content in PackedTokens(tokens.packed()).contents(block_size)]
    assert len(lazy) == len(real)
    for i in range(len(lazy)):
        for j in range(len(lazy)):
            assert (lazy[i] == lazy[j]) == (real[i] == real[j])
            assert lazy[i] != lazy[j] or hash(lazy[i]) == hash(lazy[j])


@given(traces(), st.integers(1, 30))
def test_packed_contents_of_one_width_are_equal_exactly_where_contents_are(
    pair: tuple[TraceTokens, TraceTokens], block_size: int
) -> None:
    plain = [PackedTokens(tokens.packed()) for tokens in pair]
    pieces = []
    for tokens in (*pair, *plain):
        data, width = tokens.packed_contents(block_size)
        num_full = len(tokens) // block_size
        assert len(data) >= num_full * width
        cut = [data[i * width : (i + 1) * width] for i in range(num_full)]
        pieces += zip(cut, tokens.contents(block_size), strict=True)
    for a, content in pieces:
        for b, other in pieces:
            assert (a == b) == (content == other)


@given(traces(), st.integers(1, 30), st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_contents_of_some_blocks_are_a_slice_of_all(pair, block_size, start, stop, packed):
    tokens = PackedTokens(pair[0].packed()) if packed else pair[0]
    assert tokens.contents(block_size, start, stop) == tokens.contents(block_size)[start:stop]
    assert tokens.contents(block_size, start) == tokens.contents(block_size)[start:]


@given(traces(), st.integers(0, 40), st.integers(0, 40))
def test_a_slice_of_packed_tokens_is_a_slice_of_the_tokens(pair, start, stop):
    tokens = pair[0]
    start = min(start, len(tokens))
    stop = min(max(start, stop), len(tokens))
    assert unpack(tokens.packed(start, stop)) == tokens.tolist()[start:stop]
    assert len(tokens.tolist()) == len(tokens)


@pytest.mark.parametrize("kind", [list, tuple, lambda ids: range(ids[0], ids[-1] + 1)], ids=["list", "tuple", "range"])
@pytest.mark.parametrize("block_size", [2, 4, 8, 6])
def test_any_sequence_of_ids_will_do(kind, block_size):
    tokens = TraceTokens(kind([3, 4, 5]), 11, 4)
    expected = TraceTokens([3, 4, 5], 11, 4)
    assert list(tokens.contents(block_size)) == list(expected.contents(block_size))
    assert tokens.packed() == expected.packed()


@pytest.mark.parametrize(("num_ids", "num_tokens"), [(0, 1), (1, 0), (2, 16), (1, 17), (3, 32)])
def test_a_count_of_ids_that_contradicts_the_tokens_is_refused(num_ids, num_tokens):
    with pytest.raises(ValueError, match="ids of 16 tokens"):
        TraceTokens([0] * num_ids, num_tokens, 16)


def test_block_ids_are_refused_where_their_tokens_would_leave_int32():
    assert TraceTokens([2**27 - 1], 16, 16).tolist()[-1] == INT32_MAX
    for bad in (2**27, -1, 2**70):
        with pytest.raises(ValueError, match="int32"):
            TraceTokens([bad], 16, 16)


def test_no_tokens_have_no_blocks():
    for tokens in (PackedTokens.of([]), TraceTokens([], 0, 16)):
        assert len(tokens) == 0
        assert list(tokens.contents(16)) == []
        assert tokens.packed() == b""


traces = st.builds(
    lambda ids, unit, cut: TraceTokens(ids, max(len(ids) * unit - cut % unit, 0), unit),
    st.lists(st.integers(0, 20), min_size=1, max_size=5),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(0, 15),
)


@given(traces, traces, st.sampled_from([1, 2, 3, 4, 8, 16]))
def test_contents_are_never_equal_where_tokens_differ_whatever_the_units(
    a: TraceTokens, b: TraceTokens, block_size: int
) -> None:
    for mine, mine_tokens in zip(a.contents(block_size), PackedTokens(a.packed()).contents(block_size), strict=True):
        for its, its_tokens in zip(b.contents(block_size), PackedTokens(b.packed()).contents(block_size), strict=True):
            if mine == its:
                assert mine_tokens == its_tokens


@pytest.mark.parametrize(("num_tokens", "unit"), [(-5, 16), (0, 0), (16, -1)])
def test_a_trace_of_no_size_is_refused(num_tokens: int, unit: int) -> None:
    with pytest.raises(ValueError, match="0 or more tokens in units of 1 or more"):
        TraceTokens([], num_tokens, unit)


def test_packed_bytes_with_a_sign_bit_are_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        PackedTokens(bytes(4) + b"\xff\xff\xff\xff")
