"""Your own prompts: jsonl of texts, chats or token ids, a file or a folder of them, checked line by line.

    {"text": "...", "timestamp": 0.5, "session": "a"}
    {"messages": [{"role": "user", "content": "..."}], "output_tokens": 120}
    {"token_ids": [1, 2, 3], "tenant": "acme"}

All lines hold the same one of the three, since a text and the ids of a chat never share a prefix for a good reason.
Texts are tokenised as a completion server does (special tokens written out count as such), chats in the tokenizer's
template. Files of a folder are read in order of their names.

Knows nothing of why prompts share or do not: `experiments.token_profile` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.tokens import PackedTokens, pack
from experiments.errors import UserError
from experiments.tokenizer.base import Tokenizer
from experiments.tokenizer.opened import open_tokenizer
from experiments.workload.base import Request
from experiments.workload.files import TraceFile
from experiments.workload.fingerprint import fingerprint
from experiments.workload.mine_rows import Row, prompt_of
from experiments.workload.recorded import RecordedWorkload
from experiments.workload.rows import encoding_hint, form_hint
from experiments.workload.tokenised import TextEncoder

FORM = '{"text": "..."}, {"messages": [{"role": "user", "content": "..."}]} or {"token_ids": [1, 2, 3]}'
PATTERNS = ("*.jsonl", "*.jsonl.gz")
BATCH = 256
"""Prompts tokenised and remembered together."""


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt of a file, not yet tokenised."""

    file: TraceFile
    number: int
    kind: str
    prompt: Any
    row: Row


class Mine(RecordedWorkload):
    """Requests in the order of the lines; a row without `turn` is the next one of its session."""

    source = None

    def __init__(
        self,
        path: str,
        tokenizer: str | None = None,
        skip_empty: bool = False,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`path`: a jsonl, gzip or plain, or a folder of them; `tokenizer`: see `open_tokenizer`.

        `skip_empty`: leave out prompts without a token instead of refusing them.
        """
        super().__init__(path, limit, time_scale, seed)
        self._tokenizer_name = tokenizer
        self.skip_empty = skip_empty
        self.encoder = TextEncoder(cache_dir)
        self.num_empty = 0
        """Prompts left out by the latest walk."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises UserError for an unknown one."""
        return open_tokenizer(self._tokenizer_name)

    @cached_property
    def files(self) -> list[TraceFile]:
        """The files, in order. Raises UserError for a folder without one."""
        path = self.file.path
        if not path.is_dir():
            return [self.file]
        found = sorted({file for pattern in PATTERNS for file in path.rglob(pattern)})
        if not found:
            raise UserError(f"{path} holds no file named {' or '.join(PATTERNS)}: name the file itself, or rename it.")
        return [TraceFile(file, None) for file in found]

    def lines(self) -> Iterator[Line]:
        """Every prompt, checked. Raises UserError for a line that is not one, or not of the first line's kind."""
        first: Line | None = None
        decode = msgspec.json.Decoder(Row).decode
        self.num_empty = 0
        for file in self.files:
            for number, line in file.lines():
                try:
                    row = decode(line)
                    kind, prompt = prompt_of(row, line)
                except (ValueError, RecursionError) as error:  # msgspec's errors and Unicode's are ValueErrors
                    hint = encoding_hint(line, number) or form_hint(line, FORM)
                    raise file.problem(number, f"{error}{hint}") from None
                if not prompt:
                    if not self.skip_empty:
                        hint = "a model needs at least one token (workload.skip_empty=true leaves such lines out)"
                        raise file.problem(number, f"the prompt is empty: {hint}")
                    self.num_empty += 1
                    continue
                told = Line(file, number, kind, prompt, row)
                first = first or told
                if kind != first.kind:
                    where = f"{first.file.path.name}, line {first.number}"
                    raise file.problem(
                        number,
                        f"the line holds `{kind}`, but {where} holds `{first.kind}`: sort them "
                        "into files of one kind each",
                    )
                yield told

    def recorded(self) -> Iterator[Request]:
        turns: Counter[str] = Counter()
        lines = self.lines()
        while batch := list(islice(lines, BATCH)):
            for line, ids in zip(batch, self._encode(batch), strict=True):
                row = line.row
                session = None if row.session is None else str(row.session)
                turn = row.turn
                if turn is None:
                    turn = turns[session] if session is not None else 0
                if session is not None:
                    turns[session] = turn + 1
                lora, tenant = row.lora or None, row.tenant or None  # logs write "" for none
                extra = ExtraKeys(lora=lora, tenant=tenant) if lora or tenant else NO_EXTRA_KEYS
                yield Request(PackedTokens(ids), row.timestamp, row.output_tokens, session, turn, row.category, extra)

    def options(self) -> dict[str, str | int | float | bool | None]:
        first = next(self.lines(), None)
        needed = first is not None and first.kind != "token_ids"
        return {"tokenizer": self.tokenizer.identity if needed else None}  # empty prompts left out change no token id

    def fingerprint(self) -> str:
        digest = sha256("".join(file.sha256() for file in self.files).encode()).hexdigest()
        return fingerprint(self, file=digest, **self.options())

    def _encode(self, batch: list[Line]) -> list[bytes]:
        if batch[0].kind == "token_ids":
            return [self._packed(line, line.prompt) for line in batch]
        told = (self.tokenizer.identity, [(line.prompt, line.row.tools) for line in batch])
        key = sha256(msgspec.msgpack.encode(told)).hexdigest()
        return self.encoder.remembered(key, len(batch), lambda: [self._packed(line, self._ids(line)) for line in batch])

    def _ids(self, line: Line) -> list[int]:
        if line.kind == "text":
            return self.tokenizer.encode(line.prompt)
        try:
            return self.tokenizer.chat(line.prompt, line.row.tools or ())
        except ValueError as error:
            raise line.file.problem(line.number, error) from None

    @staticmethod
    def _packed(line: Line, ids: list[int]) -> bytes:
        try:
            return pack(ids)
        except ValueError as error:
            raise line.file.problem(line.number, error) from None
