"""Requests of another workload, read once and kept, for experiments that walk them many times.

Knows nothing of where they came from.
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
