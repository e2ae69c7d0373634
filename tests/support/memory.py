"""A KV memory made of prefixes: what each slot holds is the whole prefix it was computed from.

Any block handed to the wrong sequence, written while shared, or found under a wrong key shows as a wrong prefix.
"""

from __future__ import annotations

from typing import Any

from cache.manager import BlockCopy, CacheManager
from cache.sequence import Sequence


class Memory:
    def __init__(self, manager: CacheManager) -> None:
        self.manager = manager
        self.slots: dict[int, Any] = {}

    def compute(self, seq: Sequence, start: int, stop: int, stale: bool) -> None:
        """Write the K and V of tokens `start` to `stop`; `stale` weights write something no one else may ever read."""
        tokens = seq.token_ids()
        for position, slot in zip(range(start, stop), self.manager.slot_mapping(seq, start, stop), strict=True):
            self.slots[slot] = object() if stale else self.value(seq, tokens[: position + 1])

    def copy(self, copies: list[BlockCopy]) -> None:
        size = self.manager.block_size
        for source, destination in copies:
            for offset in range(size):
                self.slots[destination * size + offset] = self.slots.get(source * size + offset)

    def read(self, seq: Sequence, stop: int) -> list[Any]:
        return [self.slots.get(slot) for slot in self.manager.slot_mapping(seq, 0, stop)]

    def expected(self, seq: Sequence, stop: int) -> list[Any]:
        tokens = seq.token_ids()
        return [self.value(seq, tokens[: position + 1]) for position in range(stop)]

    def value(self, seq: Sequence, prefix: list[int]) -> Any:
        return seq.extra_keys, self.manager.weights_version, tuple(prefix)
