"""Earlier turns are rendered anew for every prompt, each with how long ago it was: helpful, and never the same twice.

Knows nothing of what else a service might render: any label that depends on the present acts alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.layout.history.base import History, Message, as_sent
from experiments.layout.script import Turn


class Aged(History):
    """`[42 seconds ago]` in front of every question."""

    def messages(self, earlier: Sequence[Turn], now: float) -> list[Message]:
        told: list[Message] = []
        for turn in earlier:
            (role, question), answer = as_sent(turn)
            told += [(role, f"[{now - turn.asked_at:.0f} seconds ago] {question}"), answer]
        return told
