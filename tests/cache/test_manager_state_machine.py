"""Random traffic over the manager, checked after every step against a memory that knows what each slot must hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.conf import ONLINE_EVICTORS, build
from support.hashers import WeakHash
from support.memory import Memory

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.allocator.radix import Radix
from cache.errors import CacheInUse, MisuseError, OutOfBlocks, SequenceTooLarge
from cache.extra_keys import ExtraKeys
from cache.hashing.builtin import BuiltinHash
from cache.hashing.sha256 import Sha256
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens

# Prompts are prefixes of two long ones, now and then with a tail of their own: so most of them share something.
PROMPTS = st.builds(
    lambda base, length, tail: base[:length] + tail,
    st.sampled_from([[0] * 14, [0, 1] * 7]),
    st.integers(1, 14),
    st.just([]) | st.lists(st.integers(0, 1), max_size=3),
)
EXTRAS = st.sampled_from(
    [ExtraKeys(), ExtraKeys(tenant="a"), ExtraKeys(lora="a"), ExtraKeys(lora="a", lora_version="2")]
)
WHICH = st.integers(0, 99)
SOME_LIVE = precondition(lambda self: self.live)
SOME_WAITING = precondition(lambda self: self.waiting)


class Traffic(RuleBasedStateMachine):
    def make_allocator(self, num_blocks: int, block_size: int) -> Any:
        raise NotImplementedError

    @initialize(num_blocks=st.integers(3, 14), block_size=st.integers(1, 4))
    def open(self, num_blocks: int, block_size: int) -> None:
        self.manager = CacheManager(self.make_allocator(num_blocks, block_size))
        self.memory = Memory(self.manager)
        self.waiting: list[Sequence] = []
        self.live: list[Sequence] = []
        self.mixed: set[int] = set()
        self.clock = 0

    @rule(tokens=PROMPTS, extra=EXTRAS, skip=st.integers(0, 9))
    def arrive(self, tokens: list[int], extra: ExtraKeys, skip: int) -> None:
        seq = Sequence(PackedTokens.of(tokens), Access(self.clock), extra, skip_lookup=skip == 0)
        self.clock += 1
        self.waiting.append(seq)
        self.manager.can_allocate(seq)

    @rule(which=WHICH, complete=st.booleans())
    @SOME_WAITING
    def admit(self, which: int, complete: bool) -> None:
        seq = self.waiting.pop(which % len(self.waiting))
        if self.allocate(seq) and complete:
            self.compute(seq, seq.num_tokens)

    @rule(which=WHICH)
    @SOME_LIVE
    def preempt(self, which: int) -> None:
        seq = self.live[which % len(self.live)]
        self.drop(seq)
        self.waiting.append(seq)

    def allocate(self, seq: Sequence) -> bool:
        manager = self.manager
        allocator, needed = manager.allocator, manager.num_blocks_for(seq.num_tokens)
        free, evictions, available = allocator.num_free, allocator.stats.evictions, allocator.num_available
        could = manager.fits(seq) and manager.can_allocate(seq)
        try:
            hit = manager.allocate(seq)
        except SequenceTooLarge:
            assert needed > allocator.num_blocks
            return False
        except OutOfBlocks:
            assert not could
            assert (allocator.stats.evictions, allocator.num_available) == (evictions, available)
            return False
        assert could
        assert hit < seq.num_tokens
        assert hit == manager.block_size * seq.num_hit_blocks or seq.partial_copy is not None
        if seq.partial_copy is not None:
            self.memory.copy([seq.partial_copy])
        assert not (seq.skip_lookup and hit)
        assert self.memory.read(seq, hit) == self.memory.expected(seq, hit)
        new = needed - seq.num_hit_blocks
        assert allocator.stats.evictions - evictions == max(0, new - free), "evicted although there was room"
        self.live.append(seq)
        return True

    @rule(which=WHICH, share=st.floats(0, 1))
    @SOME_LIVE
    def compute_some(self, which: int, share: float) -> None:
        seq = self.live[which % len(self.live)]
        start = seq.num_computed_tokens
        self.compute(seq, start + round(share * (seq.num_tokens - start)))

    def compute(self, seq: Sequence, stop: int) -> None:
        self.memory.compute(seq, seq.num_computed_tokens, stop, stale=id(seq) in self.mixed)
        self.manager.promote_to_immutable(seq, stop)

    @rule(which=WHICH, tokens=st.lists(st.integers(0, 1), max_size=5))
    @SOME_LIVE
    def append(self, which: int, tokens: list[int]) -> None:
        seq = self.live[which % len(self.live)]
        could, before, length = self.manager.can_append(seq, len(tokens)), list(seq.block_table), seq.num_tokens
        try:
            copies = self.manager.append(seq, tokens)
        except (OutOfBlocks, SequenceTooLarge):
            assert not could
            assert (seq.block_table, seq.num_tokens) == (before, length)
            return
        assert could
        self.memory.copy(copies)
        assert seq.num_tokens == length + len(tokens)
        for position in range(length, seq.num_tokens):
            assert self.manager.ref_count(seq.block_table[position // self.manager.block_size]) == 1

    @rule(which=WHICH, times=st.integers(1, 3))
    @SOME_LIVE
    def fork(self, which: int, times: int) -> None:
        # A prompt is computed before it is forked; otherwise two sequences would both write the same fresh blocks.
        seq = self.live[which % len(self.live)]
        self.compute(seq, seq.num_tokens)
        for _ in range(times):
            twin = self.manager.fork(seq, Access(self.clock))
            if id(seq) in self.mixed:
                self.mixed.add(id(twin))
            self.live.append(twin)

    @rule(which=WHICH, back=st.integers(0, 4))
    @SOME_LIVE
    def reject_drafts(self, which: int, back: int) -> None:
        seq = self.live[which % len(self.live)]
        floor = max(len(seq.prompt), seq.num_immutable_blocks * self.manager.block_size)
        if seq.num_tokens - back < floor:
            with pytest.raises(MisuseError):
                self.manager.truncate(seq, seq.num_tokens - back)
        else:
            self.manager.truncate(seq, seq.num_tokens - back)

    @rule(which=WHICH)
    @SOME_LIVE
    def free(self, which: int) -> None:
        seq = self.live[which % len(self.live)]
        self.drop(seq)
        with pytest.raises(MisuseError):
            self.manager.free(seq)

    def drop(self, seq: Sequence) -> None:
        self.live.remove(seq)
        self.mixed.discard(id(seq))
        self.manager.free(seq)

    @rule(version=st.sampled_from(["", "1"]))
    def new_weights(self, version: str) -> None:
        if version != self.manager.weights_version:
            self.mixed.update(id(seq) for seq in self.live)  # what they compute from now on is no one else's
        self.manager.set_weights_version(version)

    @rule()
    def reset(self) -> None:
        if self.live:
            with pytest.raises(CacheInUse):
                self.manager.reset()
        else:
            self.manager.reset()
            assert self.manager.allocator.num_free == self.manager.allocator.num_blocks

    @invariant()
    def books_balance_and_memory_is_right(self) -> None:
        self.manager.check_integrity()
        for seq in self.live:
            tokens = PackedTokens.of(seq.token_ids())
            assert seq.contents(self.manager.block_size) == tokens.contents(self.manager.block_size)
            if id(seq) not in self.mixed:
                done = seq.num_computed_tokens
                assert self.memory.read(seq, done) == self.memory.expected(seq, done)

    def teardown(self) -> None:
        for seq in self.live:
            self.manager.free(seq)
        self.manager.reset()
        self.manager.check_integrity()


def traffic(make: Any) -> type[Traffic]:
    return type("TrafficOver", (Traffic,), {"make_allocator": staticmethod(make)})


ALLOCATORS: dict[str, Any] = {
    "naive": Naive,
    "sha256": lambda n, b: HashChain(n, b, Sha256(), build("evictor", "lru")),
    "colliding": lambda n, b: HashChain(n, b, WeakHash(3), build("evictor", "lru")),
    "colliding-any-order": lambda n, b: HashChain(n, b, WeakHash(3), build("evictor", "lru"), leaf_only=False),
    **{
        f"{name}{'' if leaf_only else '-any-order'}": lambda n, b, name=name, leaf_only=leaf_only: HashChain(
            n, b, BuiltinHash(), build("evictor", name), leaf_only
        )
        for name in ONLINE_EVICTORS
        for leaf_only in (True, False)
    },
    **{
        f"radix-{name}": lambda n, b, name=name: Radix(n, b, BuiltinHash(), build("evictor", name))
        for name in (
            "lru",
            "fifo",
            "lfu",
            "random",
        )  # the first three rank whole runs; to the tree, the others are alike
    },
    "radix-partial": lambda n, b: Radix(n, b, BuiltinHash(), build("evictor", "lru"), partial_reuse=True),
    "radix-partial-random": lambda n, b: Radix(n, b, BuiltinHash(), build("evictor", "random"), partial_reuse=True),
}


@pytest.mark.parametrize("name", ALLOCATORS)
def test_random_traffic_never_reads_a_wrong_prefix_and_the_books_always_balance(name: str) -> None:
    run_state_machine_as_test(
        traffic(ALLOCATORS[name]),
        settings=settings(
            max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
