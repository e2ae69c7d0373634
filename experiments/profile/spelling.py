"""Differences nobody sees: white space at the end of a line, carriage returns, characters without a shape.

Knows nothing of fields; these are mended wherever they occur.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from experiments.profile.detector import Correction, Detector, Parting, context_before
from experiments.profile.text import Edit, TokenText

AGREE = 4
"""Characters that must agree behind a difference for it to be only a matter of white space."""


class EverywhereCorrection(Correction):
    """A pattern replaced by a text, in all prompts and at all places."""

    def __init__(self, kind: str, pattern: str, new: str, remedy: str) -> None:
        self.kind, self.key, self.remedy = kind, (kind, pattern), remedy
        self._pattern, self._new = re.compile(pattern), new

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        return [Edit(match.start(), match.end(), self._new) for match in self._pattern.finditer(prompt.text)]


class SpaceCorrection(Correction):
    """One width of white space behind a text that leads to it."""

    def __init__(self, context: str, new: str) -> None:
        self.kind, self.key, self.remedy = "white space", ("white space", context), f"always {new!r} there"
        self._context, self._new = context, new

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        found, text = [], prompt.text
        for match in re.finditer(rf"(?<={re.escape(self._context)})\s+", text) if self._context else ():
            if match[0] != self._new:
                found.append(Edit(match.start(), match.end(), self._new))
        return found


class Spacing(Detector):
    """Runs of white space that differ while what follows agrees."""

    def find(self, parting: Parting) -> Correction | None:
        one, other = parting.texts
        start = parting.char
        while start and one[start - 1].isspace():
            start -= 1
        mine, theirs = _space(one, start), _space(other, start)
        if mine == theirs:
            return None
        rest, more = one[start + len(mine) :], other[start + len(theirs) :]
        if rest[:AGREE] != more[:AGREE] or (not rest[:AGREE] and not mine.strip(" \t") == theirs.strip(" \t") == ""):
            return None
        if mine.replace("\r\n", "\n") == theirs.replace("\r\n", "\n"):
            return EverywhereCorrection("carriage return", r"\r\n", "\n", "line feeds alone")
        if mine.lstrip(" \t") == theirs.lstrip(" \t") and self._ends_line(parting, rest, mine, theirs):
            ends = "|".join(re.escape(text) for text in parting.tokenizer.special.values()) or r"(?!)"
            return EverywhereCorrection("trailing space", rf"[ \t]+(?=\r?\n|\Z|{ends})", "", "none")
        return SpaceCorrection(context_before(one, start), min(mine, theirs, key=len) or " ")

    @staticmethod
    def _ends_line(parting: Parting, rest: str, mine: str, theirs: str) -> bool:
        special = parting.tokenizer.special.values()
        return "\n" in mine + theirs or not rest or any(rest.startswith(text) for text in special)


class Invisible(Detector):
    """Zero-width characters, byte order marks, no-break spaces and their like."""

    def find(self, parting: Parting) -> Correction | None:
        for text in parting.texts:
            character = text[parting.char : parting.char + 1]
            if character and is_invisible(character):
                new = " " if unicodedata.category(character) == "Zs" else ""
                name = f"{unicodedata.name(character, 'a control character')} (U+{ord(character):04X})"
                remedy = "a plain space" if new else "none"
                return EverywhereCorrection(f"invisible character: {name}", re.escape(character), new, remedy)
        return None


def is_invisible(character: str) -> bool:
    """A character that shows as nothing or as a common space, though it is neither space nor line end nor tab."""
    if character in " \n\r\t":
        return False
    return unicodedata.category(character) in ("Cf", "Zs", "Cc", "Zl", "Zp")


def _space(text: str, start: int) -> str:
    stop = start
    while stop < len(text) and text[stop] in " \t\r\n":
        stop += 1
    return text[start:stop]
