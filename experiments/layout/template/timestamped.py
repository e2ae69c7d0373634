"""A template that tells the model what time it is, in front of the instructions, as several published ones do.

How much is lost is decided by how often the text changes: with the day, the minute or the second.

Knows nothing of the instructions.
"""

from __future__ import annotations

from datetime import datetime

from experiments.layout.template.base import Template


class Timestamped(Template):
    """The time in the form of `strftime`."""

    def __init__(self, form: str = "Now: %Y-%m-%d %H:%M:%S") -> None:
        self.form = form

    def system(self, content: str, clock: datetime) -> str:
        return f"{clock.strftime(self.form)}\n\n{content}"
