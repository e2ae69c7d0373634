"""Who touches the cache: the one record an eviction policy learns about a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How precious tokens `start` to `stop` (None: the end) of a prompt are: 0 to 100, for `seconds` (None: for good)."""

    start: int
    stop: int | None
    priority: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One request, as policies see it.

    `index` is the logical clock (0, 1, 2 …: one tick per request, never per step); `time` is its arrival in seconds;
    `num_tokens` the length of its prompt. The rest are hints a serving system has and a policy may use or ignore.
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
