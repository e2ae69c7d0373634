"""Sessions recorded one by one, put on one clock.

Knows nothing of what an event is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TypeVar

Event = TypeVar("Event")


def interleave(sessions: Iterable[Iterable[tuple[float, Event]]], gap: float) -> Iterator[tuple[float, Event]]:
    """Merge sessions by time: session i, from 0, starts at i·gap, and its events are (seconds since then, event).

    Events of a session come in the order of time; ties go to the earlier session, then to the earlier event. A session
    is asked for only once the clock has reached it.
    """
    source = iter(sessions)
    waiting: list[tuple[float, int, int, Event, Iterator[tuple[float, Event]]]] = []
    opened, more = 0, True

    def push(index: int, position: int, events: Iterator[tuple[float, Event]]) -> None:
        for time, event in events:
            heapq.heappush(waiting, (index * gap + time, index, position, event, events))
            return

    while more or waiting:
        while more and (not waiting or opened * gap < waiting[0][0]):
            session = next(source, None)
            if session is None:
                more = False
            else:
                push(opened, 0, iter(session))
                opened += 1
        if waiting:
            time, index, position, event, events = heapq.heappop(waiting)
            yield time, event
            push(index, position + 1, events)
