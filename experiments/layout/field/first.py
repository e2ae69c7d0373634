"""The field opens the prompt: everything behind it is new with every request. Knows nothing of how long it is."""

from __future__ import annotations

from experiments.layout.field.base import Field


class First(Field):
    """In front of the instructions."""

    def system(self, instructions: str, field: str) -> str:
        return f"{field}\n\n{instructions}"
