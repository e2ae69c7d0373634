"""Blocks that are promoted late: nobody can tell, neither from what is decided nor from what is counted or cached."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.conf import ONLINE_EVICTORS, build, sharing_allocator

from cache.access import Access
from cache.allocator.radix import Radix
from cache.errors import MisuseError
from cache.extra_keys import ExtraKeys
from cache.ledger import Ledger
from cache.manager import CacheManager
from cache.observer import Observer
from cache.sequence import Sequence
from cache.tokens import PackedTokens, int32
from model.sampling import SamplingParams
from scheduler.clock import SimulatedClock
from scheduler.loop import StepLoop
from scheduler.preemption.recompute import Recompute
from scheduler.preemption.swap import Swap
from scheduler.request import Branch, Request
from scheduler.scheduler import Scheduler
from scheduler.simulated import SimulatedExecutor
from scheduler.step import Outcome, Step, Work

SIZE = 2


def story(group: int, length: int) -> list[int]:
    """What requests of a group say, in prompts and answers alike, so that many say the same."""
    draw = random.Random(group)
    return [draw.randrange(3) for _ in range(length)]


def told(branch: Branch, start: int, stop: int) -> list[int]:
    n, draw = branch.request.num_prompt, random.Random(branch.request.index)
    end = n + draw.randrange(60)  # from there on it goes a way of its own
    common = story(branch.request.index % 3, n + stop)[n:]
    own = [branch.request.index * 100 + branch.index] * len(common)
    return (common[: max(end - n, 0)] + own[max(end - n, 0) :])[start:stop]


def arrivals(seed: int, count: int) -> Iterable[Request]:
    draw, time = random.Random(seed), 0.0
    for index in range(count):
        prompt = story(index % 3, draw.randrange(2, 50)) + [7] * draw.randrange(2)
        params = SamplingParams(
            max_tokens=draw.randrange(1, 50),
            temperature=0,
            ignore_eos=True,
            n=2 if index % 11 == 5 else 1,
            prompt_logprobs=0 if index % 7 == 3 else None,
        )
        extra = ExtraKeys(tenant="a") if seed % 3 == 0 and index % 5 == 4 else ExtraKeys()
        yield Request(
            index, PackedTokens.of(prompt), params, time, extra_keys=extra, session=str(index % 3), turn=index // 3
        )
        time += draw.expovariate(1 / 12)


class PerToken:
    """A step takes a second, and a little per token."""

    def seconds(self, work: Work) -> float:
        return 1 + work.num_tokens / 64


class Written(CacheManager):
    """Writes down what every sequence held when it was freed."""

    def __init__(self, allocator: Any) -> None:
        super().__init__(allocator, 0.02)
        self.freed: list[Any] = []

    def free(self, seq: Sequence) -> None:
        self.freed.append((seq.access.index, tuple(seq.block_table), seq.num_tokens, seq.num_computed_tokens))
        super().free(seq)


def served(allocator: str, policy: str, seed: int, look: bool = False, swap: bool = False) -> Any:
    """Everything that can be told of a simulation. `look`: also count owners of every block now and then."""
    manager = Written(sharing_allocator(allocator, 70, SIZE, evictor=build("evictor", policy)))
    scheduler = Scheduler(
        manager,
        build("order", "fcfs"),
        build("victim", "cheapest_recompute"),
        Swap(20) if swap else Recompute(),
        max_num_seqs=8,
        max_num_batched_tokens=40,
        foretell=told,
    )
    ledger, seen = Ledger(SIZE), list[Any]()
    scheduler.observe(ledger)

    def watch(step: Step, outcome: Outcome, start: float, end: float) -> None:
        chunks = [(chunk.branch.request.index, chunk.start, chunk.stop) for chunk in step.chunks]
        seen.append((len(step.decodes), chunks, step.memory, step.used_blocks, manager.allocator.num_available, end))
        if look and len(seen) % 5 == 0:
            seen.append([manager.allocator.state(block) for block in range(70)])
            manager.check_integrity()

    clock = SimulatedClock()
    loop = StepLoop(scheduler, SimulatedExecutor(PerToken(), clock), clock, arrivals(seed, 50), watch)
    rows = [(r.index, r.hit_tokens, r.rehit_tokens, r.recomputed_tokens, r.preemptions, r.reasons) for r in loop.run()]
    manager.check_integrity()
    cached = [manager.allocator.state(block) for block in range(70)]
    ages = [sorted(age.requests().items()) for age in (ledger.at_hit, ledger.at_eviction, ledger.at_miss)]
    counts = +ledger.counts, +ledger.repeated, ledger.shared_tokens, ledger.tree.num_prefixes
    return [seen, rows, manager.freed, cached, manager.allocator._free, manager.allocator.stats, counts, ages]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a sequence was put off, and had to catch up although it was still decoding."""
    count: Counter[str] = Counter()
    put_off, catch_up = Radix.put_off, Sequence.catch_up

    def counted(allocator: Radix, seq: Sequence) -> bool:
        done = put_off(allocator, seq)
        count["put off"] += done
        return done

    def caught(seq: Sequence) -> None:
        count["caught up"] += seq.behind is not None
        catch_up(seq)

    monkeypatch.setattr(Radix, "put_off", counted)
    monkeypatch.setattr(Sequence, "catch_up", caught)
    return count


