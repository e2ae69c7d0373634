"""What a workload is: a stream of requests, the same ones every time it is walked.

Knows nothing of caches: block size, pool and policy come later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from cache.access import Retention
from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.tokens import TokenIds
from experiments.workload.checks import check_at_least


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt: its token ids, its arrival in seconds from the start, and what is known of where it came from."""

    tokens: TokenIds
    arrival: float = 0.0
    num_output_tokens: int = 0
    session: str | None = None
    turn: int = 0
    category: str | None = None
    extra_keys: ExtraKeys = NO_EXTRA_KEYS
    priority: int = 0
    retention: tuple[Retention, ...] = ()
    last_turn: bool = False


class Workload(ABC):
    """Requests in file order. Subclasses stream them in `requests`; walking the workload twice gives them twice.

    `granularity` is the number of tokens below which the workload cannot tell two prompts apart (1 for real tokens,
    the trace's own block for traces of block hashes).
    """

    granularity: int = 1

    def __init__(self, limit: int | None = None, time_scale: float = 1.0, seed: int = 0) -> None:
        """`limit`: only the first so many requests; `time_scale`: arrivals are multiplied by it (0.5 = twice the load).

        Raises ValueError for a negative limit or seed, or a time scale that is not a positive finite number.
        """
        check_at_least(0, limit=0 if limit is None else limit, seed=seed)
        check_at_least(0.0, time_scale=time_scale)
        if time_scale == 0:
            raise ValueError("workload.time_scale must be more than 0")
        self.limit = limit
        self.time_scale = time_scale
        self.seed = seed

    def __iter__(self) -> Iterator[Request]:
        for request in islice(self.requests(), self.limit):
            yield request if self.time_scale == 1.0 else replace(request, arrival=request.arrival * self.time_scale)

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """All requests from the start, before `limit` and `time_scale`."""

    def expected_requests(self) -> int | None:
        """About how many requests there are before `limit`, where that is cheap to know: for showing progress."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything that decides the token ids: file contents or parameters, seed and limit.

        Two records may only be compared where their fingerprints are equal.
        """
