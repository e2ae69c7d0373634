"""The ledger in full: a row for every looked-up block, in columns of machine integers.

Knows nothing of reasons or prefixes; the ledger fills it, `experiments.frames` reads it.
"""

from __future__ import annotations

from array import array

NONE = -1
"""Where a column has nothing to say."""
NAN = float("nan")


class LedgerRows:
    """Columns of equal length; about 60 bytes a row."""

    def __init__(self) -> None:
        self.request, self.depth, self.reason, self.block = array("q"), array("i"), array("b"), array("q")
        self.age, self.age_seconds = array("q"), array("d")
        self.evicted_ago, self.evicted_seconds_ago = array("q"), array("d")
        self.note = array("i")
        self.notes: list[dict[str, object]] = []
        """What only some rows have: the policy's decision, tokens shared, parts of the key that differ."""

    def __len__(self) -> int:
        return len(self.request)

    def add(
        self,
        request: int,
        depth: int,
        count: int,
        reason: int,
        blocks: list[int] | None = None,
        age: int = NONE,
        age_seconds: float = NAN,
        evicted_ago: int = NONE,
        evicted_seconds_ago: float = NAN,
        **note: object,
    ) -> None:
        """`count` rows for consecutive blocks of one request, front to back; only `depth` and `blocks` differ."""
        self.request.extend([request] * count)
        self.depth.extend(range(depth, depth + count))
        self.reason.extend([reason] * count)
        self.block.extend(blocks if blocks is not None else [NONE] * count)
        self.age.extend([age] * count)
        self.age_seconds.extend([age_seconds] * count)
        self.evicted_ago.extend([evicted_ago] * count)
        self.evicted_seconds_ago.extend([evicted_seconds_ago] * count)
        if note:
            self.notes.append(note)
        self.note.extend([len(self.notes) - 1 if note else NONE] * count)