@pytest.mark.parametrize("policy", ONLINE_EVICTORS)
def test_every_policy_serves_as_over_the_allocator_that_promotes_every_block_at_once(policy: str) -> None:
    assert served("radix", policy, 1) == served("hash_chain", policy, 1)


@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
@pytest.mark.parametrize("look", [False, True], ids=["unseen", "looked at"])
@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_what_is_put_off_is_there_whoever_comes(policy: str, look: bool, swap: bool, late: Counter[str]) -> None:
    preemptions = 0
    for seed in range(10, 13):
        tree = served("radix", policy, seed, look, swap)
        assert tree == served("hash_chain", policy, seed, look, swap)
        preemptions += sum(row[4] for row in tree[1])
    assert preemptions > 0
    assert late["put off"] > 50
    assert late["caught up"] > 50


def grown(manager: CacheManager) -> Sequence:
    """A sequence of two blocks, then two that are put off."""
    seq = Sequence(PackedTokens.of([1, 2, 3, 4]), Access(0))
    manager.allocate(seq)
    manager.promote_to_immutable(seq, 4)
    assert manager.put_off(seq, lambda: manager.append_computed(seq, int32([5, 6, 7, 8])))
    assert manager.append_each([(seq, None)]) == manager.append_each([(seq, None)]) == []
    assert (seq.num_tokens, len(seq.block_table)) == (4, 4)
    return seq


