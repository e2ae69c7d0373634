"""Generator: many users chatting at once, each prompt the whole conversation so far.

Models a chat service: one system prompt for all, then per session a history that grows by a question and an answer
each turn. Sessions start as a Poisson process; between turns the user thinks. Meanwhile other sessions run, and how
many of them decides whether a history is still resident when its next turn comes. Lengths vary by ±50 % around their
means. All tokens are uniform random ids.

Knows nothing of how long an answer takes: it counts as part of the thinking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.generator import Generator
from experiments.workload.interleave import interleave
from experiments.workload.randomness import random_tokens, stream


@dataclass(eq=False)
class MultiTurn(Generator):
    """`num_sessions` conversations of `turns` requests each, in the order of their arrival.

    `user_tokens`, `reply_tokens`: means; `session_gap`, `think_time`: mean seconds between starts and turns.
    """

    num_sessions: int = 100
    turns: int = 8
    system_tokens: int = 512
    user_tokens: int = 128
    reply_tokens: int = 256
    session_gap: float = 10.0
    think_time: float = 30.0
    vocab_size: int = 49152

    def check(self) -> None:
        check_at_least(1, num_sessions=self.num_sessions, turns=self.turns, vocab_size=self.vocab_size)
        check_at_least(1, user_tokens=self.user_tokens, reply_tokens=self.reply_tokens)
        check_at_least(0, system_tokens=self.system_tokens)
        check_at_least(0.0, session_gap=self.session_gap, think_time=self.think_time)

    def requests(self) -> Iterator[Request]:
        gaps = stream(self.seed, 0).exponential(self.session_gap, size=self.num_sessions)
        starts = np.concatenate(([0.0], np.cumsum(gaps)[:-1]))
        system = random_tokens(stream(self.seed, 1), self.system_tokens, self.vocab_size)
        sessions = (self._session(index, float(start), system) for index, start in enumerate(starts))
        for arrival, request in interleave(sessions, gap=0.0):
            yield replace(request, arrival=arrival)

    def _session(self, index: int, start: float, system: bytes) -> Iterator[tuple[float, Request]]:
        rng, history, arrival = stream(self.seed, 2, index), system, start
        for turn in range(self.turns):
            history += random_tokens(rng, self._around(rng, self.user_tokens), self.vocab_size)
            reply = random_tokens(rng, self._around(rng, self.reply_tokens), self.vocab_size)
            tokens = PackedTokens(history)
            last, output = turn == self.turns - 1, len(reply) // TOKEN_BYTES
            yield arrival, Request(tokens, 0.0, output, f"session-{index}", turn, "chat", last_turn=last)
            history += reply
            arrival += float(rng.exponential(self.think_time))

    @staticmethod
    def _around(rng: np.random.Generator, mean: int) -> int:
        return int(rng.integers(-(-mean // 2), mean + mean // 2 + 1))

    def expected_requests(self) -> int:
        return self.num_sessions * self.turns
