"""The contract of an eviction policy, as checks that can be run on any class: ours in the tests, a user's by `check`.

A check is a function of a factory that makes fresh policies; it returns a remark (often empty), raises AssertionError
where the promise is broken, and Skip where the promise does not apply.

Knows nothing of pytest, of conf, or of any particular policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from types import MappingProxyType
from typing import Any

from cache.access import Access, Retention
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.errors import PolicyError
from cache.evictor.base import Evictor
from cache.evictor.lru import Lru
from cache.evictor.side_by_side import Prompt, evictions
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens

Make = Callable[[], Evictor]
POOLS = (40, 120, 300)
"""Pools of the frozen trace, in blocks."""
BLOCK_SIZE = 512
"""Tokens per block as policies are told; the replay itself lets one token stand for each block."""
NAMES = ("get", "put", "ask", "chat")


class Skip(Exception):
    """The promise does not apply to this policy."""


def frozen_trace() -> list[Prompt]:
    """The trace golden counts refer to: Zipf-popular documents of 6 to 12 tokens, asked again, beside scans."""
    draw, prompts = Random(2026), []
    for i in range(600):
        if i % 5 == 4:
            prompts.append((1000 + i, *range(7)))
        else:
            document = min(int(draw.paretovariate(0.8)), 60)
            prompts.append((document, *range(6 + document % 7), draw.randrange(4)))
    return prompts


def long_runs() -> list[Prompt]:
    """Few documents of up to 1,500 tokens, asked for in parts and with long answers of their own: for whatever goes by
    depth, which the frozen trace is too shallow to show."""
    draw, prompts = Random(7), []
    for _ in range(120):
        document = min(int(draw.paretovariate(0.8)), 12)
        length = 60 + document * 397 % 1440
        part = draw.randrange(length // 3, length)
        prompts.append((document, *range(part), 10_000 + draw.randrange(3), *range(draw.randrange(1, 60))))
    return prompts


def hinted(index: int, prompt: Prompt) -> Access:
    """A request with every hint a serving system may give; all follow from the prompt."""
    document, turn = prompt[0], len(prompt)
    few = 4 * BLOCK_SIZE
    marks = (Retention(0, few, 80, 60.0), Retention(few, None, 20)) if document % 3 == 0 else ()
    session, category = f"session {document}", NAMES[document % 4]
    return Access(index, index * 0.5, turn * BLOCK_SIZE, session, turn, category, document % 5, marks, turn > 11)


def plain(index: int, prompt: Prompt) -> Access:
    """A request of which only length and arrival are known."""
    return Access(index, index * 0.5, len(prompt) * BLOCK_SIZE)


def replay(
    prompts: list[Prompt],
    evictor: Evictor,
    num_blocks: int,
    leaf_only: bool = True,
    describe: Callable[[int, Prompt], Access] = hinted,
) -> list[int | None]:
    """Hit blocks per prompt (None: refused) by the real cache, the books checked on the way."""
    manager = CacheManager(HashChain(num_blocks, 1, BuiltinHash(), evictor, leaf_only))
    packed = [PackedTokens.of(prompt) for prompt in prompts]
    if evictor.needs_future:
        evictor.foresee(Future((b"", p.contents(1), len(p) - 1) if len(p) <= num_blocks else None for p in packed))
    hits: list[int | None] = []
    for index, (prompt, tokens) in enumerate(zip(prompts, packed, strict=True)):
        seq = Sequence(tokens, describe(index, prompt))
        if not manager.fits(seq):
            hits.append(None)
            continue
        manager.allocate(seq)
        manager.promote_to_immutable(seq, len(tokens))
        hits.append(seq.num_hit_blocks)
        manager.free(seq)
        if index % 7 == 0:
            manager.check_integrity()
    return hits


def counts(make: Make) -> list[int]:
    """Hit blocks on the frozen trace, per pool of `POOLS`."""
    return [sum(hit or 0 for hit in replay(frozen_trace(), make(), pool)) for pool in POOLS]


def held(policy: Any) -> int:
    """Things held in containers below a policy's attributes; the future it was shown is not its own."""
    return sum(len(thing) for thing in islice(_containers(policy, set()), 1_000_000))


