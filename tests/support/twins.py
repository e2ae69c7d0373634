"""Two caches that must not be told apart: everything is done to both, and everything observable is compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Any

from cache.access import Access, Retention
from cache.allocator.base import Allocator
from cache.errors import CacheError
from cache.evictor.contract import BLOCK_SIZE
from cache.extra_keys import ExtraKeys
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, TokenIds

Pair = tuple[Sequence, Sequence]


class Twins:
    """A reference and the cache under test."""

    def __init__(self, reference: Allocator, tested: Allocator) -> None:
        self.managers = CacheManager(reference), CacheManager(tested)
        self.live: list[Pair] = []
        self.waiting: list[Pair] = []
        self.clock = 0

    def both(self, do: Callable[[CacheManager, Sequence], Any], pair: Pair) -> Any:
        """The answer or the refusal, which must be the same twice."""
        answers = []
        for manager, seq in zip(self.managers, pair, strict=True):
            try:
                answers.append((do(manager, seq), None))
            except CacheError as error:
                answers.append((None, (type(error), str(error))))
        assert answers[0] == answers[1]
        return answers[0]

    def submit(self, tokens: TokenIds, extra: ExtraKeys, skip_lookup: bool) -> None:
        access = hinted(self.clock, len(tokens))
        self.clock += 1
        self.waiting.append(
            (Sequence(tokens, access, extra, skip_lookup), Sequence(tokens, access, extra, skip_lookup))
        )

    def allocate(self, which: int) -> None:
        pair = self.waiting.pop(which % len(self.waiting))
        self.both(lambda manager, seq: manager.fits(seq) and manager.can_allocate(seq), pair)
        _, error = self.both(lambda manager, seq: manager.allocate(seq), pair)
        if error is None:
            self.live.append(pair)

    def compute(self, pair: Pair, share: float) -> None:
        start = pair[0].num_computed_tokens
        self.compute_to(pair, start + round(share * (pair[0].num_tokens - start)))

    def compute_to(self, pair: Pair, stop: int) -> None:
        self.both(lambda manager, seq: manager.promote_to_immutable(seq, stop), pair)

    def append(self, pair: Pair, tokens: Items[int]) -> None:
        self.both(lambda manager, seq: manager.can_append(seq, len(tokens)), pair)
        self.both(lambda manager, seq: manager.append(seq, tokens), pair)

    def fork(self, pair: Pair, same_request: bool) -> None:
        access = None if same_request else Access(self.clock)
        self.clock += not same_request
        a, b = (manager.fork(seq, access) for manager, seq in zip(self.managers, pair, strict=True))
        self.live.append((a, b))

    def truncate(self, pair: Pair, back: int) -> None:
        self.both(lambda manager, seq: manager.truncate(seq, seq.num_tokens - back), pair)

    def free(self, pair: Pair, preempt: bool) -> None:
        self.live.remove(pair)
        self.both(lambda manager, seq: manager.free(seq), pair)
        if preempt:
            for seq in pair:
                seq.access = Access(self.clock)
            self.clock += 1
            self.waiting.append(pair)

    def new_weights(self, version: str) -> None:
        for manager in self.managers:
            manager.set_weights_version(version)

    def reset(self) -> None:
        placeholder = Sequence(PackedTokens(b""), Access(0))
        self.both(lambda manager, seq: manager.reset(), (placeholder, placeholder))

    def compare(self) -> None:
        """Everything a caller can see, in time that does not grow with the pool."""
        for a, b in self.live:
            for name in ("block_table", "num_immutable_blocks", "num_computed_tokens", "num_hit_blocks", "sealed"):
                assert getattr(a, name) == getattr(b, name), name
        a, b = (manager.allocator for manager in self.managers)
        assert a.stats == b.stats
        assert (a.num_free, a.num_idle, a.num_in_use) == (b.num_free, b.num_idle, b.num_in_use)

    def compare_every_block(self) -> None:
        """Also who owns each block, which blocks are cached, and the books of both."""
        for manager in self.managers:
            manager.check_integrity()
        a, b = (manager.allocator for manager in self.managers)
        for block in range(a.num_in_use + a.num_idle + len(a._free)):
            assert a.state(block) == b.state(block)
            assert a.ref_count(block) == b.ref_count(block)
        assert a._free == b._free, "blocks would be handed out in another order"
        assert a.evictor.candidates() == b._policy.candidates()  # type: ignore[union-attr, attr-defined]

    def step(self, draw: random.Random, prompt: Callable[[random.Random], TokenIds]) -> None:
        """One random operation."""
        dice, live = draw.random(), self.live
        if dice < 0.25 or not live:
            if not self.waiting or draw.random() < 0.7:
                extra = draw.choice(EXTRAS)
                self.submit(prompt(draw), extra, draw.random() < 0.05)
            self.allocate(draw.randrange(99))
            return
        pair = draw.choice(live)
        if dice < 0.55:
            self.compute(pair, draw.choice((0.5, 1.0, 1.0, draw.random())))
        elif dice < 0.70:
            self.append(pair, [draw.randrange(2) for _ in range(draw.randrange(6))])
        elif dice < 0.74 and len(live) < 12:
            self.compute_to(pair, max(pair[0].num_computed_tokens, pair[0].num_tokens - draw.randrange(2)))
            self.fork(pair, draw.random() < 0.3)
        elif dice < 0.78:
            self.truncate(pair, draw.randrange(4))
        elif dice < 0.785:
            self.new_weights(draw.choice(("", "2")))
        elif dice < 0.79:
            self.reset()
        else:
            self.free(pair, draw.random() < 0.15)


EXTRAS = [ExtraKeys()] * 6 + [ExtraKeys(tenant="a"), ExtraKeys(lora="a")]


def hinted(clock: int, num_tokens: int) -> Access:
    """A request with every hint a policy may go by; sessions end, marks overlap and run out, clocks go unevenly.

    Tokens are counted as if a block of the twins held `BLOCK_SIZE`, which is what policies are told.
    """
    half, some = num_tokens // 4 * BLOCK_SIZE, 3 * BLOCK_SIZE
    marks = {
        1: (Retention(0, half, 80, 9.0), Retention(half // 2, None, 20)),
        4: (Retention(half, None, 60), Retention(some, 2 * some + 1, 90, 4.0), Retention(some + 1, some + 2, 10)),
    }
    return Access(
        clock,
        clock * 0.75 - clock % 3,
        num_tokens // 3 * BLOCK_SIZE,
        session=str(clock % 3) if clock % 5 else None,
        turn=clock // 3,
        category=("chat", "batch", None)[clock % 7 % 3],
        priority=clock % 11 // 5 * 30,
        retention=marks.get(clock % 6, ()),
        last_turn=clock % 13 == 0,
    )
