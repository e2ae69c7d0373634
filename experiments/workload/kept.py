"""One workload in memory for all jobs of a process: a sweep over policies reads and tokenises its trace once.

What is kept is named by all arguments and by the content (`fingerprint`), so no job can see another one's requests.
Only the latest workload is kept, and none of more than `MOST_TOKENS` prompt tokens.

Knows nothing of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from experiments.workload.base import Request, Workload

MOST_TOKENS = 10**9
"""4 GB where every prompt is packed token ids; traces of block ids take far less."""


class Kept(Workload):
    """The requests of another workload, made at the first walk and held for the next ones."""

    def __init__(self, source: Workload) -> None:
        super().__init__(source.limit, source.time_scale, source.seed)
        self._source = source
        self._requests: list[Request] | None = None
        self.granularity = source.granularity

    def __iter__(self) -> Iterator[Request]:
        if self._requests is not None:
            yield from self._requests
            return
        held: list[Request] | None = []
        num_tokens = 0
        for request in self._source:
            if held is not None:
                held.append(request)
                num_tokens += len(request.tokens)
                if num_tokens > MOST_TOKENS:
                    held = None
            yield request
        self._requests = held  # only a whole walk counts

    def requests(self) -> Iterator[Request]:
        return self._source.requests()

    def expected_requests(self) -> int | None:
        return self._source.expected_requests()

    def fingerprint(self) -> str:
        return self._source.fingerprint()


def kept_workload(cfg: DictConfig) -> Workload:
    """The workload that a yaml names; the same object as last time where nothing about it has changed."""
    return _latest(OmegaConf.to_yaml(cfg, resolve=True), instantiate(cfg).fingerprint())


@lru_cache(maxsize=1)
def _latest(yaml: str, fingerprint: str) -> Workload:
    """`fingerprint` only tells contents apart that the yaml does not, such as a file that was written anew."""
    return Kept(instantiate(OmegaConf.create(yaml)))
