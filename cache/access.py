"""Who touches the cache: the one record an eviction policy learns about a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """Tokens `start` to `stop` (None: the end) have a priority, 0 to 100, for `seconds` (None: for good)."""

    start: int
    stop: int | None
    priority: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One lookup on behalf of a request, as policies see it.

    `index` is the logical clock (0, 1, 2 …: one tick per lookup, never per step) and `time` the same in seconds: when
    the request was let in, not when it arrived, so both only ever grow. `num_tokens` is the length of its prompt. The
    rest are hints a serving system has and a policy may use or ignore.
    """

    index: int
    time: float = 0.0
    num_tokens: int = 0
    session: str | None = None
    turn: int = 0
    category: str | None = None
    priority: int = 0
    retention: tuple[Retention, ...] = ()
    """What is more or less precious in the prompt than the request as a whole."""
    last_turn: bool = False
    """The session is known to end with this request."""
    request: int | None = None
    """Which request it is, where that is not `index`: where requests queue, overtake, and are let in again."""
    again: bool = False
    """The request was let in before, and preempted."""

    @property
    def request_index(self) -> int:
        """Which request it is."""
        return self.index if self.request is None else self.request
