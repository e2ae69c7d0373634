"""Some requests of another workload, already in hand, as a workload: a sample of them, or all for one more walk.

Where a whole workload is to be read once for many jobs, `kept.py` does it. Knows nothing of how they were chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.workload.base import Request, Workload


class Given(Workload):
    """The given requests, as they are."""

    def __init__(self, requests: Sequence[Request], like: Workload) -> None:
        """`like`: whose granularity and fingerprint are told."""
        super().__init__()
        self.kept = requests
        self.granularity = like.granularity
        self._fingerprint = like.fingerprint

    def requests(self) -> Iterator[Request]:
        return iter(self.kept)

    def fingerprint(self) -> str:
        return self._fingerprint()
