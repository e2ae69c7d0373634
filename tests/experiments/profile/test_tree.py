"""Common prefixes of a stream, against comparing every prompt with all before it."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from cache.tokens import pack
from experiments.profile.groups import groups, main_path
from experiments.profile.losses import Losses
from experiments.profile.tree import PrefixTree

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=30)


def common(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@given(PROMPTS, st.lists(st.sampled_from([b"", b"t"]), min_size=30, max_size=30))
def test_the_tree_finds_the_longest_common_prefix_and_the_latest_prompt_that_has_it(prompts, keys):
    tree = PrefixTree(1 << 40)
    for i, (prompt, key) in enumerate(zip(prompts, keys, strict=False)):
        shared = tree.add(pack(prompt), key)
        lengths = [common(prompt, earlier) if keys[j] == key else 0 for j, earlier in enumerate(prompts[:i])]
        best = max(lengths, default=0)
        assert shared.tokens == best
        if best:
            assert shared.partner == max(j for j, length in enumerate(lengths) if length == best)


@given(PROMPTS, st.integers(1, 5))
def test_one_number_per_prompt_tells_what_every_block_size_would_hit(prompts, size):
    tree, losses, seen = PrefixTree(1 << 40), Losses([size]), set()
    hits = 0
    for prompt in prompts:
        losses.add(len(prompt), tree.add(pack(prompt)).tokens)
        prefixes = [tuple(prompt[:end]) for end in range(size, len(prompt) + 1, size)]
        hits += min(sum(prefix in seen for prefix in prefixes), (len(prompt) - 1) // size) * size
        seen.update(prefixes)
    (row,) = losses.rows()
    assert round(row["token_hit_rate"] * sum(map(len, prompts))) == hits
    assert row["lost_tokens"] == losses.shared_tokens - hits
    assert row["tail_tokens"] == sum(len(prompt) % size for prompt in prompts)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=40), min_size=50, max_size=120))
def test_the_tree_never_outgrows_its_budget_and_keeps_what_is_asked_for_often(prompts):
    tree = PrefixTree(6_000)
    system = [99] * 64
    for index, prompt in enumerate(prompts):
        shared = tree.add(pack(system + prompt))
        assert tree.used <= tree.budget
        assert index == 0 or shared.tokens >= len(system)
    assert tree.used == sum(320 + len(node.run) for node in tree.nodes())


def test_the_path_follows_the_majority_and_tells_who_parts_where():
    tree = PrefixTree(1 << 40)
    for prompt in ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 5], [1, 7], [1, 2]):
        tree.add(pack(prompt))
    path = main_path(tree, 64)
    assert [(step.token, step.prompts) for step in path] == [(1, 5), (2, 4), (3, 3), (5, 2)]
    assert [step.others for step in path] == [[], [(7, 1)], [], [(4, 1)]]
    assert [step.ended for step in path] == [0, 0, 1, 0]


def test_groups_are_told_with_how_far_they_share():
    tree = PrefixTree(1 << 40)
    head, shop, bank = [1] * 20, [2] * 30, [3] * 40
    for i in range(60):
        tree.add(pack(head + (shop if i % 3 else bank) + [1000 + i]))
    found = [(g.level, g.prompts, g.shared_tokens, g.forks) for g in groups(tree)]
    assert found == [(0, 60, 20, 2), (1, 40, 50, 40), (1, 20, 60, 20)]
