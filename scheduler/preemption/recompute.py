"""Keep nothing: the request starts over, from whatever of its blocks is still cached by then.

Source: one of the two ways of Kwon et al., "Efficient memory management for large language model serving with
PagedAttention", SOSP 2023, section 4.5.
"""

from __future__ import annotations

from cache.manager import CacheManager
from scheduler.preemption.base import Preemption
from scheduler.request import Request
from scheduler.step import Step


class Recompute(Preemption):
    """Blocks are freed and computed again."""

    def save(self, request: Request, manager: CacheManager, step: Step) -> bool:
        return False
