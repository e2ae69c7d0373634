"""How vocabularies spell bytes: GPT-2's alphabet of printable stand-ins, and SentencePiece's underscores.

Knows nothing of any one tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SPACE = "▁"
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Stand-in character → byte. Printable Latin-1 stands for itself; the other bytes take U+0100 and on, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def byte_level(piece: str, alphabet: Mapping[str, int]) -> bytes:
    """A piece in GPT-2's alphabet as bytes; characters outside the alphabet (added tokens) as UTF-8."""
    if all(character in alphabet for character in piece):
        return bytes(alphabet[character] for character in piece)
    return piece.encode("utf-8", "replace")


def sentence_piece(piece: str) -> bytes:
    """A piece of SentencePiece as bytes: `▁` is a space, `<0x0A>` one byte."""
    single = BYTE.fullmatch(piece)
    return bytes([int(single[1], 16)]) if single else piece.replace(SPACE, " ").encode("utf-8", "replace")
