"""The request whose loss costs the fewest tokens to compute again, per block that it frees.

Tokens in blocks that somebody else owns too are not lost: they stay. A request that frees nothing is no help and goes
last. Scans the victims' block tables, but only under pressure.
"""

from __future__ import annotations

from collections.abc import Sequence

from cache.manager import CacheManager
from scheduler.request import Request
from scheduler.victim.base import Victim


class CheapestRecompute(Victim):
    """Fewest computed tokens in its own blocks per freed block; the last in line on a tie."""

    def choose(self, running: Sequence[Request], manager: CacheManager) -> Request:
        return min(reversed(running), key=lambda request: self._cost(request, manager))

    @staticmethod
    def _cost(request: Request, manager: CacheManager) -> tuple[float, int]:
        size, owners = manager.block_size, dict[int, int]()
        computed: dict[int, int] = {}
        for seq in request.sequences:
            for i, block in enumerate(seq.block_table):
                owners[block] = owners.get(block, 0) + 1
                done = min(max(seq.num_computed_tokens - i * size, 0), size)
                computed[block] = max(computed.get(block, 0), done)
        freed = [block for block, count in owners.items() if manager.ref_count(block) == count]
        lost = sum(computed[block] for block in freed)
        return (lost / len(freed), lost) if freed else (float("inf"), 0)
