"""Earlier turns are appended once and never touched again: each prompt begins with the whole of the one before.

Knows nothing of how long a conversation may get.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.layout.history.base import History, Message, as_sent
from experiments.layout.script import Turn


class Stable(History):
    """As sent."""

    def messages(self, earlier: Sequence[Turn], now: float) -> list[Message]:
        return [message for turn in earlier for message in as_sent(turn)]