def only_candidates_are_chosen_and_each_once(make: Make) -> None:
    """A victim is a candidate, and one no more afterwards."""
    evictor = _eight(make)
    for block in (0, 2, 3, 5):
        evictor.evictable(block)
    assert evictor.candidates() == {0, 2, 3, 5}
    evictor.pinned(3)
    assert sorted(evictor.victims(3, _no_parent)) == [0, 2, 5]
    assert evictor.candidates() == set()


def a_policy_without_candidates_says_so(make: Make) -> None:
    """PolicyError, not a wrong block."""
    evictor = _eight(make)
    _refused(evictor.victim, "asked for a victim without a candidate")
    _refused(lambda: evictor.victims(1, _no_parent), "asked for victims without a candidate")


def a_block_uncovered_by_a_victim_can_be_the_next_one(make: Make) -> None:
    """The parent becomes a candidate within `victims`."""
    evictor = make()
    evictor.foresee(Future([(b"", ["a", "b", "c"], 3)]))
    evictor.inserted([0, 1, 2], 0, Access(0, 0.0, 48), ["a", "b", "c"])
    evictor.evictable(2)
    assert evictor.victims(3, lambda block: block - 1) == [2, 1, 0]


def a_removed_block_is_never_chosen_and_its_id_may_come_back(make: Make) -> None:
    """Reset and invalidation leave nothing behind."""
    evictor = _eight(make)
    evictor.evictable(0)
    evictor.evictable(1)
    evictor.removed(0)
    evictor.removed(7)
    evictor.removed(77)
    assert evictor.victims(1, _no_parent) == [1]
    evictor.inserted([0], 0, Access(9, 9.0, 16), ["again"])
    evictor.evictable(0)
    assert evictor.candidates() == {0}


def misuse_raises_instead_of_corrupting(make: Make) -> None:
    """Evictable twice, pinned while in use, inserted twice."""
    evictor = _eight(make)
    evictor.evictable(0)
    _refused(lambda: evictor.evictable(0), "a block became evictable twice")
    _refused(lambda: evictor.pinned(1), "a block in use was pinned")
    _refused(lambda: evictor.inserted([1], 0, Access(8, 8.0, 16), ["other"]), "a block was inserted twice")
    assert evictor.candidates() == {0}
    assert evictor.victims(1, _no_parent) == [0]


def the_same_traffic_gives_the_same_victims(make: Make) -> None:
    """No clock, no hash seed, no global randomness decides."""
    assert replay(frozen_trace()[:200], make(), 40) == replay(frozen_trace()[:200], make(), 40)


def blocks_in_any_order_may_be_candidates(make: Make) -> None:
    """With `leaf_only: false` parents may go before their children."""
    replay(frozen_trace()[:200], make(), 40, leaf_only=False)


def what_it_remembers_is_bounded_however_often_blocks_are_used(make: Make) -> None:
    """Uses of resident blocks leave no trail that grows."""
    evictor, blocks, requests = make(), 16, 6000
    evictor.foresee(Future((b"", [i % blocks], 1) for i in range(requests)))
    for block in range(blocks):
        evictor.inserted([block], 0, Access(block, float(block), 16), [block])
        evictor.evictable(block)
    half, for_long = 0, (Retention(0, None, 50, 1e6),)
    for i in range(blocks, requests):
        evictor.pinned(i % blocks)
        evictor.accessed([i % blocks], 0, Access(i, float(i), 16, retention=for_long))
        evictor.evictable(i % blocks)
        if i == requests // 2:
            half = held(evictor)
    assert evictor.candidates() == set(range(blocks))
    assert held(evictor) <= half + 40 * blocks, "what the policy holds grows with the number of requests"


def ghosts_are_bounded_by_the_pool(make: Make) -> str:
    """A scan of ten pools leaves at most two pools of ghosts."""
    evictor, pool = make(), 50
    replay([(i, *range(4)) for i in range(100)], evictor, pool)
    assert evictor.num_ghosts() <= 2 * pool, f"{evictor.num_ghosts()} ghosts of a pool of {pool}"
    return f"{evictor.num_ghosts()} ghosts"


