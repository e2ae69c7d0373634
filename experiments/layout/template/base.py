"""What a chat template adds to the system message by itself.

Knows nothing of roles or special tokens: those are the tokenizer's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime


class Template(ABC):
    """One template."""

    @abstractmethod
    def system(self, content: str, clock: datetime) -> str:
        """The system message that a prompt rendered at that time begins with."""
