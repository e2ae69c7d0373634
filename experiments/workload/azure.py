"""Azure's LLM inference traces: when requests came and how long they were, nothing of what they said.

CSV with the columns `TIMESTAMP` (ISO 8601), `ContextTokens`, `GeneratedTokens`; others are ignored. Every prompt gets
token ids of its own, so nothing is ever shared: this workload is for arrival patterns and for the cost of caching at
0 % hits. Ids fit int32 for the first 2³¹ tokens; after that the walk stops with an error instead of wrapping.

Knows nothing of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from cache.tokens import INT32_MAX, TraceTokens
from experiments.workload.base import Request
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import Count, Length

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
UNIT = 16


class Row(msgspec.Struct):
    """One line, the names as in the file's header."""

    TIMESTAMP: str
    ContextTokens: Length
    GeneratedTokens: Count


class Azure(RecordedWorkload):
    """The 2023 and 2024 traces, `conv` and `code`."""

    source = "github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md"

    def expected_requests(self) -> int:
        return self.file.count_lines()

    def recorded(self) -> Iterator[Request]:
        next_id = 0
        for number, row in self._rows():
            num_ids = -(-row.ContextTokens // UNIT)
            if (next_id + num_ids) * UNIT > INT32_MAX + 1:
                raise self.file.problem(number, "`ContextTokens`: with this prompt, unique token ids would leave int32")
            tokens = TraceTokens(range(next_id, next_id + num_ids), row.ContextTokens, UNIT)
            next_id += num_ids
            try:
                time = datetime.fromisoformat(row.TIMESTAMP)
            except ValueError as error:
                raise self.file.problem(number, f"`TIMESTAMP`: {error}") from None
            seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
            yield Request(tokens, seconds, row.GeneratedTokens)

    def _rows(self) -> Iterator[tuple[int, Row]]:
        header: list[str] | None = None
        for number, line in self.file.lines():
            try:
                cells = [cell.strip().strip('"') for cell in line.decode("utf-8-sig").split(",")]
            except UnicodeDecodeError as error:
                raise self.file.problem(number, error) from None
            if header is None:
                header = cells
                missing = [name for name in COLUMNS if name not in header]
                if missing:
                    raise self.file.problem(number, f"the header lacks the columns {', '.join(missing)}")
                continue
            try:
                yield number, msgspec.convert(dict(zip(header, cells, strict=False)), Row, strict=False)
            except msgspec.ValidationError as error:
                raise self.file.problem(number, error) from None
