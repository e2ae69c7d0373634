"""What is said in the chat, by whom and when: the same words whatever the layout.

Users ask about files of Python's standard library; replies are put together from the lines they are about. Sessions
start as a Poisson process; between two turns the user reads and thinks, so sessions interleave.

Knows nothing of tokens, templates, or how any of it is written into a prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from experiments.workload import stdlib_prompt as words
from experiments.workload.randomness import stream
from experiments.workload.stdlib_sources import Source, pick_sources

OPENED = datetime(2026, 1, 5, 9, 0, 0)
"""When the first session starts: clocks in prompts count from here."""
NUM_FILES = 24
LINES_ABOUT = 40
READING_SECONDS = 15.0
"""Nobody asks again before that; an answer should be there by then."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, its answer, and when it was asked, in seconds from the start."""

    question: str
    reply: str
    asked_at: float

    @property
    def clock(self) -> datetime:
        """What a clock on the wall shows then."""
        return OPENED + timedelta(seconds=self.asked_at)


@dataclass(frozen=True, slots=True)
class Talk:
    """One session."""

    user: str
    turns: tuple[Turn, ...]


def write_talks(
    num_sessions: int, turns: int, reply_lines: int, session_gap: float, think_time: float, seed: int
) -> list[Talk]:
    """`num_sessions` talks of `turns` turns, decided by `seed`; `session_gap`, `think_time`: mean seconds.

    Raises UserError where this Python ships no sources to talk about.
    """
    files = [(source, words.definitions(source)) for source in pick_sources(stream(seed, 0), NUM_FILES)]
    files = [(source, found) for source, found in files if found]
    starts = np.cumsum(stream(seed, 1).exponential(session_gap, size=num_sessions)).tolist()
    talks = []
    for index, start in enumerate(starts):
        own = stream(seed, 2, index)
        (source, found), clock, said = files[int(own.integers(len(files)))], start - starts[0], []
        for _ in range(turns):
            said.append(_turn(source, found, own, clock, reply_lines))
            clock += READING_SECONDS + float(own.exponential(think_time))
        talks.append(Talk(hashlib.sha256(f"{seed} {index}".encode()).hexdigest()[:8], tuple(said)))
    return talks


def _turn(
    source: Source, found: Sequence[tuple[int, str, str]], own: np.random.Generator, clock: float, reply_lines: int
) -> Turn:
    line, _, name = found[int(own.integers(len(found)))]
    asked = words.QUESTIONS[int(own.integers(len(words.QUESTIONS)))].format(name=name)
    answer = words.answer(source, line, line + LINES_ABOUT, name)
    return Turn(f"{asked} It is in {source.name}.", "\n".join(answer.split("\n")[:reply_lines]), clock)


def script_fingerprint(talks: Sequence[Talk]) -> str:
    """SHA-256 of all that is said, and when."""
    return hashlib.sha256(repr(list(talks)).encode()).hexdigest()
