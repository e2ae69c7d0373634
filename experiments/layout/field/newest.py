"""The field goes with the question it was asked with: instructions and earlier turns stay as they were.

Knows nothing of the history; whether an old message keeps its field is decided by always writing it the same.
"""

from __future__ import annotations

from experiments.layout.field.base import Field


class Newest(Field):
    """Behind the text of a user's message."""

    def question(self, question: str, field: str) -> str:
        return f"{question}\n\n{field}"
