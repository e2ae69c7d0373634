"""When a branch ends because of what it said: end-of-sequence and stop tokens, stop strings if there is a tokenizer.

Knows nothing of lengths; those are known in advance and kept in the calendar of `decoding.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.sampling import SamplingParams

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

MARGIN = 8
"""Tokens decoded beyond the longest stop string, since a character may be spread over several of them."""


class StopRules:
    """End-of-sequence ids of the model, and how ids become text."""

    def __init__(self, eos_ids: Sequence[int] = (), decode: Decode | None = None) -> None:
        self.eos_ids = frozenset(eos_ids)
        self.decode = decode

    def ends(self, params: SamplingParams, outputs: array[int]) -> bool:
        """Whether the newest of these output tokens ends them."""
        if self._is_final(params, outputs[-1]):
            return True
        if not params.stop or self.decode is None:
            return False
        window = max(len(stop.encode()) for stop in params.stop) + MARGIN
        text = self.decode(outputs[-window:].tolist())
        return any(stop in text for stop in params.stop)

    def text(self, params: SamplingParams, outputs: Sequence[int]) -> str:
        """What was said: without the token that ended it, and cut before the first stop string."""
        if self.decode is None:
            return ""
        ids = list(outputs)
        if ids and self._is_final(params, ids[-1]):
            ids.pop()
        text = self.decode(ids)
        found = [at for stop in params.stop if (at := text.find(stop)) >= 0]
        return text[: min(found)] if found else text

    def _is_final(self, params: SamplingParams, token: int) -> bool:
        return token in params.stop_token_ids or (not params.ignore_eos and token in self.eos_ids)
