"""The field closes the instructions: they are shared, the turns behind them are not. Knows nothing of those turns."""

from __future__ import annotations

from experiments.layout.field.base import Field


class Last(Field):
    """Behind the instructions, still in the system message."""

    def system(self, instructions: str, field: str) -> str:
        return f"{instructions}\n\n{field}"
