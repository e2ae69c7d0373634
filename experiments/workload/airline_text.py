"""Real text of a tool-using airline agent (tau-bench, gpt-4o): 200 runs over one system prompt.

A list of runs: `task_id`, `trial`, `traj`: [{`role`, `content`, `tool_calls`}]. Every assistant message is one request,
whose prompt is the chat so far in SmolLM2's chat template; tool calls are written into the message as
<tool_call>{name, arguments}</tool_call>. The recording has no times: run i, from 0, starts at i·session_gap seconds,
and its requests follow each other every turn_gap seconds.

Knows nothing of what the runs achieved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import msgspec

from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.interleave import interleave
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.tokenised import GENERATION_PROMPT, Piece, TextEncoder
from model.tokenizer import DEFAULT_SYSTEM

RUNS_PER_BATCH = 20


class Function(msgspec.Struct):
    """What a tool call calls; `arguments` is JSON inside a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """One tool call of a message."""

    function: Function


class Message(msgspec.Struct):
    """One message; the content of a message that only calls tools is null."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None

    def text(self) -> str:
        """Content and tool calls as the one text the chat template shows."""
        parts = [self.content] if self.content else []
        for call in self.tool_calls or ():
            name = msgspec.json.encode(call.function.name).decode()
            parts.append(f'<tool_call>\n{{"name": {name}, "arguments": {call.function.arguments}}}\n</tool_call>')
        return "\n".join(parts)


class Run(msgspec.Struct):
    """One run of one task."""

    task_id: int
    traj: list[Message]
    trial: int = 0


class AirlineText(RecordedWorkload):
    """All runs, interleaved; a session is named task-trial."""

    source = "github.com/sierra-research/tau-bench, historical_trajectories/gpt-4o-airline.json"

    def __init__(
        self,
        path: str,
        session_gap: float = 10.0,
        turn_gap: float = 10.0,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`session_gap`, `turn_gap`: seconds between runs and between requests of a run."""
        super().__init__(path, limit, time_scale, seed)
        check_at_least(0.0, session_gap=session_gap, turn_gap=turn_gap)
        self.session_gap = session_gap
        self.turn_gap = turn_gap
        self.encoder = TextEncoder(cache_dir)

    def options(self) -> dict[str, str | int | float | bool | None]:
        tokenizer = self.encoder.identity()
        return {"session_gap": self.session_gap, "turn_gap": self.turn_gap, "tokenizer": tokenizer}

    def recorded(self) -> Iterator[Request]:
        for arrival, request in interleave(self._sessions(), self.session_gap):
            yield replace(request, arrival=arrival)

    def _sessions(self) -> Iterator[list[tuple[float, Request]]]:
        runs = self._runs()
        while batch := list(islice(runs, RUNS_PER_BATCH)):
            chats = [self._pieces(run) for run in batch]
            ids = iter(self.encoder.encode([GENERATION_PROMPT, *(piece for chat in chats for piece in chat)]))
            invite = next(ids)
            for run, chat in zip(batch, chats, strict=True):
                yield list(self._requests(run, chat, invite, list(islice(ids, len(chat)))))

    def _requests(
        self, run: Run, chat: list[Piece], invite: bytes, ids: list[bytes]
    ) -> Iterator[tuple[float, Request]]:
        session = f"{run.task_id}-{run.trial}"
        replies = [k for k, (role, _) in enumerate(chat) if role == "assistant"]
        for turn, k in enumerate(replies):
            prompt = PackedTokens(b"".join(ids[:k]) + invite)
            num_output = (len(ids[k]) - len(invite)) // TOKEN_BYTES
            yield turn * self.turn_gap, Request(prompt, 0.0, num_output, session, turn, "airline")

    @staticmethod
    def _pieces(run: Run) -> list[Piece]:
        chat: list[Piece] = [(message.role, message.text()) for message in run.traj]
        return chat if chat and chat[0][0] == "system" else [("system", DEFAULT_SYSTEM), *chat]

    def _runs(self) -> Iterator[Run]:
        with self.file.reading() as stream:
            data = stream.read()
        try:
            raw_runs = msgspec.json.decode(data, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.file.problem("as a JSON list of runs", error) from None
        for number, raw in enumerate(raw_runs):
            try:
                yield msgspec.json.decode(raw, type=Run)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self.file.problem(f"run {number} from 0", error) from None
