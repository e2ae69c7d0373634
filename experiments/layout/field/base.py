"""Where the field stands that changes from request to request: the time, the user, a request's number.

Knows nothing of what the field says.
"""

from __future__ import annotations


class Field:
    """One place; the default is none at all."""

    def system(self, instructions: str, field: str) -> str:
        """The system message of a prompt whose field says `field` now."""
        return instructions

    def question(self, question: str, field: str) -> str:
        """A user's message, whose field said `field` when it was asked; it stays so in later prompts."""
        return question
