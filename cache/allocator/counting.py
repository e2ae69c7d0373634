"""Reference counts block by block: what allocators that look at every block on its own have in common.

Knows nothing of what a block holds.
"""

from __future__ import annotations

from cache.allocator.base import Allocator
from cache.errors import MisuseError
from cache.sequence import Sequence


class CountingAllocator(Allocator):
    """One counter per block that was ever taken."""

    def __init__(self, num_blocks: int | float, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._refs: list[int] = []

    def ref_count(self, block: int) -> int:
        return self._refs[block] if block < len(self._refs) else 0

    def is_shared(self, block: int) -> bool:
        return self._refs[block] > 1

    def share(self, seq: Sequence) -> None:
        refs = self._refs
        for block in seq.block_table:
            refs[block] += 1

    def take(self, count: int) -> list[int]:
        blocks = super().take(count)
        refs = self._refs
        new = self._num_touched - len(refs)
        if new:
            refs.extend([0] * new)
            self._grow(new)
        for block in blocks:
            refs[block] = 1
        return blocks

    def _grow(self, count: int) -> None:
        """`count` blocks are used for the first time: make room for what is kept per block."""

    def _released_too_often(self, block: int) -> MisuseError:
        return MisuseError(f"block {block} was released more often than it was taken")
