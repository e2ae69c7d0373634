"""A detector looks at two prompts where they part, and answers what a person could mend there.

A new kind of instability is one new class with `_target_` in `detectors` of `conf/token_profile.yaml`.

Knows nothing of how often a kind occurs or what mending it is worth: that is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from experiments.profile.text import Edit, TokenText
from experiments.tokenizer.base import Tokenizer

LONGEST_CONTEXT = 24
"""Characters that must stand before a field for it to be the same field in another prompt."""

ENOUGH = 4
"""Characters that make a context by themselves."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Two prompts and the first place where they differ: the same in both, since what lies before is equal."""

    one: TokenText
    other: TokenText
    token: int
    char: int
    tokenizer: Tokenizer

    @property
    def texts(self) -> tuple[str, str]:
        """Both texts."""
        return self.one.text, self.other.text


class Correction(ABC):
    """One thing that could be mended in every prompt."""

    kind: str
    """What it is: "timestamp", "trailing space" …"""
    key: Hashable
    """Equal for two corrections that mend the same thing."""
    remedy: str
    """What the measured prompts have instead."""

    @abstractmethod
    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        """What to change in a prompt; nothing where it is in order already."""

    def value(self, prompt: TokenText) -> str | None:
        """What stands in a prompt now, for people; None where it has no such field."""
        for edit in self.edits(prompt):
            return prompt.text[edit.start : edit.stop]
        return None


class Detector(ABC):
    """Recognises one kind of instability."""

    @abstractmethod
    def find(self, parting: Parting) -> Correction | None:
        """What would mend the difference at a parting; None where it is of another kind."""


def context_before(text: str, char: int) -> str:
    """The text that leads to a field: at most 24 characters of its own line or sentence, if those say enough.

    Words that hold digits are left out with all before them, since they may change themselves.
    """
    words = text[max(0, char - LONGEST_CONTEXT) : char]
    for mark in ".?!\n":
        rest = words[words.rfind(mark) + 1 :]
        if len(rest.strip()) >= ENOUGH:
            words = rest
    for i in range(len(words) - 1, -1, -1):
        if words[i].isdigit():
            rest = words[i + 1 :]
            return rest[next((j for j, c in enumerate(rest) if not c.isalnum()), len(rest)) :]
    return words


def common_chars(one: str, other: str, start: int = 0) -> int:
    """The first place from `start` on where two texts differ or one of them ends."""
    end = min(len(one), len(other))
    step = 64
    while start < end:
        if one[start : start + step] == other[start : start + step]:
            start += step
            continue
        while start < end and one[start] == other[start]:
            start += 1
        return start
    return end
