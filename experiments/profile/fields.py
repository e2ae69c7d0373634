"""Fields that change from prompt to prompt and are recognised by how they are written: times, ids, numbers.

A field is a kind and the text that leads to it ("timestamp behind `Current time: `"), so the same words elsewhere stay
as they are. Mended, all prompts have one and the same value.

Knows nothing of what a changing value means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.profile.detector import Correction, Detector, Parting, context_before
from experiments.profile.text import Edit, TokenText

BEFORE, BEHIND = 100, 160
"""Characters around the parting in which a field must lie."""
NEAR = 8
"""Characters by which a field without any leading text may move."""


class FieldCorrection(Correction):
    """One value for all prompts."""

    def __init__(self, kind: str, pattern: re.Pattern[str], context: str, value: str, char: int) -> None:
        self.kind = kind
        self.key = (kind, context if context.strip() else char)
        self.remedy = f"always {value}" if len(value) <= 40 else "always the same value"
        self.context = context
        self._pattern, self._value, self._char = pattern, value, char

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        if self.context.strip():
            return self._behind_context(prompt.text)
        for match in self._pattern.finditer(prompt.text, max(0, self._char - BEFORE), self._char + BEHIND):
            if abs(match.start() - self._char) <= NEAR:
                return self._edit(match)
        return []

    def _behind_context(self, text: str) -> list[Edit]:
        found, at = [], text.find(self.context)
        while at >= 0:
            start = at + len(self.context)
            match = self._pattern.match(text, start)
            if match:
                found += self._edit(match)
                start = match.end()
            at = text.find(self.context, start)
        return found

    def _edit(self, match: re.Match[str]) -> list[Edit]:
        return [] if match[0] == self._value else [Edit(match.start(), match.end(), self._value)]


class Field(Detector):
    """Values of one kind, told by a pattern."""

    def __init__(self, kind: str, pattern: str) -> None:
        """`pattern`: a regular expression in verbose form; it must not match across lines."""
        self.kind = kind
        self._pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9_])", re.VERBOSE)

    def find(self, parting: Parting) -> Correction | None:
        one, other = parting.texts
        mine, theirs = self._around(one, parting.char), self._around(other, parting.char)
        if mine is None or theirs is None or mine.start() != theirs.start():
            return None
        start = mine.start()
        return FieldCorrection(self.kind, self._pattern, context_before(one, start), theirs[0], start)

    def _around(self, text: str, char: int) -> re.Match[str] | None:
        for match in self._pattern.finditer(text, max(0, char - BEFORE), char + BEHIND):
            if match.start() <= char <= match.end():
                return match
            if match.start() > char:
                break
        return None
