"""Ghosts in batches are those of a list in which every key stands with its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.evictor.contract import held
from cache.evictor.ghosts import Ghosts

KEYS = st.lists(st.integers(0, 9), max_size=8, unique=True)
LIMIT = st.integers(0, 12)
STEP = st.tuples(st.sampled_from(["remember", "remember all", "recall", "recall all", "shrink"]), KEYS, LIMIT)


class Listed:
    """What `Ghosts` says it is, key by key."""

    def __init__(self) -> None:
        self.listed: list[tuple[int, int]] = []

    def recall(self, key: int) -> int | None:
        known = dict(self.listed).get(key)
        self.listed = [(other, memory) for other, memory in self.listed if other != key]
        return known

    def remember(self, key: int, memory: int, limit: int) -> None:
        self.recall(key)
        self.listed.append((key, memory))
        self.shrink(limit)

    def shrink(self, limit: int) -> None:
        del self.listed[: max(len(self.listed) - limit, 0)]


@given(st.lists(STEP, max_size=40))
def test_whatever_is_remembered_and_recalled_the_same_is_known_in_the_same_order(
    steps: list[tuple[str, list[int], int]],
) -> None:
    ghosts, model = Ghosts[int](), Listed()
    for number, (step, keys, limit) in enumerate(steps):
        memory = number // 3
        assert ghosts.knows_none_of(keys) == (not any(key in ghosts for key in keys))
        if step == "remember all":
            ghosts.remember_all(keys, memory, limit)
            for key in keys:
                model.remember(key, memory, limit)
            model.shrink(limit)  # where there were no keys
        elif step == "recall all":
            told: list[int | None] = []
            for stop, known in ghosts.recall_all(keys):
                told += [known] * (stop - len(told))
            assert told == [model.recall(key) for key in keys]
        elif step == "shrink":
            ghosts.shrink(limit)
            model.shrink(limit)
        for key in keys[:3]:
            if step == "remember":
                ghosts.remember(key, memory, limit)
                model.remember(key, memory, limit)
            elif step == "recall":
                assert ghosts.recall(key) == model.recall(key)
        assert list(ghosts.items()) == model.listed
        assert len(ghosts) == len(model.listed)


def test_what_is_recalled_again_and_again_is_not_held_for_ever() -> None:
    ghosts: Ghosts[int] = Ghosts()
    for i in range(2000):
        ghosts.remember_all([f"first {i % 40}", f"second {i % 40}"], i, 100)
        ghosts.recall(f"first {i % 40}")
    assert len(ghosts) == 40
    assert held(ghosts) < 1000


def test_keys_that_collide_within_a_chain_are_one_ghost() -> None:
    ghosts: Ghosts[int] = Ghosts()
    ghosts.remember_all([1, 2, 1, 3], 5, 10)
    assert list(ghosts.items()) == [(1, 5), (2, 5), (3, 5)]
    ghosts.shrink(1)
    assert list(ghosts.items()) == [(3, 5)]
