"""Which block holds which prefix, and when and why it went: what the ledger needs to explain blocks one by one.

Costs a step per block cached and per block evicted, so counts alone do without it.

Knows nothing of lookups.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from cache.observer import Decision

NEVER, RESIDENT, CLEARED = -1, -2, -3
"""States of a prefix; any other is the index of the request it was evicted for."""


class BlockStates:
    """The state of every prefix, by its number."""

    def __init__(self) -> None:
        self._states = array("q")
        self._prefix_of: dict[int, int] = {}
        self._told: dict[int, Decision] = {}
        self._decisions: dict[int, dict[str, object]] = {}

    def grow(self, count: int) -> None:
        """So many more prefixes are known."""
        self._states.extend(array("q", [NEVER]) * count)

    def promoted(self, blocks: Sequence[int], first: int) -> None:
        """These blocks hold prefixes `first`, `first` + 1, … and can be found."""
        self._states[first : first + len(blocks)] = array("q", [RESIDENT]) * len(blocks)
        self._prefix_of.update(zip(blocks, range(first, first + len(blocks)), strict=True))

    def decided(self, block: int, decision: Decision) -> None:
        """A policy chose this block; `evicted` follows."""
        self._told[block] = decision

    def evicted(self, blocks: Sequence[int], now: int) -> None:
        """These blocks went for request `now`, in this order."""
        for place, block in enumerate(blocks):
            prefix = self._prefix_of.pop(block)
            self._states[prefix] = now
            words = " ".join(f"{name}={value:g}" for name, value in self._told.pop(block, {}).items())
            self._decisions[prefix] = {"decision": words or None, "victim": place, "victims": len(blocks)}

    def cleared(self) -> None:
        """Nothing can be found any more."""
        self._states = array("q", (NEVER if state == NEVER else CLEARED for state in self._states))
        self._prefix_of.clear()

    def state(self, prefix: int) -> int:
        """NEVER, RESIDENT, CLEARED, or the index of the request it was evicted for."""
        return self._states[prefix]

    def prefixes(self) -> dict[int, int]:
        """Findable blocks, and the prefix each holds."""
        return dict(self._prefix_of)

    def decision(self, prefix: int) -> dict[str, object]:
        """Why a prefix was last evicted: the policy's words, its place among the victims, how many there were."""
        return self._decisions[prefix]
