"""Alibaba's Bailian traces: chats of a Qwen service told by the hashes of their 16-token prefix blocks.

Row: `chat_id`, `parent_chat_id` (-1 for the first request of a session), `timestamp` in seconds, `input_length`,
`output_length`, `type`, `turn`, `hash_ids`. Both ways to count ids are understood: ceil(input_length / 16), the last
block partial, or floor(input_length / 16), full blocks only; then the tail's tokens belong to the request alone.

Knows nothing of block sizes below 16: inside a block the trace cannot tell two prompts apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cache.tokens import INT32_MAX, TraceTokens
from experiments.workload.base import Request
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import Count, Length, Time, json_lines

UNIT = 16


class Row(msgspec.Struct):
    """One line."""

    chat_id: int
    parent_chat_id: int
    timestamp: Time
    input_length: Length
    output_length: Count
    type: str
    turn: Count
    hash_ids: list[int]


class Bailian(RecordedWorkload):
    """One file of the release; a session is a chain of `parent_chat_id`, named after the first chat seen of it."""

    source = "github.com/alibaba-edu/qwen-bailian-usagetraces-anon"
    granularity = UNIT

    def expected_requests(self) -> int:
        return self.file.count_lines()

    def recorded(self) -> Iterator[Request]:
        first_chat: dict[int, int] = {}
        tail = (INT32_MAX + 1) // UNIT  # tails are named from the top down; no id of the trace may reach them
        highest = -1
        for number, row in json_lines(self.file, Row):
            ids = row.hash_ids
            highest = max(highest, *ids) if ids else highest
            if row.input_length % UNIT and len(ids) == row.input_length // UNIT:
                tail -= 1
                ids = [*ids, tail]
            if highest >= tail:
                raise self.file.problem(number, f"`hash_ids`: ids must stay below {tail} to fit int32, got {highest}")
            try:
                tokens = TraceTokens(ids, row.input_length, UNIT)
            except ValueError as error:
                raise self.file.problem(number, f"`hash_ids` against `input_length`: {error}") from None
            parent = row.parent_chat_id
            session = first_chat.get(parent, row.chat_id if parent < 0 else parent)
            first_chat[row.chat_id] = session
            yield Request(tokens, row.timestamp, row.output_length, str(session), row.turn, row.type)
