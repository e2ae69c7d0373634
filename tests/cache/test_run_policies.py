"""Policies over whole runs choose what they choose block by block, and refuse the same misuse."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conf import build, options
from support.twins import hinted

from cache.access import Access, Retention
from cache.allocator.radix import Radix
from cache.errors import PolicyError
from cache.evictor.block_by_block import BlockByBlock
from cache.evictor.contract import held
from cache.evictor.runs import RunPolicy
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.run import Run
from cache.sequence import Sequence
from cache.tokens import PackedTokens

BY_RUN = [name for name in options("evictor") if build("evictor", name).by_run() is not None]


@cache
def future() -> Future:
    """Of all requests that a test may make: three chains in turn."""
    return Future((b"", [depth % 5 + i % 3 for depth in range(12)], 12 if i < 3 else 4) for i in range(6000))


def policies(name: str) -> list[RunPolicy]:
    by_run, by_block = build("evictor", name), build("evictor", name)
    for evictor in (by_run, by_block):
        evictor.foresee(future())
    return [by_run.by_run(), BlockByBlock(by_block)]


def leaf(blocks: list[int], depth: int) -> Run:
    return Run(None, b"." * len(blocks), 1, blocks, depth, 0, 0)


def insert(policy: RunPolicy, run: Run, access: Access) -> None:
    """Tell of a new run as the allocator does: it holds its keys."""
    run.keys = [f"key {block}" for block in run.blocks]
    policy.inserted([run], access, run.keys[:])


def victims(policy: RunPolicy, shapes: list[tuple[int, int, int, int]], count: int) -> list[int]:
    """Block ids in the order of choice, among leaves of (request, depth, length, further accesses)."""
    told: list[int] = []

    def trim(run: Run, gone: int) -> Run | None:
        told.extend(reversed(run.trim(gone)))
        return run if run.blocks else None

    first = 0
    for request, depth, length, accesses in shapes:
        run = leaf(list(range(first, first + length)), depth)
        first += length
        insert(policy, run, hinted(request, 40))
        for more in range(accesses):
            policy.accessed([run], hinted(request + more, 40))
        policy.evictable(run)
    return policy.victims(min(count, first), trim) or told


SHAPES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=6
)


@pytest.mark.parametrize("name", BY_RUN)
@given(shapes=SHAPES, count=st.integers(1, 30))
def test_runs_of_one_request_and_of_many_go_in_the_order_in_which_their_blocks_would(
    name: str, shapes: list[tuple[int, int, int, int]], count: int
) -> None:
    by_run, by_block = (victims(policy, shapes, count) for policy in policies(name))
    assert by_run == by_block


@pytest.mark.parametrize("which", [0, 1], ids=["by-run", "by-block"])
@pytest.mark.parametrize("name", BY_RUN)
class TestMisuse:
    def test_a_candidate_twice_or_a_pin_of_none_is_refused(self, name: str, which: int) -> None:
        policy, run, other = policies(name)[which], leaf([3, 4], 0), leaf([5], 0)
        for one in (run, other):
            insert(policy, one, Access(0))
        policy.evictable(run)
        with pytest.raises(PolicyError, match="twice"):
            policy.evictable(run)
        with pytest.raises(PolicyError, match="no candidate"):
            policy.pinned(other)
        assert policy.candidates() == {4}

    def test_no_candidate_is_no_victim(self, name: str, which: int) -> None:
        with pytest.raises(PolicyError, match="no candidate"):
            policies(name)[which].victims(1, lambda run, count: None)

    def test_a_removed_run_is_never_chosen(self, name: str, which: int) -> None:
        policy, runs = policies(name)[which], [leaf([block], 0) for block in (3, 5, 7)]
        for run in runs:
            insert(policy, run, Access(0))
            policy.evictable(run)
        policy.removed(runs[1])
        chosen: list[Run] = []
        policy.victims(2, lambda run, count: chosen.append(run))
        assert {id(run) for run in chosen} == {id(runs[0]), id(runs[2])}
        assert policy.candidates() == set()


@pytest.mark.parametrize("name", BY_RUN)
def test_a_subclass_is_told_block_by_block_unless_it_says_how_it_works_on_runs(name: str) -> None:
    evictor = build("evictor", name)
    evictor.__class__ = type("Changed", (type(evictor),), {})
    assert evictor.by_run() is None


@pytest.mark.parametrize("name", BY_RUN)
def test_what_it_remembers_is_bounded_however_often_runs_are_used(name: str) -> None:
    policy = policies(name)[0]
    runs = [leaf([i], 0) for i in range(16)]
    half, for_long = 0, (Retention(0, None, 50, 1e6),)
    for i, run in enumerate(runs):
        insert(policy, run, Access(i))
        policy.evictable(run)
    for i in range(16, 6000):
        run = runs[i % 16]
        policy.pinned(run)
        policy.accessed([run], Access(i, float(i), retention=for_long))
        policy.evictable(run)
        if i == 3000:
            half = held(policy)
    assert policy.candidates() == set(range(16))
    assert held(policy) < half + 40 * 16


@pytest.mark.parametrize("name", BY_RUN)
def test_what_has_left_is_forgotten_whatever_became_of_the_runs_it_was_in(name: str) -> None:
    evictor = build("evictor", name)
    evictor.foresee(Future((b"", [*range(4), *[i] * 8], 12) for i in range(1200)))
    cache, sizes = CacheManager(Radix(40, 1, BuiltinHash(), evictor)), []
    for i in range(1200):
        about = Access(i, float(i), 12, session=str(i), category="abc"[i % 3], retention=(Retention(0, 6, 50, 9.0),))
        seq = Sequence(PackedTokens.of([*range(4), *[i] * 8]), about)
        cache.allocate(seq)
        for stop in (6, 9, 12):  # grows a run, and splits what it shares
            cache.promote_to_immutable(seq, stop)
        cache.free(seq)
        if i % 300 == 299:
            sizes.append(held(cache.allocator._policy))  # type: ignore[attr-defined]
    assert sizes[-1] < 1.5 * sizes[0] + 200, sizes
