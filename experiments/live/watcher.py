"""What a run tells whoever watches it: one call per request, one look at the pool when it is time to draw.

    run ── matched(prompt), finished() ──> Watcher ── Snapshot, now and then ──> screen (terminal or plain lines)

Between two looks a request costs a few additions. A look costs what it costs; the next one waits until it is at
most `SHARE` of the time gone by. A run that is not watched has no watcher and pays nothing.

Knows nothing of what the run does or how a screen looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Protocol

from cache.manager import CacheManager
from cache.tokens import TokenIds
from experiments.live.prefixes import Shared, SharedPrefixes

SHARE = 0.02
"""Of a run's time spent on looking, at most."""
TOP = 5
SAMPLED = 200
"""Requests whose shared prefixes are counted one by one between two looks; then every second, every fourth, …"""
EARLIEST_ETA = 0.5
"""Seconds before which nothing can be said of how long it takes."""
DECAY = 0.7
"""Weight of what is older in the recent hit rate, from look to look."""


More = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    title: str
    done: int
    total: int | None
    seconds: float
    prompt_tokens: int
    hit_tokens: int
    recent_hit_rate: float | None
    in_use: int
    cached: int
    free: int | float
    evictions: int
    top: list[Shared]
    block_size: int
    more: Mapping[str, str]
    over: bool = False

    @property
    def hit_rate(self) -> float:
        """Of prompt tokens so far."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds left if it goes on like this; None where nobody knows how much there is, or too early."""
        if self.total is None or not self.done or self.seconds < EARLIEST_ETA:
            return None
        return max(0.0, (self.total - self.done) * self.seconds / self.done)


class Screen(Protocol):
    """Shows snapshots."""

    pause: float
    """Seconds between two looks, at least."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw it."""

    def close(self) -> None:
        """Nothing more will come."""


class Watcher:
    """Counts, and draws when it is time."""

    def __init__(self, title: str, screen: Screen, total: int | None = None) -> None:
        """`total`: requests of the run, where that is known."""
        self.title, self.screen, self.total = title, screen, total
        self.done = self.prompt_tokens = self.hit_tokens = 0
        self._manager: CacheManager | None = None
        self._more: More = dict
        self._prefixes = SharedPrefixes(1)
        self._start = perf_counter()
        self._due = 0.0
        self._recent: tuple[float, float] = (0.0, 0.0)
        self._before = (0, 0)
        self._stride = self._unseen = 1
        self._sampled = 0

    def begin(self, manager: CacheManager, more: More = dict) -> None:
        """A cold cache; what was counted before belongs to another. `more`: what else the run has to say, by name."""
        self._manager, self._more = manager, more
        self._prefixes = SharedPrefixes(manager.block_size)
        self.done = self.prompt_tokens = self.hit_tokens = 0
        self._recent, self._before = (0.0, 0.0), (0, 0)
        self._stride = self._unseen = 1
        self._sampled = 0
        self._start, self._due = perf_counter(), 0.0
        self.finished(0)

    def matched(self, prompt: TokenIds, num_tokens: int, hit_blocks: int) -> None:
        """A prompt was looked up for the first time; `hit_blocks` of its blocks were found."""
        self.prompt_tokens += num_tokens
        if hit_blocks:
            self.hit_tokens += hit_blocks * self._prefixes.block_size
            self._unseen -= 1
            if self._unseen <= 0:
                self._sample(prompt, hit_blocks)

    def finished(self, count: int = 1) -> None:
        """So many requests are done; draws if it is time."""
        self.done += count
        now = perf_counter()
        if now >= self._due:
            self._draw(now)
            cost = perf_counter() - now
            self._due = now + max(self.screen.pause, cost / SHARE)

    def end(self) -> None:
        """Draw the last state."""
        if self._manager is not None:
            self._draw(perf_counter(), over=True)

    def _sample(self, prompt: TokenIds, hit_blocks: int) -> None:
        """Count its prefix. Where hits come fast, every k-th counts k times; k follows how many come between looks."""
        self._prefixes.note(prompt, hit_blocks, self._stride)
        self._sampled += 1
        if self._sampled == SAMPLED:
            self._stride, self._sampled = 2 * self._stride, 0
        self._unseen = self._stride

    def _draw(self, now: float, over: bool = False) -> None:
        assert self._manager is not None, "begin comes first"
        allocator = self._manager.allocator
        self._stride, self._sampled = max(1, self._stride // 2), 0
        prompt, hit = self.prompt_tokens - self._before[0], self.hit_tokens - self._before[1]
        self._recent = self._recent[0] * DECAY + prompt, self._recent[1] * DECAY + hit
        self._before = self.prompt_tokens, self.hit_tokens
        free = allocator.num_free
        self.screen.show(
            Snapshot(
                self.title,
                self.done,
                self.total,
                now - self._start,
                self.prompt_tokens,
                self.hit_tokens,
                self._recent[1] / self._recent[0] if self._recent[0] else None,
                allocator.num_in_use,
                allocator.num_idle,
                free if free == inf else int(free),
                allocator.stats.evictions,
                self._prefixes.top(TOP),
                self._manager.block_size,
                self._more(),
                over,
            )
        )
