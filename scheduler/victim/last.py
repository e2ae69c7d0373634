"""The request that is last in line: what most engines do, since it has usually the least to lose."""

from __future__ import annotations

from collections.abc import Sequence

from cache.manager import CacheManager
from scheduler.request import Request
from scheduler.victim.base import Victim


class Last(Victim):
    """Highest rank."""

    def choose(self, running: Sequence[Request], manager: CacheManager) -> Request:
        return running[-1]
