"""JSON whose keys, or whose list of tools, come in another order each time.

Both prompts must hold the same JSON value once object keys and lists of named objects are put in order. Mended, every
such value is written in that order.

Knows nothing of tools beyond that they have names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.profile.detector import Correction, Detector, Parting
from experiments.profile.text import Edit, TokenText

FURTHEST = 20_000
"""Characters before a parting in which its JSON may begin."""
MOST_OPENINGS = 200
MOST_VALUES = 2_000
"""Places in one text where a value is tried."""
SMALLEST = 12
"""Characters; shorter values are not worth a line."""


class OrderCorrection(Correction):
    """Every JSON value of a prompt in one order."""

    key = "json order"
    remedy = "sorted"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        found = []
        for start, stop, value in values(prompt.text):
            ordered = json.dumps(in_order(value), ensure_ascii=False)
            if ordered != prompt.text[start:stop]:
                found.append(Edit(start, stop, ordered))
        return found

    def value(self, prompt: TokenText) -> str | None:
        for start, stop, _ in values(prompt.text):
            return prompt.text[start : min(stop, start + 40)]
        return None


class JsonOrder(Detector):
    """Shuffled keys of an object or shuffled tools of a list."""

    def find(self, parting: Parting) -> Correction | None:
        one, other = parting.texts
        for start in self._openings(one, parting.char):
            mine, theirs = _value(one, start), _value(other, start)
            if mine is None or theirs is None or mine[1] <= parting.char:
                continue
            if in_order(mine[0]) == in_order(theirs[0]):
                same_keys = json.dumps(_keys_in_order(mine[0])) == json.dumps(_keys_in_order(theirs[0]))
                return OrderCorrection("shuffled JSON keys" if same_keys else "shuffled tools")
        return None

    @staticmethod
    def _openings(text: str, char: int) -> list[int]:
        """Where a value around the parting may begin, the outermost first."""
        places: list[int] = []
        at = char
        while len(places) < MOST_OPENINGS:
            at = max(text.rfind("{", max(0, char - FURTHEST), at), text.rfind("[", max(0, char - FURTHEST), at))
            if at < 0:
                break
            places.append(at)
        return places[::-1]


def values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Start, stop and value of every outermost JSON object or list in a text."""
    at = 0
    for _ in range(MOST_VALUES):
        places = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
        if not places:
            return
        start = min(places)
        found = _value(text, start)
        if found is None or found[1] - start < SMALLEST:
            at = start + 1
            continue
        yield start, found[1], found[0]
        at = found[1]


def in_order(value: Any) -> Any:
    """The value with object keys sorted and lists of named objects sorted by their JSON."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        items = [in_order(item) for item in value]
        return sorted(items, key=json.dumps) if items and all(isinstance(item, dict) for item in items) else items
    return value


def _keys_in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys_in_order(value[key]) for key in sorted(value)}
    return [_keys_in_order(item) for item in value] if isinstance(value, list) else value


def _value(text: str, start: int) -> tuple[Any, int] | None:
    """The object or list that begins at `start`, and where it ends."""
    try:
        value, stop = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (value, stop) if isinstance(value, dict | list) and value else None
