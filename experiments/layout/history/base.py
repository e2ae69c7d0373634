"""How earlier turns are written into a later prompt.

Knows nothing of the system message or of the newest question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from experiments.layout.script import Turn

Message = tuple[str, str]
"""Role and content."""


class History(ABC):
    """One way to tell a conversation again."""

    @abstractmethod
    def messages(self, earlier: Sequence[Turn], now: float) -> list[Message]:
        """Messages for the earlier turns, whose questions are as they were sent; `now`: seconds from the start."""


def as_sent(turn: Turn) -> list[Message]:
    """A turn as it was when it was new."""
    return [("user", turn.question), ("assistant", turn.reply)]