DEEDS: dict[str, Callable[[CacheManager, Sequence], Any]] = {
    "append": lambda manager, seq: manager.append(seq, [9]),
    "fork": lambda manager, seq: manager.fork(seq),
    "free": lambda manager, seq: manager.free(seq),
    "mark computed": lambda manager, seq: manager.mark_computed(seq, 8),
    "new weights": lambda manager, seq: manager.set_weights_version("2"),
    "list": lambda manager, seq: manager.live_sequences,
    "check": lambda manager, seq: manager.check_integrity(),
    "look at a block": lambda manager, seq: manager.ref_count(0),
    "another's lookup": lambda manager, seq: manager.can_allocate(Sequence(PackedTokens.of([1, 2, 3]), Access(1))),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_is_done_with_it_a_sequence_catches_up_first(deed: str) -> None:
    manager = CacheManager(sharing_allocator("radix", 9, SIZE, evictor=build("evictor", "lru")))
    seq = grown(manager)
    DEEDS[deed](manager, seq)
    assert seq.behind is None
    assert seq.num_tokens == 8 + (deed == "append")
    assert manager.num_matched_tokens(Sequence(PackedTokens.of(range(1, 10)), Access(2))) == 8 * (deed != "new weights")
    manager.check_integrity()


def test_a_lookup_from_before_it_was_put_off_is_not_believed() -> None:
    manager = CacheManager(sharing_allocator("radix", 20, SIZE, evictor=build("evictor", "lru")))
    seq, other = Sequence(PackedTokens.of([1, 2, 3, 4]), Access(0)), Sequence(PackedTokens.of(range(1, 10)), Access(1))
    manager.allocate(seq)
    manager.promote_to_immutable(seq, 4)
    assert manager.num_matched_tokens(other) == 4
    assert manager.put_off(seq, lambda: manager.append_computed(seq, int32([5, 6, 7, 8])))
    manager.append_each([(seq, None), (seq, None)])
    assert manager.num_matched_tokens(other) == manager.allocate(other) == 8


def test_who_computes_the_same_later_gives_its_own_blocks_back() -> None:
    manager = CacheManager(sharing_allocator("radix", 20, SIZE, evictor=build("evictor", "lru")))
    seq = grown(manager)
    other = Sequence(PackedTokens.of(range(1, 10)), Access(1), skip_lookup=True)
    manager.allocate(other)
    assert seq.behind is not None, "it looked nothing up"
    manager.promote_to_immutable(other, 9)
    assert other.block_table[:4] == seq.block_table
    manager.check_integrity()


def test_a_ledger_that_meets_it_first_has_it_catch_up() -> None:
    """A request that looks nothing up comes to the place in the ledger's tree alone."""
    manager, ledger = CacheManager(sharing_allocator("radix", 20, SIZE, evictor=build("evictor", "lru"))), Ledger(SIZE)
    manager.observe(ledger)
    seq = Sequence(PackedTokens.of([1, 2, 3, 4]), Access(0))
    manager.allocate(seq)
    manager.promote_to_immutable(seq, 4)
    manager.append(seq, [5, 6])
    manager.promote_to_immutable(seq, 6)
    assert manager.put_off(seq, lambda: manager.append_computed(seq, int32([7, 8])))
    manager.append_each([(seq, None)])
    manager.allocate(Sequence(PackedTokens.of(range(1, 12)), Access(1), skip_lookup=True))
    assert seq.behind is None
    assert ledger.num_known == 4


def longer(seq: Sequence) -> Sequence:
    return Sequence(PackedTokens.of([*seq.token_ids(), 0]), Access(1))


def test_nothing_is_put_off_where_somebody_could_tell() -> None:
    class Listener(Observer):
        def promoted(self, seq: Sequence, start: int, stop: int) -> None:
            return

    def asked(manager: CacheManager, before: Callable[[CacheManager, Sequence], Any] = lambda *_: None) -> bool:
        seq = Sequence(PackedTokens.of([1, 2, 3, 4]), Access(0))
        manager.allocate(seq)
        manager.promote_to_immutable(seq, 4)
        before(manager, seq)
        return manager.put_off(seq, lambda: None)

    def cache(name: str = "radix", policy: str = "lru", **options: Any) -> CacheManager:
        return CacheManager(sharing_allocator(name, 9, SIZE, evictor=build("evictor", policy), **options))

    assert asked(cache())
    assert not asked(cache("hash_chain"))
    assert not asked(cache(policy="s3fifo")), "its queues remember who came first"
    assert not asked(cache(), lambda manager, seq: manager.fork(seq))
    assert not asked(cache(), lambda manager, seq: manager.allocate(longer(seq)))
    observed = cache()
    observed.observe(Listener())
    assert not asked(observed)
    with pytest.raises(MisuseError, match="holds no blocks here"):
        cache().put_off(Sequence(PackedTokens.of([1]), Access(0)), lambda: None)


def test_a_long_answer_is_promoted_a_few_times_not_once_per_block(monkeypatch: pytest.MonkeyPatch) -> None:
    count: Counter[int] = Counter()
    promote = Radix.promote

    def counted(allocator: Radix, seq: Sequence, num_full: int) -> None:
        count[seq.access.index] += 1
        promote(allocator, seq, num_full)

    monkeypatch.setattr(Radix, "promote", counted)
    manager = CacheManager(sharing_allocator("radix", 400, SIZE, evictor=build("evictor", "lru")))
    scheduler = Scheduler(manager, build("order", "fcfs"), build("victim", "last"), Recompute(), foretell=told)
    scheduler.observe(Ledger(SIZE))
    clock, params = SimulatedClock(), SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)
    requests = [Request(i, PackedTokens.of(story(i, 9)), params) for i in range(3)]
    list(StepLoop(scheduler, SimulatedExecutor(PerToken(), clock), clock, requests).run())
    assert max(count.values()) < 8
    assert manager.allocator.num_idle == 3 * (208 // SIZE)