def a_shifted_workload_recovers(make: Make) -> None:
    """What was hot once must not stay for ever: 300 requests for new documents are given to recover in."""
    if not make().adapts:
        raise Skip("says of itself that it never lets go of what was hot or early once (adapts = False)")
    old: list[Prompt] = [(i % 10, 0, 0) for i in range(400)]
    new: list[Prompt] = [(100 + i % 10, 0, 0) for i in range(400)]
    hits = replay(old + new, make(), 33, describe=plain)
    late = sum(hit or 0 for hit in hits[-100:])
    assert late >= 150, f"{late} of 200 possible hits, after 300 requests in which new documents were the hot ones"


def it_differs_from_lru(make: Make) -> str:
    """Somewhere on the frozen trace, given all hints."""
    if type(make()).__name__ == Lru.__name__:
        raise Skip("it is LRU")
    mine, lru = counts(make), counts(Lru)
    assert mine != lru, f"hit blocks {mine} on the frozen trace, exactly as LRU"
    return f"hit blocks {mine}; LRU {lru}"


def told_of_runs_it_chooses_the_same_victims(make: Make) -> None:
    """In the same order, where the policy offers itself to allocators that think in runs."""
    if make().by_run() is None:
        raise Skip("offers nothing to allocators that think in runs (by_run)")
    for name, prompts, pool in (("frozen trace", frozen_trace(), POOLS[0]), ("trace of long runs", long_runs(), 4000)):
        by_block = evictions(HashChain, make(), prompts, pool, hinted)
        by_run = evictions(Radix, make(), prompts, pool, hinted)
        for i, (expected, found) in enumerate(zip(by_block, by_run, strict=True)):
            where = f"requests {2 * i} and {2 * i + 1} of the {name}"
            assert found == expected, f"{where} evict {_differing(found, expected)} block by block"


CHECKS: MappingProxyType[str, Callable[[Make], str | None]] = MappingProxyType(
    {
        check.__name__.replace("_", " "): check
        for check in (
            only_candidates_are_chosen_and_each_once,
            a_policy_without_candidates_says_so,
            a_block_uncovered_by_a_victim_can_be_the_next_one,
            a_removed_block_is_never_chosen_and_its_id_may_come_back,
            misuse_raises_instead_of_corrupting,
            the_same_traffic_gives_the_same_victims,
            blocks_in_any_order_may_be_candidates,
            what_it_remembers_is_bounded_however_often_blocks_are_used,
            ghosts_are_bounded_by_the_pool,
            a_shifted_workload_recovers,
            it_differs_from_lru,
            told_of_runs_it_chooses_the_same_victims,
        )
    }
)
"""Every promise, by the sentence that makes it."""


def _eight(make: Make) -> Evictor:
    """A policy that has seen eight single-block prompts inserted, each by a request of its own; all in use."""
    evictor = make()
    evictor.foresee(Future((b"", [i % 8], 1) for i in range(32)))
    for block in range(8):
        evictor.inserted([block], 0, Access(block, float(block), 16), [f"key {block}"])
    return evictor


def _differing(found: list[int], expected: list[int]) -> str:
    """Both lists from shortly before the first victim that differs, joined by "by run, "."""
    same = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), 0)
    parts = (f"{'… ' * (same > 2)}{some[max(0, same - 2) : same + 10]}" for some in (found, expected))
    return " by run, ".join(parts)


def _no_parent(block: int) -> int:
    return -1


def _refused(act: Callable[[], Any], what: str) -> None:
    try:
        act()
    except PolicyError:
        return
    raise AssertionError(f"{what}, and no PolicyError was raised")


def _containers(thing: Any, seen: set[int]) -> Iterator[Any]:
    if id(thing) in seen or isinstance(thing, Future | str | bytes | bytearray):
        return
    seen.add(id(thing))
    if isinstance(thing, dict):
        yield thing
        parts = [*thing, *thing.values()]
    elif isinstance(thing, list | set | tuple):
        yield thing
        parts = list(thing)
    else:
        parts = [getattr(thing, name, None) for name in _attributes(thing)]
    for part in parts:
        if not isinstance(part, int | float | str | bytes | type(None)):
            yield from _containers(part, seen)


def _attributes(thing: Any) -> list[str]:
    module = type(thing).__module__
    if module.startswith(("numpy", "random", "builtins")):
        return []
    return [*getattr(thing, "__dict__", {}), *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ()))]
