"""Tokens for the eye: boundaries, special tokens and characters without a shape all become visible.

Knows nothing of colours or pages.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from experiments.profile.spelling import is_invisible
from experiments.profile.text import Pieces

BOUNDARY = "▏"
LONGEST = 40
"""Characters of one token that are shown."""
MARKS = {" ": "·", "\n": "↵", "\t": "→", "\r": "␍"}


def visible(text: str, marks: bool = True) -> str:
    """Text with invisible characters named, ⟨ZERO WIDTH SPACE⟩; with `marks`, spaces and line ends drawn too."""
    return "".join(_one(character, marks) for character in text)


def show_token(token: int, pieces: Pieces | None) -> str:
    """One token; bytes that are no text by themselves as ⟨E2 80⟩, ids without a vocabulary as ⟨123⟩."""
    if pieces is None or pieces.unknown(token):
        return f"⟨{token}⟩"
    piece = pieces[token]
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        return f"⟨{piece.hex(' ').upper()}⟩"
    shown = visible(text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…({len(text)} characters)"


def show_tokens(tokens: Iterable[int], pieces: Pieces | None) -> str:
    """Tokens in a row with the boundaries between them."""
    return BOUNDARY.join(show_token(token, pieces) for token in tokens)


def excerpt(tokens: list[int], pieces: Pieces | None, longest: int = 60) -> str:
    """The end of a run of tokens as text, for a label."""
    if pieces is None or any(pieces.unknown(token) for token in tokens[-longest:]):
        return show_tokens(tokens[-6:], None)
    text = b"".join(pieces[token] for token in tokens[-longest:]).decode("utf-8", "replace")
    shown = visible(text, marks=False).replace("\n", "↵")
    return shown if len(shown) <= longest else f"…{shown[-longest:]}"


def _one(character: str, marks: bool) -> str:
    if character in MARKS:
        return MARKS[character] if marks else character
    if is_invisible(character):
        return f"⟨{unicodedata.name(character, f'U+{ord(character):04X}')}⟩"
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= ord(character) <= 0xDFFF else character
