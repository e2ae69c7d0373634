"""What all recorded workloads share: one file, arrivals counted from the first request, a fingerprint.

File order is kept, since it is what replay means. A timestamp that goes backwards therefore cannot make a request
arrive before the one in front of it: it arrives together with it.

Knows nothing of any file's schema.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from experiments.workload.base import Request, Workload
from experiments.workload.files import TraceFile
from experiments.workload.fingerprint import fingerprint


class RecordedWorkload(Workload):
    """Requests of one file. Subclasses name the file's public source (None: the user's own) and yield in `recorded`."""

    source: ClassVar[str | None]

    def __init__(self, path: str, limit: int | None = None, time_scale: float = 1.0, seed: int = 0) -> None:
        """`path`: the file, gzip or plain; it is opened when the workload is walked, not before."""
        super().__init__(limit, time_scale, seed)
        self.file = TraceFile(path, self.source)

    @abstractmethod
    def recorded(self) -> Iterator[Request]:
        """The file's requests, read as they are asked for; arrivals in seconds from any origin."""

    def requests(self) -> Iterator[Request]:
        """Requests with arrivals from 0. Raises UserError for everything that is wrong with the file."""
        start, clock = None, 0.0
        for request in self.recorded():
            if start is None:
                start = request.arrival
            clock = max(clock, request.arrival - start)
            yield request if clock == request.arrival else replace(request, arrival=clock)
        if start is None:
            raise self.file.empty()

    def options(self) -> dict[str, str | int | float | bool | None]:
        """Constructor arguments, besides `limit` and `seed`, that change token ids or their order."""
        return {}

    def fingerprint(self) -> str:
        """Digest of the file's content and the options."""
        return fingerprint(self, file=self.file.sha256(), **self.options())
