"""`radix` against `hash_chain`: not to be told apart by anything but the clock, and its cost is per run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Items
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.conf import ONLINE_EVICTORS, build, options
from support.replays import drawn_prompts
from support.twins import EXTRAS, Twins

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.errors import MisuseError
from cache.evictor.base import Evictor
from cache.evictor.lru import Lru
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.run import walk
from cache.sequence import Sequence
from cache.tokens import PackedTokens, TokenIds, TraceTokens

NUM_BY_RUN = sum(build("evictor", name).by_run() is not None for name in ONLINE_EVICTORS)
BASES = [[0] * 40, [0, 1] * 20, [0, 0, 1, 1] * 10]


def packed(draw: random.Random) -> TokenIds:
    """A prefix of one of three long prompts, mostly with a tail of its own."""
    base = draw.choice(BASES)[: draw.randrange(1, 40)]
    return PackedTokens.of(base + [draw.randrange(2) for _ in range(draw.randrange(5))])


def traced(draw: random.Random) -> TokenIds:
    """The same of a trace of 2-token units."""
    ids = draw.choice(BASES)[: draw.randrange(1, 16)] + [draw.randrange(4) for _ in range(draw.randrange(3))]
    return TraceTokens(ids, 2 * len(ids) - draw.randrange(2), 2)


def twins(make: Callable[[], Evictor], num_blocks: float, block_size: int) -> Twins:
    return Twins(
        HashChain(num_blocks, block_size, BuiltinHash(), make()), Radix(num_blocks, block_size, BuiltinHash(), make())
    )


@pytest.mark.parametrize("name", ONLINE_EVICTORS)
@pytest.mark.parametrize("prompt", [packed, traced])
def test_random_traffic_leaves_both_in_the_same_state_after_every_step(name: str, prompt: Any) -> None:
    """100,000 steps between the policies that think in runs, fewer for each that is told block by block."""
    draw = random.Random(f"{name} {prompt.__name__}")
    steps = 500 if build("evictor", name).by_run() is None else max(500, -(-100_000 // (8 * NUM_BY_RUN)))
    for block_size in (1, 2, 3, 4):
        pair = twins(lambda: build("evictor", name), draw.randrange(20, 40), block_size)
        for i in range(steps):
            pair.step(draw, prompt)
            pair.compare()
            if i % 100 == 0:
                pair.compare_every_block()


class TwinTraffic(RuleBasedStateMachine):
    """The same, driven by hypothesis, which shrinks what it finds."""

    @initialize(name=st.sampled_from(ONLINE_EVICTORS), num_blocks=st.integers(3, 14), block_size=st.integers(1, 4))
    def open(self, name: str, num_blocks: int, block_size: int) -> None:
        self.twins = twins(lambda: build("evictor", name), num_blocks, block_size)

    @rule(base=st.sampled_from(BASES), length=st.integers(1, 16), tail=st.lists(st.integers(0, 1), max_size=3),
          extra=st.sampled_from(EXTRAS), skip=st.booleans(), trace=st.booleans())  # fmt: skip
    def submit(self, base: list[int], length: int, tail: list[int], extra: Any, skip: bool, trace: bool) -> None:
        ids = base[:length] + tail
        tokens = TraceTokens(ids, 2 * len(ids) - 1, 2) if trace else PackedTokens.of(ids)
        self.twins.submit(tokens, extra, skip)
        self.twins.allocate(-1)

    @precondition(lambda self: self.twins.waiting)
    @rule(which=st.integers(0, 9))
    def allocate(self, which: int) -> None:
        self.twins.allocate(which)

    @precondition(lambda self: self.twins.live)
    @rule(which=st.integers(0, 9), do=st.sampled_from(["compute", "append", "fork", "truncate", "free", "preempt"]),
          share=st.floats(0, 1), tokens=st.lists(st.integers(0, 1), max_size=6))  # fmt: skip
    def work(self, which: int, do: str, share: float, tokens: list[int]) -> None:
        pair = self.twins.live[which % len(self.twins.live)]
        if do == "compute":
            self.twins.compute(pair, share)
        elif do == "append":
            self.twins.append(pair, tokens)
        elif do == "fork":
            self.twins.compute_to(pair, max(pair[0].num_computed_tokens, pair[0].num_tokens - len(tokens) % 2))
            self.twins.fork(pair, same_request=share < 0.3)
        elif do == "truncate":
            self.twins.truncate(pair, len(tokens))
        else:
            self.twins.free(pair, preempt=do == "preempt")

    @rule(version=st.sampled_from(["", "1"]))
    def new_weights(self, version: str) -> None:
        self.twins.new_weights(version)

    @rule()
    def reset(self) -> None:
        self.twins.reset()

    def check_invariants(self, *args: Any, **kwargs: Any) -> None:
        super().check_invariants(*args, **kwargs)
        if hasattr(self, "twins"):
            self.twins.compare()
            self.twins.compare_every_block()


def test_no_traffic_that_hypothesis_finds_tells_them_apart() -> None:
    run_state_machine_as_test(
        TwinTraffic,
        settings=settings(max_examples=80, stateful_step_count=40, deadline=None,
                          suppress_health_check=list(HealthCheck)),
    )  # fmt: skip


@pytest.mark.parametrize("name", options("evictor"))
@pytest.mark.parametrize("block_size", [1, 3])
def test_every_policy_evicts_the_same_blocks_in_the_same_order(name: str, block_size: int) -> None:
    for seed in range(6):
        prompts = [PackedTokens.of(prompt) for prompt in drawn_prompts(seed, count=120)]
        pair = twins(lambda: build("evictor", name), 24 + seed, block_size)
        for manager in pair.managers:
            evictor = manager.allocator.evictor
            assert evictor is not None
            evictor.foresee(
                Future((b"", t.contents(block_size), (len(t) - 1) // block_size) for t in prompts)  # all of them fit
            )
        for tokens in prompts:
            pair.submit(tokens, EXTRAS[0], skip_lookup=False)
            pair.allocate(-1)
            pair.compute(pair.live[0], 1.0)
            pair.free(pair.live[0], preempt=False)
            pair.compare()
            pair.compare_every_block()


class Listening(Lru):
    """Writes down the keys it is handed."""

    needs_keys = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[list[int], int, list[Hashable]]] = []

    def inserted(self, blocks: Items[int], depth: int, access: Access, keys: Items[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self.told.append((list(blocks), depth, list(keys)))


@pytest.mark.parametrize("prompt", [packed, traced])
def test_a_policy_that_asks_for_keys_is_handed_those_of_the_reference(prompt: Any) -> None:
    """Of every block, whichever requests computed what is before it, and however its run was split or joined."""
    draw = random.Random(prompt.__name__)
    for block_size in (1, 2, 3, 4):
        pair = twins(Listening, 30, block_size)
        for _ in range(300):
            pair.step(draw, prompt)
        reference, tested = (manager.allocator.evictor for manager in pair.managers)
        assert reference.told == tested.told  # type: ignore[union-attr]


def serve(cache: CacheManager, tokens: object, index: int = 0) -> Sequence:
    seq = Sequence(PackedTokens.of(tokens), Access(index))  # type: ignore[arg-type]
    cache.allocate(seq)
    cache.promote_to_immutable(seq, seq.num_tokens)
    return seq


def radix(num_blocks: float, block_size: int = 4, evictor: Evictor | None = None) -> CacheManager:
    return CacheManager(Radix(num_blocks, block_size, BuiltinHash(), evictor or Lru()))


def lengths(cache: CacheManager) -> list[int]:
    """Blocks of every run."""
    return sorted(len(run.blocks) for run in walk(cache.allocator._roots))  # type: ignore[attr-defined]


def calls(do: Callable[[], object]) -> int:
    """Calls of Python and C functions while something is done."""
    count = 0

    def tick(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


PER_RUN = ["fifo", "gdsf", "lfu", "lru", "marconi", "mru", "session", "sieve", "slru", "tail_latency", "ttl_priority",
           "workload_aware"]  # fmt: skip
"""The others hash the new blocks for their ghosts, or by definition take one block from each of many runs."""


@pytest.mark.parametrize("evictor", PER_RUN)
def test_a_request_costs_the_same_whatever_the_number_of_its_blocks_and_the_size_of_the_pool(evictor: str) -> None:
    def cost(blocks: int, num_blocks: int) -> int:
        cache = radix(num_blocks, 4, build("evictor", evictor))
        for i in range(2 * num_blocks // blocks + 4):
            cache.free(serve(cache, [*range(2 * blocks), *[i] * (2 * blocks)], i))
        assert cache.allocator.stats.evictions
        tokens = PackedTokens.of([*range(2 * blocks), *[7] * (2 * blocks - 1), 8])

        def request() -> None:
            seq = Sequence(tokens, Access(99))
            cache.allocate(seq)
            cache.promote_to_immutable(seq, seq.num_tokens)
            cache.free(seq)

        return calls(request)

    costs = cost(8, 64), cost(256, 2048), cost(256, 16384)  # up to a run more or less to trim
    assert max(costs) < 1.15 * min(costs), costs


def test_a_run_is_split_where_owners_begin_to_differ_and_nowhere_else() -> None:
    cache = radix(64)
    cache.free(serve(cache, range(33)))
    assert lengths(cache) == [8]
    cache.free(serve(cache, range(33), 1))
    assert lengths(cache) == [8]
    serve(cache, [*range(16), *range(100, 117)], 2)
    assert lengths(cache) == [4, 4, 4]


def test_a_chain_that_grows_block_by_block_stays_one_run() -> None:
    cache = radix(64)
    seq = serve(cache, range(10))
    for token in range(10, 100):
        cache.append(seq, [token])
        cache.promote_to_immutable(seq, token + 1)
    assert lengths(cache) == [25]
    cache.free(seq)
    assert cache.allocate(Sequence(PackedTokens.of(range(101)), Access(1))) == 100


def test_only_the_tail_of_a_run_is_evicted_and_the_rest_still_hits() -> None:
    cache = radix(8)
    cache.free(serve(cache, range(32)))
    cache.free(serve(cache, [9] * 9, 1))
    assert lengths(cache) == [2, 5]
    assert serve(cache, range(25), 2).num_hit_blocks == 5


def test_a_block_shared_by_a_fork_before_it_is_cached_belongs_to_both_until_both_are_gone() -> None:
    cache = radix(3)
    seq = serve(cache, range(3))
    cache.append(seq, [3])
    twin = cache.fork(seq)
    cache.promote_to_immutable(seq, 4)
    cache.free(seq)
    assert cache.ref_count(twin.block_table[0]) == 1, "the twin holds it, though it never came as far in the tree"
    assert cache.allocator.num_idle == 0
    cache.promote_to_immutable(twin, 4)
    cache.check_integrity()
    cache.free(twin)
    assert cache.allocator.num_idle == 1


def test_a_cached_block_is_copied_before_a_sequence_that_took_tokens_back_writes_into_it() -> None:
    cache = radix(4)
    seq = serve(cache, range(2))
    cache.append(seq, [2, 3])
    twin = cache.fork(seq)
    cache.promote_to_immutable(seq, 4)
    cache.free(seq)
    cache.truncate(twin, 3)
    assert cache.append(twin, [9]) == [(0, 1)]
    cache.check_integrity()


def test_a_subclass_of_a_ranked_policy_is_told_block_by_block_so_that_its_changes_count() -> None:
    class NewestGoes(Lru):
        def accessed(self, blocks, depth, access):  # type: ignore[no-untyped-def]
            super().accessed(blocks, depth, Access(-access.index))

    def survivors(evictor: Evictor) -> list[int]:
        cache = radix(3, 4, evictor)
        for i in range(3):
            cache.free(serve(cache, [i] * 5, i))
        return [i for i in range(3) if cache.can_allocate(seq := Sequence(PackedTokens.of([i] * 5), Access(9)))
                and cache.allocator.find(seq, 1).blocks]  # fmt: skip

    assert survivors(Lru()) == [1, 2]
    assert survivors(NewestGoes()) == [0, 2]


def test_part_of_what_is_immutable_cannot_be_given_up() -> None:
    cache = radix(8)
    seq = serve(cache, range(17))
    with pytest.raises(MisuseError, match="4 blocks of this sequence are immutable"):
        cache.allocator.release(seq, 2)
