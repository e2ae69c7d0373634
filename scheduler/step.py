"""One scheduling decision: the tokens computed, what moves in memory before that, and the sums a cost model needs.

    memory     in this order, before any token is computed
    chunks     one run of prompt (or lost) tokens each
    decodes    one token each

Knows nothing of tensors and nothing of why it was decided so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from scheduler.request import Branch, Request

if TYPE_CHECKING:
    from model.sampling import Sampled

Move = tuple[Literal["copy", "out", "in"], list[tuple[int, int]]]
"""("copy", (source, destination) blocks) · ("out", (device, host)) · ("in", (host, device))"""


@dataclass(slots=True)
class Chunk:
    """Tokens `start` to `stop` of a branch's sequence are computed."""

    branch: Branch
    start: int
    stop: int
    samples: tuple[Branch, ...] = ()
    """Branches that draw their next token from its last row; empty until the last known token is in it."""
    scores_prompt: bool = False
    """Whether the logits of all its rows are wanted."""


class Work(NamedTuple):
    """What a step costs, in sums."""

    num_tokens: int
    """Rows through every layer."""
    num_logits: int
    """Rows through the head."""
    num_seqs: int
    context: int
    """Tokens whose K and V are read, each sequence's once."""
    pairs: int
    """(query, visible key) pairs of the attention."""
    copied_blocks: int = 0
    swapped_blocks: int = 0
    """To or from the host."""


@dataclass(slots=True)
class Step:
    """What the executor does next."""

    index: int
    memory: list[Move] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    decodes: list[Branch] = field(default_factory=list)
    decode_context: int = 0
    """Sum of the decoding branches' tokens, the ones computed now included."""
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    used_blocks: int = 0
    """Blocks with an owner while it is executed."""
    most_repeats: int = 1
    """So many steps like this one may be done at once: nothing is decided before."""

    @property
    def empty(self) -> bool:
        """Whether no token is computed."""
        return not self.chunks and not self.decodes

    def move(self, kind: Literal["copy", "out", "in"], pairs: list[tuple[int, int]]) -> None:
        """Add moves behind those already there. Neighbours of one kind become one, whose pairs are carried out in any
        order; so a copy into a block that an earlier one reads (evicted since) begins another."""
        if not pairs:
            return
        if self.memory and self.memory[-1][0] == kind and not (kind == "copy" and _depend(self.memory[-1][1], pairs)):
            self.memory[-1][1].extend(pairs)
        else:
            self.memory.append((kind, list(pairs)))

    def work(self) -> Work:
        """The sums of this step."""
        n = len(self.decodes)
        tokens, logits, context, pairs = n, n, self.decode_context, self.decode_context
        for chunk in self.chunks:
            count = chunk.stop - chunk.start
            tokens += count
            logits += count if chunk.scores_prompt else len(chunk.samples) > 0
            context += chunk.stop
            pairs += count * chunk.start + count * (count + 1) // 2
        copied = swapped = 0
        for kind, blocks in self.memory:
            if kind == "copy":
                copied += len(blocks)
            else:
                swapped += len(blocks)
        return Work(tokens, logits, n + len(self.chunks), context, pairs, copied, swapped)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step."""

    sampled: Sequence[Sampled] | None = None
    """Per drawing branch: those of the chunks in order, then the decodes. None: the tokens are foretold."""
    repeats: int = 1
    """Steps done, at most `most_repeats`; more than one only where tokens are foretold."""


def _depend(earlier: Sequence[tuple[int, int]], later: Sequence[tuple[int, int]]) -> bool:
    """Whether a later copy writes what an earlier one reads or writes, or reads what it writes."""
    read, written = {source for source, _ in earlier}, {destination for _, destination in earlier}
    return any(destination in read or destination in written or source in written for source, destination in later)
