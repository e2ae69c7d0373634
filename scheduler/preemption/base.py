"""Before a preempted request loses its blocks, something may be kept of them; before it goes on, that may come back.

Knows nothing of who is preempted, or why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from cache.manager import CacheManager
from scheduler.request import Request
from scheduler.step import Step


class Preemption(ABC):
    """An instance serves one scheduler."""

    @abstractmethod
    def save(self, request: Request, manager: CacheManager, step: Step) -> bool:
        """Called while it still holds its blocks. True where its K and V are kept: it is swapped out, then."""

    def restore(self, request: Request, manager: CacheManager, step: Step) -> int:
        """Called once it holds blocks again, for one that was saved. Returns how many of its tokens have K and V."""
        raise NotImplementedError(f"{type(self).__name__} keeps nothing that could come back")

    def forget(self, request: Request) -> None:
        """It will not come back: aborted, or its weights are gone."""
        return
