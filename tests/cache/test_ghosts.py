"""Ghosts remembered all at once are those remembered one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.evictor.ghosts import Ghosts

KEYS = st.lists(st.integers(0, 9), max_size=8, unique=True)


@given(st.lists(st.tuples(KEYS, st.integers(0, 6)), max_size=6))
def test_many_keys_at_once_are_remembered_in_the_order_and_number_of_single_ones(
    batches: list[tuple[list[int], int]],
) -> None:
    together: Ghosts[int] = Ghosts()
    single: Ghosts[int] = Ghosts()
    for number, (keys, limit) in enumerate(batches):
        assert together.knows_none_of(keys) == (not any(key in single for key in keys))
        together.remember_all(keys, number, limit)
        for key in keys:
            single.remember(key, number, limit)
        single.shrink(limit)  # where there were no keys
        assert list(together._memory.items()) == list(single._memory.items())
