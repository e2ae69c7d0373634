"""Mooncake's public traces (FAST'25 release): real requests told by the hashes of their 512-token prefix blocks.

Row: `timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids`: ceil(input_length / 512) ids, the last
block usually partial. Other fields are ignored. The trace cannot tell two prompts apart within a block.

Knows nothing of sessions; the trace does not name them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cache.tokens import TraceTokens
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import Count, Length, Time, json_lines


class Row(msgspec.Struct):
    """One line."""

    timestamp: Time
    input_length: Length
    output_length: Count
    hash_ids: list[int]


class Mooncake(RecordedWorkload):
    """The traces `conversation`, `toolagent`, `synthetic`, and any file written like them."""

    source = "github.com/kvcache-ai/Mooncake, FAST25-release/traces"

    def __init__(
        self, path: str, unit: int = 512, limit: int | None = None, time_scale: float = 1.0, seed: int = 0
    ) -> None:
        """`unit`: tokens per hash id of the trace."""
        super().__init__(path, limit, time_scale, seed)
        check_at_least(1, unit=unit)
        self.granularity = unit

    def options(self) -> dict[str, str | int | float | bool | None]:
        return {"unit": self.granularity}

    def expected_requests(self) -> int:
        return self.file.count_lines()

    def recorded(self) -> Iterator[Request]:
        unit = self.granularity
        for number, row in json_lines(self.file, Row):
            try:
                tokens = TraceTokens(row.hash_ids, row.input_length, unit)
            except ValueError as error:
                raise self.file.problem(number, f"`hash_ids` against `input_length`: {error}") from None
            yield Request(tokens, row.timestamp / 1000, row.output_length)
