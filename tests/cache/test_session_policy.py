"""What a newer turn left behind goes first, wherever it left; a session that owns nothing is forgotten."""

from __future__ import annotations

import pytest
from support.conf import SHARING, sharing_allocator

from cache.access import Access
from cache.evictor.contract import held
from cache.evictor.session import Session
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens

pytestmark = pytest.mark.parametrize("allocator", SHARING)
Turn = tuple[str | None, list[int]]


def serve(cache: CacheManager, index: int, turn: Turn) -> Sequence:
    seq = Sequence(PackedTokens.of(turn[1]), Access(index, float(index), session=turn[0]))
    cache.allocate(seq)
    cache.promote_to_immutable(seq, seq.num_tokens)
    cache.free(seq)
    return seq


def resident(allocator: str, num_blocks: int, turns: list[Turn], asked: list[list[int]]) -> list[int]:
    """How many blocks, of one token each, each of these prompts would find after these turns."""
    cache = CacheManager(sharing_allocator(allocator, num_blocks, 1, evictor=Session()))
    for i, turn in enumerate(turns):
        serve(cache, i, turn)
    return [len(cache.allocator.find(prepared(cache, ids), len(ids)).blocks) for ids in asked]  # type: ignore[attr-defined]


def prepared(cache: CacheManager, ids: list[int]) -> Sequence:
    seq = Sequence(PackedTokens.of([*ids, 0]), Access(99))
    cache.can_allocate(seq)
    return seq


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_branch_that_a_newer_turn_left_goes_first_however_much_they_share(allocator: str, kept: int) -> None:
    shared = list(range(1, 1 + kept))
    left, taken = [*shared, *[11] * (6 - kept)], [*shared, *[12] * (6 - kept)]
    others = [31, 32, 33, 34]
    asked = [left, others, taken]
    turns: list[Turn] = [("a", others), ("s", left), ("s", taken)]
    room = 16 - kept
    assert resident(allocator, room, turns, asked) == [6, 4, 6], "there is room for all"
    found = resident(allocator, room, [*turns, ("b", [51, 52])], asked)
    assert found == [4, 4, 6], "the branch that was left goes, though others were used longer ago"


def test_a_branch_that_another_session_used_too_is_not_superseded(allocator: str) -> None:
    left, taken, others = [1, 11, 11, 11], [1, 12, 12, 12], [31, 32, 33, 34]
    turns: list[Turn] = [("a", others), ("s", left), ("t", left), ("s", taken), ("b", [51, 52])]
    assert resident(allocator, 11, turns, [left, others]) == [4, 2]


def test_sessions_without_blocks_of_their_own_leave_no_trace(allocator: str) -> None:
    policy = Session()
    cache = CacheManager(sharing_allocator(allocator, 16, 1, evictor=policy))
    by_run = policy if allocator == "hash_chain" else cache.allocator._policy  # type: ignore[attr-defined]
    sizes = []
    for i in range(400):
        serve(cache, i, (f"session {i}", [1, 2, 3, 4]))
        sizes.append(held(by_run))
    assert sizes[-1] <= sizes[10] + 100, (sizes[10], sizes[-1])
