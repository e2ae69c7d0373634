"""The field stands within the instructions: what is in front of it is shared, what is behind it is not.

Knows nothing of tokens: the middle is that of the text, moved back to the end of a line.
"""

from __future__ import annotations

from experiments.layout.field.base import Field


class Middle(Field):
    """On a line of its own, half-way through the instructions."""

    def system(self, instructions: str, field: str) -> str:
        half = instructions.rfind("\n", 0, len(instructions) // 2) + 1 or len(instructions) // 2
        return f"{instructions[:half]}{field}\n{instructions[half:]}"
