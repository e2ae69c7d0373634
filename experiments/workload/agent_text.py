"""Real text of agents (LMCache's recordings: mini-SWE, MagAgent, tau-bench), one jsonl of one session per tar member.

Row: `timestamp` in microseconds, `input`, `output`, `session_id`. `input` is the whole prompt, tokenised as it stands,
without a chat template. Rows are logged as they end, not as they begin, so a session's rows are put in order of time.
A row with an empty `input` has no prompt and is left out. Session i, in archive order from 0, starts at i·session_gap
seconds, and its requests keep their distance from its first one; the recordings were made one after the other.

Knows nothing of how the text came to be.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch

import msgspec

from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.interleave import interleave
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import Time
from experiments.workload.tokenised import Piece, TextEncoder

MICROSECOND = 1e-6


class Row(msgspec.Struct):
    """One line of a member."""

    timestamp: Time
    input: str
    output: str
    session_id: str


class AgentText(RecordedWorkload):
    """The sessions of an archive (tar, gzip or plain) whose names match `members`; the folder is the category."""

    source = "github.com/LMCache/lmcache-agent-trace, packed as one tar"

    def __init__(
        self,
        path: str,
        members: str = "*.jsonl",
        session_gap: float = 60.0,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`members`: pattern of member names, as in a shell (`miniswe/*`); `cache_dir`: see `TextEncoder`."""
        super().__init__(path, limit, time_scale, seed)
        check_at_least(0.0, session_gap=session_gap)
        self.members = members
        self.session_gap = session_gap
        self.encoder = TextEncoder(cache_dir)

    def options(self) -> dict[str, str | int | float | bool | None]:
        return {"members": self.members, "session_gap": self.session_gap, "tokenizer": self.encoder.identity()}

    def recorded(self) -> Iterator[Request]:
        for arrival, (name, turn, row, prompt, reply) in interleave(self._sessions(), self.session_gap):
            category = name.split("/")[-2] if "/" in name else None
            yield Request(PackedTokens(prompt), arrival, len(reply) // TOKEN_BYTES, row.session_id, turn, category)

    def _sessions(self) -> Iterator[list[tuple[float, tuple[str, int, Row, bytes, bytes]]]]:
        for name, data in self._members():
            rows = sorted((row for row in self._rows(name, data) if row.input), key=lambda row: row.timestamp)
            # One file of ids per session, so that a walk cut short pays only for the sessions it has reached.
            texts: list[Piece] = [(None, text) for row in rows for text in (row.input, row.output)]
            ids = self.encoder.encode(texts) if rows else []
            yield [
                ((row.timestamp - rows[0].timestamp) * MICROSECOND, (name, k, row, ids[2 * k], ids[2 * k + 1]))
                for k, row in enumerate(rows)
            ]

    def _members(self) -> Iterator[tuple[str, bytes]]:
        with self.file.reading() as stream:
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        content = archive.extractfile(member) if fnmatch(member.name, self.members) else None
                        if content is not None:
                            yield member.name, content.read()
            except tarfile.TarError as error:
                raise self.file.problem("as a tar archive", error) from None

    def _rows(self, name: str, data: bytes) -> Iterator[Row]:
        decode = msgspec.json.Decoder(Row).decode
        for number, line in enumerate(data.splitlines(), start=1):
            if line and not line.isspace():
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise self.file.problem(f"member {name}, line {number}", error) from None
