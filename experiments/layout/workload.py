"""One chat in one layout, as a workload: the same talks, written into prompts the way a service would.

    template · field · instructions │ earlier turns, the way the history tells them │ question · field │ assistant

Every message is tokenised with SmolLM2's tokenizer and chat template. Also known per request: what the model will
answer, and how many tokens of the prompt were sent before, whatever the layout: instructions, and earlier turns.

Knows nothing of caches: how much of what is sent again is also computed again is measured elsewhere.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.layout.field.base import Field
from experiments.layout.history.base import History, Message
from experiments.layout.instructions import instructions_of, padded
from experiments.layout.script import OPENED, Talk, Turn, script_fingerprint, write_talks
from experiments.layout.template.base import Template
from experiments.workload.base import Request, Workload
from experiments.workload.checks import check_at_least
from experiments.workload.fingerprint import fingerprint
from experiments.workload.interleave import interleave
from experiments.workload.tokenised import GENERATION_PROMPT, Piece, TextEncoder

CHANGES = ("request", "session")


@dataclass(frozen=True, slots=True)
class Laid:
    """One request, laid out: pieces by number."""

    session: int
    turn: int
    arrival: float
    prompt: tuple[int, ...]
    earlier: tuple[int, ...]
    """Pieces of the prompt that tell earlier turns."""
    reply: int


class LaidOutChat(Workload):
    """`num_sessions` sessions of `turns` turns over one text of instructions."""

    def __init__(
        self,
        field: Field,
        history: History,
        template: Template,
        block_size: int,
        common_tokens: int = 512,
        pad: bool = False,
        field_changes: str = "request",
        num_sessions: int = 100,
        turns: int = 4,
        reply_lines: int = 4,
        session_gap: float = 0.8,
        think_time: float = 10.0,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`common_tokens`: what all prompts would begin with if nothing in front of the question changed; `pad` fills
        it up to a multiple of `block_size`. `field_changes`: with every `request`, or only with the `session`.

        Raises ValueError for an argument out of range.
        """
        super().__init__(limit, time_scale, seed)
        check_at_least(1, common_tokens=common_tokens, num_sessions=num_sessions, turns=turns, reply_lines=reply_lines)
        check_at_least(0.0, session_gap=session_gap, think_time=think_time)
        if field_changes not in CHANGES:
            raise ValueError(f"field_changes must be {' or '.join(CHANGES)}, got {field_changes}")
        self.field, self.history, self.template = field, history, template
        self.prefix_tokens = padded(common_tokens, block_size) if pad else common_tokens
        self.field_changes = field_changes
        self.encoder = TextEncoder(cache_dir)
        self.talks = write_talks(num_sessions, turns, reply_lines, session_gap, think_time, seed)
        self._instructions: str | None = None
        self._built: tuple[list[bytes], list[Laid]] | None = None

    def requests(self) -> Iterator[Request]:
        ids, laid = self._build()
        for one in laid:
            tokens = PackedTokens(b"".join(ids[piece] for piece in (*one.prompt, 0)))
            last = one.turn == len(self.talks[one.session].turns) - 1
            output = len(self._output(one)) // TOKEN_BYTES
            yield Request(tokens, one.arrival, output, f"session-{one.session}", one.turn, "chat", last_turn=last)

    def replies(self) -> list[list[int]]:
        """Per request, the tokens that the model answers: those that the next prompt of the session repeats."""
        return [PackedTokens(self._output(one)).tolist() for one in self._build()[1]]

    def sent_before(self) -> list[int]:
        """Per request, tokens of its prompt that were sent before: the instructions, and the earlier turns."""
        ids, laid = self._build()
        earlier = [sum(len(ids[piece]) for piece in one.earlier) // TOKEN_BYTES for one in laid]
        return [count + (self.prefix_tokens if index else 0) for index, count in enumerate(earlier)]

    def turns(self) -> list[int]:
        """Per request, which turn of its session it is, from 0."""
        return [one.turn for one in self._build()[1]]

    def script_fingerprint(self) -> str:
        """SHA-256 of what is said and when: equal for all layouts of one chat."""
        return script_fingerprint(self.talks)

    def expected_requests(self) -> int:
        return sum(len(talk.turns) for talk in self.talks)

    def fingerprint(self) -> str:
        content = hashlib.sha256()
        for request in self.requests():
            content.update(request.tokens.packed() + f"{request.arrival!r} {request.num_output_tokens};".encode())
        python = ".".join(map(str, sys.version_info[:3]))
        return fingerprint(self, python=python, tokenizer=self.encoder.identity(), content=content.hexdigest())

    def messages(self, talk: Talk, turn: int) -> tuple[list[Message], list[Message], list[Message]]:
        """System, history and newest question of one prompt, as text."""
        asked = [Turn(self._question(talk, t), t.reply, t.asked_at) for t in talk.turns[: turn + 1]]
        now = asked[-1]
        if self._instructions is None:
            self._instructions = instructions_of(self.prefix_tokens, self.encoder)
        system = self.field.system(self._instructions, self._field(talk, now))
        return (
            [("system", self.template.system(system, now.clock))],
            self.history.messages(asked[:-1], now.asked_at),
            [("user", now.question)],
        )

    def _question(self, talk: Talk, turn: Turn) -> str:
        return self.field.question(turn.question, self._field(talk, turn))

    def _field(self, talk: Talk, turn: Turn) -> str:
        at = turn.asked_at if self.field_changes == "request" else talk.turns[0].asked_at
        clock = OPENED + timedelta(seconds=at)
        return f"{clock:%A, %d %B %Y, %H:%M:%S}, user {talk.user}."

    def _output(self, one: Laid) -> bytes:
        """A reply's message without its header, which the prompt ended with, and without the line feed behind it."""
        ids = self._build()[0]
        return ids[one.reply][len(ids[0]) : -TOKEN_BYTES]

    def _build(self) -> tuple[list[bytes], list[Laid]]:
        """Ids of every distinct message, and the requests written with them, in order of arrival."""
        if self._built is None:
            pieces: dict[Piece, int] = {GENERATION_PROMPT: 0}
            talks = (self._session(index, talk, pieces) for index, talk in enumerate(self.talks))
            laid = [one for _, one in interleave(talks, gap=0.0)]
            self._built = self.encoder.encode(list(pieces)), laid
        return self._built

    def _session(self, index: int, talk: Talk, pieces: dict[Piece, int]) -> Iterator[tuple[float, Laid]]:
        def number(messages: list[Message]) -> tuple[int, ...]:
            return tuple(pieces.setdefault(message, len(pieces)) for message in messages)

        for turn, said in enumerate(talk.turns):
            system, history, question = map(number, self.messages(talk, turn))
            (reply,) = number([("assistant", said.reply)])
            yield said.asked_at, Laid(index, turn, said.asked_at, system + history + question, history, reply)
