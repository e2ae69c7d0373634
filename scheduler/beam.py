"""One step of beam search: from every beam's best candidates, the best `width` continuations of them all.

A hypothesis of length n with log-probability p scores p / n ** length_penalty (Wu et al., 2016, without its constant).

Knows nothing of blocks; the scheduler forks and frees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.request import Branch


@dataclass(frozen=True, slots=True)
class Extension:
    """One token more for one beam."""

    parent: Branch
    token: int
    token_logprob: float

    @property
    def logprob(self) -> float:
        """Of the whole continuation."""
        return self.parent.logprob + self.token_logprob


def select(
    beams: Sequence[Branch], width: int, ends: Callable[[Branch, int], bool]
) -> tuple[list[Extension], list[Extension]]:
    """(extensions that go on, at most `width`; extensions that end), best first.

    `ends(beam, token)` tells whether that token would end the beam. Candidates that end and rank below the `width`
    best are dropped, as their score is no better than that of the beams kept. Ties: the earlier beam, the better token.
    """
    candidates = [
        Extension(beam, token, logprob) for beam in beams if beam.drawn is not None for token, logprob in beam.drawn.top
    ]
    candidates.sort(key=lambda extension: -extension.logprob)
    live: list[Extension] = []
    ended: list[Extension] = []
    for rank, extension in enumerate(candidates):
        if ends(extension.parent, extension.token):
            if rank < width:
                ended.append(extension)
        elif len(live) < width:
            live.append(extension)
    return live, ended


def score(logprob: float, length: int, length_penalty: float) -> float:
    """Higher is better."""
    return float(logprob / max(length, 1) ** length_penalty)


def is_decided(
    live: Sequence[Extension], finished: Sequence[float], width: int, longest: int, length: int, length_penalty: float
) -> bool:
    """Whether no live beam can still beat the `width` best finished scores, however it goes on.

    A beam's log-probability only falls, so its best score is reached now or at its longest, whichever penalty favours.
    """
    if len(finished) < width:
        return False
    best = max(
        (max(score(e.logprob, n, length_penalty) for n in (length, longest)) for e in live), default=float("-inf")
    )
    return best <= sorted(finished, reverse=True)[width - 1]
