"""The infinite cache against prefixes spelled out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.tokens import PackedTokens, TokenIds, TraceTokens
from experiments.ceiling import InfiniteCache

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=10)
PROMPTS = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a"]),
        st.builds(PackedTokens.of, IDS) | st.builds(lambda ids: TraceTokens(ids, 4 * len(ids) - 1, 4), IDS),
    ),
    max_size=12,
)


@given(PROMPTS, st.integers(1, 8))
def test_hits_and_size_are_those_of_a_set_of_prefixes(prompts: list[tuple[bytes, TokenIds]], block_size: int) -> None:
    cache, seen = InfiniteCache(), set[tuple[object, ...]]()
    for root, tokens in prompts:
        contents = tokens.contents(block_size)
        prefixes = [(root, *contents[: i + 1]) for i in range(len(contents))]
        expected = next((i for i, prefix in enumerate(prefixes) if prefix not in seen), len(prefixes))
        assert cache.observe(root, tokens, block_size) == expected
        seen.update(prefixes)
        assert len(cache) == len(seen)
