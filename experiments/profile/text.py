"""Tokens as text and back: which token a character lies in, and how to change some characters without the rest.

An edit re-tokenises only the lines it touches: between a line feed and what is no white space every byte-level
pre-tokeniser cuts anyway, so the outcome is that of tokenising the whole text anew (the tests compare the two), at a
fraction of the cost. Special tokens appear as they are written, and are themselves again when re-tokenised.

Knows nothing of what is worth changing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from experiments.tokenizer.base import Tokenizer

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters `start` to `stop` become `new`."""

    start: int
    stop: int
    new: str


class Pieces:
    """The bytes of each token, asked for once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._known: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        piece = self._known.get(token)
        if piece is None:
            piece = self.tokenizer.piece(token)
            piece = self._known[token] = UNKNOWN.encode() if piece is None else piece
        return piece

    def unknown(self, token: int) -> bool:
        """Whether the vocabulary lacks the id."""
        return self.tokenizer.piece(token) is None


class TokenText:
    """One prompt, as ids and as text."""

    def __init__(self, ids: Sequence[int], pieces: Pieces) -> None:
        self.ids = list(ids)
        self._pieces = pieces

    @cached_property
    def parts(self) -> list[bytes]:
        """The bytes of every token."""
        return [self._pieces[token] for token in self.ids]

    @cached_property
    def text(self) -> str:
        """The whole text; a byte that is no UTF-8 is one surrogate, so that none is lost."""
        return b"".join(self.parts).decode("utf-8", "surrogateescape")

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.parts)))

    def char_of(self, token: int) -> int:
        """Where the token begins in the text, in characters; inside a character counts as at its start."""
        before = b"".join(self.parts[:token]).decode("utf-8", "surrogateescape")
        while not self.text.startswith(before):  # it ends within a character
            before = before[:-1]
        return len(before)

    def token_of(self, char: int) -> int:
        """The token in which a character begins; the number of tokens for the end of the text."""
        return bisect_right(self._ends, _num_bytes(self.text[:char]))

    def edited(self, edits: Sequence[Edit]) -> list[int]:
        """Ids after the edits, which come in order and do not overlap."""
        ids: list[int] = []
        done, waiting = 0, list(edits)
        while waiting:
            first = waiting.pop(0)
            start, group, stop = self._line_start(first.start, done), [first], self._line_stop(first.stop)
            while waiting and self.token_of(waiting[0].start) <= stop:
                group.append(waiting.pop(0))
                stop = max(stop, self._line_stop(group[-1].stop))
            ids += self.ids[done:start]
            ids += self._again(start, stop, group)
            done = stop
        return ids + self.ids[done:]

    def _again(self, start: int, stop: int, edits: Sequence[Edit]) -> list[int]:
        parts, at = [], self.char_of(start)
        for edit in edits:
            parts += [self.text[at : edit.start], edit.new]
            at = edit.stop
        text = "".join([*parts, self.text[at : self.char_of(stop)]])
        return self._pieces.tokenizer.encode(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))

    def _line_start(self, char: int, least: int) -> int:
        """The last token that begins before the character and a line, or at it and behind a special token."""
        special, parts, at = self._pieces.tokenizer.special, self.parts, _num_bytes(self.text[:char])
        for k in range(min(self.token_of(char), len(parts) - 1), least, -1):
            begins = self._ends[k - 1]
            if begins <= at and self.ids[k - 1] in special:
                return k
            if (
                begins < at
                and parts[k - 1].endswith(b"\n")
                and not parts[k][:1].isspace()
                and self.ids[k] not in special
            ):
                return k
        return least

    def _line_stop(self, char: int) -> int:
        """The first token that begins behind the character and ends a line, or at it and is special."""
        special, parts, at = self._pieces.tokenizer.special, self.parts, _num_bytes(self.text[:char])
        for k in range(max(self.token_of(char), 1), len(parts)):
            begins = self._ends[k - 1]
            if begins >= at and self.ids[k] in special:
                return k
            if begins > at and parts[k].startswith(b"\n") and not parts[k - 1][-1:].isspace():
                return k
        return len(parts)


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
