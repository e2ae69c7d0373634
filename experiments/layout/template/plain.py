"""A template that writes what it is given, as SmolLM2's own does. Knows nothing of time."""

from __future__ import annotations

from datetime import datetime

from experiments.layout.template.base import Template


class Plain(Template):
    """Nothing is added."""

    def system(self, content: str, clock: datetime) -> str:
        return content
