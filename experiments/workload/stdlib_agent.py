"""The built-in workload: an agent answers questions about Python's standard library. No download, real text.

One fixed system prompt with tool descriptions opens every prompt. A session picks a first task (Zipf: a few files are
asked about again and again); all sessions of one task begin with the same question and the same agent steps, as with
greedy decoding. Then users go their own ways: further questions, other files, more tool calls whose results are real
source text. Now and then a user goes back and asks something else from an earlier point (a branch), and when a prompt
would outgrow the context, the oldest tool results are cut out of the history (an edit, which breaks the shared prefix
early). Sessions start as a Poisson process and interleave; tool results return fast, people think.

Every message is tokenised on its own, with SmolLM2's tokenizer and chat template, so a later turn's ids extend a
former turn's exactly. The token ids are decided by the Python version's sources, the parameters and the seed.

Knows nothing of what a model would really answer: replies are put together from what the agent has read.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.workload import stdlib_prompt as words
from experiments.workload.base import Request, Workload
from experiments.workload.checks import check_at_least
from experiments.workload.fingerprint import fingerprint
from experiments.workload.interleave import interleave
from experiments.workload.randomness import stream, zipf
from experiments.workload.stdlib_sources import Source, pick_sources
from experiments.workload.tokenised import GENERATION_PROMPT, Piece, TextEncoder

TOOL_SECONDS = 1.0
REPLY_SECONDS = 3.0


@dataclass(slots=True)
class Step:
    """One request: the pieces of its prompt, what was answered, and when it came, in seconds from the start."""

    prompt: list[int]
    reply: int
    arrival: float


@dataclass(slots=True)
class Script:
    """One session while it is written. `pieces` numbers every distinct message of the workload."""

    pieces: dict[Piece, int]
    source: Source
    task: str
    clock: float
    history: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    read_up_to: int = 0
    questions: list[int] = field(default_factory=list)

    def say(self, role: str, content: str) -> int:
        """Append a message to the history."""
        index = self.pieces.setdefault((role, content), len(self.pieces))
        self.history.append(index)
        return index

    def ask(self, text: str) -> None:
        """A question of the user; a later branch may return to before it."""
        self.questions.append(len(self.history))
        self.say("user", text)

    def reply(self, text: str, seconds: float) -> None:
        """One request: the agent answers the history so far, then `seconds` pass."""
        prompt = list(self.history)
        self.steps.append(Step(prompt, self.say("assistant", text), self.clock))
        self.clock += seconds


class StdlibAgent(Workload):
    """`num_sessions` sessions of `min_turns` to `max_turns` requests; by default 557 requests, 2.3 M tokens."""

    def __init__(
        self,
        num_sessions: int = 60,
        num_files: int = 48,
        num_tasks: int = 32,
        min_turns: int = 4,
        max_turns: int = 14,
        lines_per_read: int = 120,
        max_prompt_tokens: int = 7680,
        zipf_exponent: float = 1.0,
        branch_share: float = 0.08,
        session_gap: float = 15.0,
        think_time: float = 25.0,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`num_files`: files read at all; `num_tasks`: different first tasks, popular by `zipf_exponent`.

        `branch_share`: probability that a user goes back instead of on; `session_gap`, `think_time`: mean seconds;
        `cache_dir`: where token ids are kept between runs, see `TextEncoder`.
        Raises ValueError for an argument out of range.
        """
        super().__init__(limit, time_scale, seed)
        check_at_least(1, num_sessions=num_sessions, num_files=num_files, num_tasks=num_tasks, min_turns=min_turns)
        check_at_least(1, lines_per_read=lines_per_read)
        check_at_least(0.0, zipf_exponent=zipf_exponent, session_gap=session_gap, think_time=think_time)
        check_at_least(min_turns, max_turns=max_turns)
        check_at_least(2048, max_prompt_tokens=max_prompt_tokens)  # the system prompt alone takes about 1,000
        if not 0 <= branch_share <= 1:
            raise ValueError(f"workload.branch_share must lie in 0..1, got {branch_share}")
        self.num_sessions = num_sessions
        self.num_files = num_files
        self.num_tasks = num_tasks
        self.min_turns = min_turns
        self.max_turns = max_turns
        self.lines_per_read = lines_per_read
        self.max_prompt_tokens = max_prompt_tokens
        self.zipf_exponent = zipf_exponent
        self.branch_share = branch_share
        self.session_gap = session_gap
        self.think_time = think_time
        self.encoder = TextEncoder(cache_dir)
        self._built: tuple[list[bytes], list[Script], set[int]] | None = None

    def requests(self) -> Iterator[Request]:
        ids, scripts, tool_results = self._build()
        sessions = (self._session(index, script, ids, tool_results) for index, script in enumerate(scripts))
        for arrival, (index, turn, prompt, num_output) in interleave(sessions, gap=0.0):
            tokens = PackedTokens(b"".join(prompt))
            yield Request(tokens, arrival, num_output, f"session-{index}", turn, scripts[index].task)

    def expected_requests(self) -> int:
        return sum(len(script.steps) for script in self._build()[1])

    def fingerprint(self) -> str:
        ids, scripts, _ = self._build()
        content = hashlib.sha256()
        for script in scripts:
            for step in script.steps:
                content.update(f"{step.prompt}{step.reply}{step.arrival!r}".encode())
        for piece in ids:
            content.update(len(piece).to_bytes(8, "little") + piece)
        return fingerprint(
            self,
            python=".".join(map(str, sys.version_info[:3])),
            tokenizer=self.encoder.identity(),
            max_prompt_tokens=self.max_prompt_tokens,
            content=content.hexdigest(),
        )

    def _build(self) -> tuple[list[bytes], list[Script], set[int]]:
        """Ids of every distinct piece, the sessions written with them, and which pieces are tool results."""
        if self._built is None:
            pieces: dict[Piece, int] = {GENERATION_PROMPT: 0, ("tool", words.REMOVED): 1}
            scripts = self._write(pieces)
            tool_results = {index for (role, _), index in pieces.items() if role == "tool"}
            self._built = self.encoder.encode(list(pieces)), scripts, tool_results
        return self._built

    def _session(
        self, index: int, script: Script, ids: list[bytes], tool_results: set[int]
    ) -> Iterator[tuple[float, tuple[int, int, list[bytes], int]]]:
        """The session's requests. Once a prompt outgrows the context, tool results are removed, oldest first, until
        it is down to three quarters, and stay removed. A session that still does not fit ends there."""
        removed: set[int] = set()
        invite, room = len(ids[0]), self.max_prompt_tokens * TOKEN_BYTES

        def shown(prompt: list[int]) -> list[bytes]:
            return [ids[1 if piece in removed else piece] for piece in [*prompt, 0]]

        for turn, step in enumerate(script.steps):
            size = sum(map(len, shown(step.prompt)))
            if size > room:
                for piece in step.prompt[:-1]:
                    if piece in tool_results and piece not in removed and size > room * 3 // 4:
                        removed.add(piece)
                        size -= len(ids[piece]) - len(ids[1])
                if size > room:
                    return
            yield step.arrival, (index, turn, shown(step.prompt), (len(ids[step.reply]) - invite) // TOKEN_BYTES)

    def _write(self, pieces: dict[Piece, int]) -> list[Script]:
        sources = pick_sources(stream(self.seed, 0), self.num_files)
        starts = np.cumsum(stream(self.seed, 1).exponential(self.session_gap, size=self.num_sessions)).tolist()
        popularity, choose = zipf(self.num_tasks, self.zipf_exponent), stream(self.seed, 2)
        scripts = []
        for index, start in enumerate(starts):
            task = int(choose.choice(self.num_tasks, p=popularity))
            source = sources[task % self.num_files]
            script = Script(pieces, source, source.name, start - starts[0])
            script.say("system", words.SYSTEM)
            own = stream(self.seed, 3, index)
            num_turns = int(own.integers(self.min_turns, self.max_turns + 1))
            self._open(script, stream(self.seed, 4, task), own)
            while len(script.steps) < num_turns:
                self._go_on(script, sources, own)
            del script.steps[num_turns:]
            scripts.append(script)
        return scripts

    def _open(self, script: Script, task: np.random.Generator, own: np.random.Generator) -> None:
        """The first question and the agent's steps: words from `task`, so equal for all its sessions; times its own."""
        opening = words.OPENINGS[int(task.integers(len(words.OPENINGS)))]
        script.ask(opening.format(file=script.source.name))
        for _ in range(int(task.integers(1, 4))):
            self._read_on(script, own)
        self._answer(script, None, own)

    def _go_on(self, script: Script, sources: list[Source], own: np.random.Generator) -> None:
        """What one user does next."""
        if own.random() < self.branch_share and len(script.questions) > 1:
            back = script.questions[int(own.integers(1, len(script.questions)))]
            del script.history[back:]
            script.questions = [start for start in script.questions if start < back]
        elif own.random() < 0.2:
            script.source = sources[int(own.integers(len(sources)))]
            script.read_up_to = 0
            script.ask(f"Now look at {script.source.name}. What is it for?")
            self._read_on(script, own)
            self._answer(script, None, own)
            return
        names = [name for _, _, name in words.definitions(script.source)] or ["__all__"]
        name = names[int(own.integers(len(names)))]
        script.ask(words.QUESTIONS[int(own.integers(len(words.QUESTIONS)))].format(name=name))
        if own.random() < 0.4:
            call = words.tool_call(f"I look for `{name}`.", "search", path=script.source.name, word=name)
            script.reply(call, self._pause(own, TOOL_SECONDS))
            script.say("tool", words.search_result(script.source, name))
        if own.random() < 0.6:
            self._read_on(script, own)
        self._answer(script, name, own)

    def _read_on(self, script: Script, own: np.random.Generator) -> None:
        """One tool call: the next lines of the file, from the top again at its end."""
        start = script.read_up_to + 1 if script.read_up_to < len(script.source.lines) else 1
        stop = start + self.lines_per_read - 1
        call = words.tool_call(
            f"I read {script.source.name} from line {start}.",
            "read_file",
            path=script.source.name,
            start=start,
            stop=stop,
        )
        script.reply(call, self._pause(own, TOOL_SECONDS))
        script.say("tool", words.read_result(script.source, start, stop))
        script.read_up_to = stop

    def _answer(self, script: Script, name: str | None, own: np.random.Generator) -> None:
        stop = max(script.read_up_to, 1)
        start = max(stop - self.lines_per_read + 1, 1)
        script.reply(words.answer(script.source, start, stop, name), self._pause(own, self.think_time))

    @staticmethod
    def _pause(own: np.random.Generator, mean: float) -> float:
        return REPLY_SECONDS + float(own.exponential(mean))
