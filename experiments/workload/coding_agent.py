"""64 recorded sessions of a coding agent (kv-cache-tester, repacked): 64-token blocks, prompts up to 200k tokens.

One session a line: `id`, `block_size`, `requests`: [t seconds, in, out, api_time, think_time, type, model, ids]. Ids
come as runs [first, count], are local to the session and name full blocks only: floor(in / 64) of them. So
- ids are moved to a range of the session's own, and nothing is ever shared between sessions;
- the tail of in % 64 tokens gets an id nobody else has: what it says is unknown, so it is shared with nothing.

Sessions are put on one clock: session i, in file order from 0, starts at i·session_gap seconds.

Knows nothing of what the tokens say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from cache.tokens import INT32_MAX, TraceTokens
from experiments.errors import UserError
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.interleave import interleave
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import Count, Length, Time, json_lines

LEGEND = " (places in a request: 0 t, 1 in, 2 out, 3 api_time, 4 think_time, 5 type, 6 model, 7 ids)"


class Call(msgspec.Struct, array_like=True):
    """One request, as an array."""

    t: Time
    num_in: Length
    num_out: Count
    api_time: Time | None
    think_time: Time | None
    type: str
    model: str
    runs: list[tuple[Count, Length]]


class Session(msgspec.Struct):
    """One line."""

    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    requests: list[Call]


class CodingAgent(RecordedWorkload):
    """The sessions merged by (i·session_gap + t, i, place in the session)."""

    source = "github.com/callanjfox/kv-cache-tester, repacked one session a line"
    granularity = 64

    def __init__(
        self, path: str, session_gap: float = 60.0, limit: int | None = None, time_scale: float = 1.0, seed: int = 0
    ) -> None:
        """`session_gap`: seconds between the starts of two sessions."""
        super().__init__(path, limit, time_scale, seed)
        check_at_least(0.0, session_gap=session_gap)
        self.session_gap = session_gap

    def options(self) -> dict[str, str | int | float | bool | None]:
        return {"session_gap": self.session_gap}

    def recorded(self) -> Iterator[Request]:
        for arrival, (line, session, turn, base, tail) in interleave(self._sessions(), self.session_gap):
            call = session.requests[turn]
            ids = [i for first, count in call.runs for i in range(base + first, base + first + count)]
            if len(ids) != call.num_in // session.block_size:
                raise self._problem(
                    line,
                    turn,
                    f"{call.num_in} tokens hold {call.num_in // session.block_size} full blocks, got {len(ids)}",
                )
            if call.num_in % session.block_size:
                ids.append(tail)
            try:
                tokens = TraceTokens(ids, call.num_in, session.block_size)
            except ValueError as error:
                raise self._problem(line, turn, error) from None
            yield Request(tokens, arrival, call.num_out, session.id, turn, call.type)

    def _sessions(self) -> Iterator[list[tuple[float, tuple[int, Session, int, int, int]]]]:
        base = 0
        for line, session in json_lines(self.file, Session, LEGEND):
            if session.block_size != self.granularity:
                raise self.file.problem(line, f"`block_size` must be {self.granularity}, got {session.block_size}")
            calls = session.requests
            tails = base + max((first + count for call in calls for first, count in call.runs), default=0)
            if (tails + len(calls)) * self.granularity > INT32_MAX + 1:  # before any run is written out
                raise self.file.problem(line, f"`ids` up to {tails + len(calls) - 1} have tokens that leave int32")
            order = sorted(range(len(calls)), key=lambda k: calls[k].t)
            yield [(calls[k].t, (line, session, k, base, tails + k)) for k in order]
            base = tails + len(calls)

    def _problem(self, line: int, turn: int, what: object) -> UserError:
        return self.file.problem(line, f"`requests`, number {turn} from 0, `in` against `ids`: {what}")
