"""Copy the computed blocks to host memory, and back once there is room.

Blocks that are still cached on the device when the request returns are shared instead of copied back. A request with
several live branches, or one for which the host has no room, is recomputed; so is one whose weights changed meanwhile.

Source: the other way of Kwon et al., SOSP 2023, section 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from cache.manager import CacheManager
from scheduler.preemption.base import Preemption
from scheduler.request import Request
from scheduler.step import Step


@dataclass(frozen=True, slots=True)
class Saved:
    """Host blocks by position in the block table, and how many tokens they hold."""

    host_blocks: list[int]
    num_tokens: int


class Swap(Preemption):
    """A pool of host blocks beside the device's."""

    def __init__(self, num_host_blocks: int) -> None:
        """Raises ValueError for a negative number."""
        if num_host_blocks < 0:
            raise ValueError(f"preemption.num_host_blocks must be 0 or more, got {num_host_blocks}")
        self.num_host_blocks = num_host_blocks
        self._free = list(range(num_host_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Host blocks that hold nothing."""
        return len(self._free)

    def save(self, request: Request, manager: CacheManager, step: Step) -> bool:
        sequences = request.sequences
        if len(sequences) != 1 or len(request.live_branches) != 1:
            return False
        seq = sequences[0]
        count = manager.num_blocks_for(seq.num_computed_tokens)
        if not 0 < count <= len(self._free):
            return False
        host = [self._free.pop() for _ in range(count)]
        step.move("out", list(zip(seq.block_table, host, strict=False)))
        request.saved = Saved(host, seq.num_computed_tokens)
        return True

    def restore(self, request: Request, manager: CacheManager, step: Step) -> int:
        saved: Saved = request.saved
        seq = request.sequences[0]
        first = seq.num_computed_tokens // manager.block_size
        if saved.num_tokens > seq.num_computed_tokens:  # else the beginning of a block was found that holds as much
            step.move("in", list(zip(saved.host_blocks[first:], seq.block_table[first:], strict=False)))
        self.forget(request)
        return max(saved.num_tokens, seq.num_computed_tokens)

    def forget(self, request: Request) -> None:
        if request.saved is not None:
            self._free.extend(reversed(request.saved.host_blocks))
            request.saved = None
