"""Whom to preempt.

The scheduler never offers the request that is first in line, so that somebody always gets on,
whatever a policy chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from cache.manager import CacheManager
from scheduler.request import Request


class Victim(ABC):
    """A choice among running requests."""

    @abstractmethod
    def choose(self, running: Sequence[Request], manager: CacheManager) -> Request:
        """One of `running`, which is not empty and sorted by the order policy's rank."""
