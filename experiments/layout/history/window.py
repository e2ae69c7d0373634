"""Only the last few turns are kept: as soon as one drops out, all behind it move, and none of them is found again.

Knows nothing of tokens: the window is counted in turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.layout.history.base import History, Message, as_sent
from experiments.layout.script import Turn


class Window(History):
    """The last `keep` turns, as sent."""

    def __init__(self, keep: int = 2) -> None:
        """Raises ValueError for a window below one turn."""
        if keep < 1:
            raise ValueError(f"history.keep must be 1 or more turns, got {keep}")
        self.keep = keep

    def messages(self, earlier: Sequence[Turn], now: float) -> list[Message]:
        return [message for turn in earlier[-self.keep :] for message in as_sent(turn)]
