"""The ledger's counts, request by request: why the blocks of one lookup hit or missed.

A ledger counts each request's first lookup as a whole, so what a lookup added is the difference to the counts before.

Knows nothing of reasons, and keeps nothing of past requests.
"""

from __future__ import annotations

from cache.ledger import Ledger
from cache.sequence import Sequence


class RequestReasons:
    """Call it once after each request's first allocation."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._before = dict(ledger.counts)

    def __call__(self, seq: Sequence) -> dict[str, int]:
        """Blocks by reason, those that occurred; they add up to the full blocks of the sequence just allocated."""
        counts, before = self.ledger.counts, self._before
        self._before = dict(counts)
        return {reason: count - before[reason] for reason, count in counts.items() if count != before[reason]}
