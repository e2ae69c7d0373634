"""The tree of prefixes against a plain list of all earlier prompts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.prefix_tree import PrefixTree
from cache.tokens import PackedTokens, TokenIds, TraceTokens

PROMPTS = st.lists(
    st.builds(
        lambda base, length, tail: base[:length] + tail,
        st.sampled_from([[0] * 20, [0, 1] * 10, [0, 0, 1, 1] * 5]),
        st.integers(1, 20),
        st.lists(st.integers(0, 1), max_size=3),
    ),
    min_size=1,
    max_size=25,
)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def check(prompts: list[TokenIds], size: int) -> None:
    tree, seen = PrefixTree(size), list[list[int]]()
    numbers: dict[tuple[int, ...], int] = {}
    last: dict[tuple[int, ...], int] = {}
    for index, prompt in enumerate(prompts):
        tokens = prompt.tolist()
        prefixes = [tuple(tokens[:end]) for end in range(size, len(tokens) + 1, size)]
        longest = max((common(tokens, other) for other in seen), default=0)
        walk = tree.walk(prompt.segments(size), index, prompt.tail(size))
        known = sum(prefix in last for prefix in prefixes)
        assert walk.num_known == known
        assert walk.num_known * size + walk.num_shared == longest
        spelled = [(node.first + i, stamp) for node, stamp in walk.runs for i in range(node.length)]
        assert spelled == [(numbers[prefix], last[prefix]) for prefix in prefixes[:known]]
        numbers.update({prefix: len(numbers) + i for i, prefix in enumerate(prefixes[known:])})
        last.update(dict.fromkeys(prefixes, index))
        seen.append(tokens)
    assert tree.num_prefixes == len(last)
    assert sorted(numbers.values()) == list(range(len(last)))
    laid_out = {}
    for node in tree.nodes():
        for i in range(node.length):
            laid_out[node.first + i] = (node.depth + i + 1, node.stamp)
    assert laid_out == {numbers[prefix]: (len(prefix) // size, last[prefix]) for prefix in last}


@settings(max_examples=150, deadline=None)
@given(prompts=PROMPTS, size=st.integers(1, 5))
def test_the_known_part_and_the_shared_tokens_are_those_of_the_closest_earlier_prompt(
    prompts: list[list[int]], size: int
) -> None:
    check([PackedTokens.of(prompt) for prompt in prompts], size)


@settings(max_examples=150, deadline=None)
@given(prompts=PROMPTS, size=st.sampled_from([1, 2, 3, 4, 6, 8, 12]), cut=st.integers(0, 3))
def test_prompts_of_a_block_trace_are_told_apart_as_their_tokens_are(
    prompts: list[list[int]], size: int, cut: int
) -> None:
    unit = 4
    check([TraceTokens(ids, len(ids) * unit - cut, unit) for ids in prompts], size)


@pytest.mark.parametrize(("size", "unit"), [(4, 4), (2, 4), (8, 4), (3, 4)])
def test_a_longer_prompt_shares_the_partly_filled_last_block_of_a_shorter_one(size: int, unit: int) -> None:
    tree = PrefixTree(size)
    short, long = TraceTokens([7, 8, 9], 2 * unit + 1, unit), TraceTokens([7, 8, 9, 5], 3 * unit + 2, unit)
    tree.walk(short.segments(size), 0, short.tail(size))
    walk = tree.walk(long.segments(size), 1, long.tail(size))
    assert walk.num_known * size + walk.num_shared == 2 * unit + 1


def test_packed_tokens_and_trace_ids_may_meet_at_one_branch() -> None:
    tree = PrefixTree(4)
    for index, prompt in enumerate(
        [PackedTokens.of(range(6)), TraceTokens([1, 2], 6, 4), PackedTokens.of([0, 1, 9, 9])]
    ):
        walk = tree.walk(prompt.segments(4), index, prompt.tail(4))
    assert (walk.num_known, walk.num_shared) == (0, 2)
