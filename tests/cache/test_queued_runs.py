"""Queues of pieces hold what queues of blocks hold, in the same order, with the same marks, after every step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import build, options
from support.replays import drawn_prompts
from support.twins import Twins

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.errors import PolicyError
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.run import Run, walk
from cache.sequence import Sequence
from cache.tokens import PackedTokens

QUEUED = [name for name in options("evictor") if isinstance(build("evictor", name).by_run(), QueuedRuns)]


def pieces(queue: PieceQueue) -> Iterator[Piece]:
    """Oldest first, checking the links on the way."""
    piece = queue.oldest
    while piece is not None:
        assert piece.queue is queue
        assert piece.start < piece.stop
        assert piece.older.younger is piece.younger.older is piece
        yield piece
        piece = None if piece is queue.youngest else piece.younger


def order(queue: PieceQueue) -> list[int]:
    """Block ids, oldest first."""
    blocks: list[int] = []
    for piece in pieces(queue):
        depth = piece.run.depth
        blocks += reversed(piece.run.blocks[piece.start - depth : piece.stop - depth])
    assert len(blocks) == len(queue)
    return blocks


def marks(policy: QueuedRuns) -> dict[int, int]:
    """What is marked, by block."""
    return {
        block: piece.mark
        for queue in policy.queues
        for piece in pieces(queue)
        for block in piece.run.blocks[piece.start - piece.run.depth : piece.stop - piece.run.depth]
        if piece.mark
    }


def together(events: dict[int, int]) -> list[set[int]]:
    """The blocks of each event, the events in their order."""
    return [{block for block in events if events[block] == event} for event in sorted(set(events.values()))]


def check(chain: HashChain, tree: Radix) -> None:
    """The queues of both, and that the pieces of every run of the tree cover it from end to end."""
    by_block: Any = chain.evictor
    policy: Any = tree._policy
    assert [order(queue) for queue in policy.queues] == [list(queue.blocks) for queue in by_block.queues]
    assert policy.capacity == by_block.capacity
    for name in ("hits", "counts"):
        if hasattr(by_block, name):
            assert marks(policy) == {block: mark for block, mark in getattr(by_block, name).items() if mark}
    if hasattr(by_block, "visited"):
        assert set(marks(policy)) == by_block.visited
    if hasattr(by_block, "target"):
        assert policy.target == by_block.target
    if hasattr(by_block, "last"):
        assert together(marks(policy)) == together(by_block.last), "events are numbered differently, in one order"
    for run in walk(tree._roots):
        edges = [run.depth, *(piece.stop for piece in run.rank)]
        assert [piece.start for piece in run.rank] == edges[:-1]
        assert edges[-1] == run.depth + len(run.blocks)
        assert all(piece.run is run for piece in run.rank)


@pytest.mark.parametrize("name", QUEUED)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), num_blocks=st.integers(4, 40), block_size=st.integers(1, 3))
def test_pieces_stand_where_their_blocks_would(name: str, seed: int, num_blocks: int, block_size: int) -> None:
    draw = random.Random(seed)
    prompts = [PackedTokens.of(prompt) for prompt in drawn_prompts(seed)]
    chain = HashChain(num_blocks, block_size, BuiltinHash(), build("evictor", name))
    tree = Radix(num_blocks, block_size, BuiltinHash(), build("evictor", name))
    pair = Twins(chain, tree)
    for _ in range(150):
        pair.step(draw, lambda draw: draw.choice(prompts))
        pair.compare()
        check(chain, tree)


@pytest.mark.parametrize("name", QUEUED)
def test_a_chain_that_grows_block_by_block_stays_one_run_of_few_pieces_once_it_is_hit(name: str) -> None:
    tree = Radix(64, 4, BuiltinHash(), build("evictor", name))
    cache = CacheManager(tree)
    seq = Sequence(PackedTokens.of(range(10)), Access(0))
    cache.allocate(seq)
    cache.promote_to_immutable(seq, 10)
    for token in range(10, 100):
        cache.append(seq, [token])
        cache.promote_to_immutable(seq, token + 1)
    cache.free(seq)
    (run,) = walk(tree._roots)
    assert len(run.blocks) == 25
    assert len(run.rank) >= 24, "every block entered by itself"
    assert cache.allocate(Sequence(PackedTokens.of(range(101)), Access(1))) == 100
    assert len(run.rank) == FEW.get(name, 24), "one per queue; what a FIFO holds keeps its place"


FEW = {"arc": 1, "lirs": 1, "slru": 2, "w_tinylfu": 3}


class Halves(QueuedRuns):
    """Two FIFOs; a hit in the first leads to the second, and what is hit there stays."""

    def __init__(self) -> None:
        super().__init__(2)
        self.into = {self.queues[0]: self.queues[1]}

    def admit(self, keys: object, access: Access) -> PieceQueue:
        return self.queues[0]

    def touch(self, run: Run, stamp: int) -> None:
        self.renew_by(self.into, run, stamp)

    def choose(self, most: int) -> tuple[Run | None, int]:
        run = self.queues[0].first_candidate() or self.queues[1].first_candidate()
        return run, 1 if run else 0


def grown(policy: QueuedRuns, *lengths: int) -> Run:
    """A run whose blocks 0, 1, … came in so many at a time."""
    whole = Run(None, b"", 1, [], 0, 1, 0)
    for length in lengths:
        depth = len(whole.blocks)
        more = Run(None, b"." * length, 1, list(range(depth, depth + length)), depth, 1, 0)
        policy.inserted([more], Access(0), [])
        if depth:
            policy.join(whole, more)
            whole.join(more)
        else:
            whole = more
    return whole


def test_pieces_that_move_together_become_one_and_others_keep_their_place() -> None:
    policy = Halves()
    first, second = policy.queues
    run = grown(policy, 2, 3, 1)
    policy.spill(first, 4, second)  # the oldest are those that came first
    assert (order(first), order(second)) == ([4, 3, 2, 5], [1, 0])
    policy.accessed([run], Access(1))
    assert (order(first), order(second)) == ([], [1, 0, 5, 4, 3, 2])
    assert [(piece.start, piece.stop) for piece in run.rank] == [(0, 2), (2, 6)]


def test_what_overflows_is_cut_off_the_deep_end_and_a_candidate_may_leave_from_where_it_went() -> None:
    policy = Halves()
    first, second = policy.queues
    run = grown(policy, 5)
    policy.evictable(run)
    policy.spill(first, 3, second)
    assert (order(first), order(second)) == ([2, 1, 0], [4, 3])
    assert first.first_candidate() is None
    assert second.first_candidate() is run
    chosen: list[int] = []

    def trim(run: Run, count: int) -> Run | None:
        chosen.extend(reversed(run.trim(count)))
        return run if run.blocks else None

    policy.victims(5, trim)
    assert chosen == [4, 3, 2, 1, 0]
    assert policy.candidates() == set()


def test_a_run_told_of_twice_is_refused() -> None:
    policy = Halves()
    run = grown(policy, 2)
    with pytest.raises(PolicyError, match="inserted twice"):
        policy.inserted([run], Access(1), [])
