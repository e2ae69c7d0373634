"""No field: what a prompt costs that says nothing of time or user. Knows nothing else."""

from __future__ import annotations

from experiments.layout.field.base import Field


class Absent(Field):
    """The instructions and the question as they are."""
