"""Every reason of the ledger again, from snapshots of what was findable: slow, and shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cache.allocator.hash_chain import HashChain
from cache.sequence import Sequence
from cache.tokens import unpack

Prefix = tuple[Any, tuple[int, ...]]
"""(extra keys and weights version, tokens)"""
PARTS = {
    "weights": lambda key: key[1],
    "adapter": lambda key: key[0].lora,
    "adapter version": lambda key: key[0].lora_version,
    "salt": lambda key: key[0].tenant,
    "caller": lambda key: key[0].caller,
}


def findable(allocator: HashChain, keys: dict[bytes, Any]) -> set[Prefix]:
    """All prefixes a lookup could know, spelled out."""
    found = set()
    for node in allocator._nodes:
        tokens: list[int] = []
        if node is None:
            continue
        while node[0] is not None:
            tokens, node = unpack(node[1]) + tokens, node[0]
        found.add((keys[node[1]], tuple(tokens)))
    return found


@dataclass
class Moment:
    """One request as it was seen: looked up, or grown by what it generated since."""

    index: int
    time: float
    key: Any
    tokens: tuple[int, ...]
    grown: bool = False


class History:
    """What was findable at every moment, and what every request looked like."""

    def __init__(self, block_size: int) -> None:
        self.size = block_size
        self.moments: list[Moment] = []
        self.snapshots: list[tuple[int, float, set[Prefix], bool]] = []
        """(index and time of the request it was taken after, what was findable, whether a reset came just before)"""

    def snapshot(self, index: int, time: float, resident: set[Prefix], cleared: bool = False) -> None:
        self.snapshots.append((index, time, resident, cleared))

    def request(self, seq: Sequence, key: Any) -> None:
        self.moments.append(Moment(seq.access.index, seq.access.time, key, tuple(seq.token_ids())))

    def growth(self, seq: Sequence, key: Any) -> None:
        """What it generated can be found as far as it is immutable: known from now on, but nobody asked for it."""
        tokens = tuple(seq.token_ids())[: seq.num_immutable_blocks * self.size]
        self.moments.append(Moment(seq.access.index, seq.access.time, key, tokens, grown=True))

    def explain(self, seq: Sequence, key: Any, hits: int) -> list[dict[str, Any]]:
        """One row per full block of a request that comes next; `snapshot` was last called just before it."""
        tokens, now, time = tuple(seq.token_ids()), seq.access.index, seq.access.time
        rows = []
        fresh = True
        for depth in range(len(tokens) // self.size):
            prefix = tokens[: (depth + 1) * self.size]
            row: dict[str, Any] = {"request": now, "depth": depth, "age": None, "age_seconds": None}
            row |= {"evicted_ago": None, "evicted_seconds_ago": None, "shared_tokens": None, "differs": None}
            earlier = [m for m in self.moments if m.tokens[: len(prefix)] == prefix]
            own = [m for m in earlier if m.key == key]
            resident = (key, prefix) in self.snapshots[-1][2]
            was = [i for i, snapshot in enumerate(self.snapshots) if (key, prefix) in snapshot[2]]
            if own:
                last = self._last_touch(own)
                row["age"], row["age_seconds"] = now - last.index, time - last.time
            if seq.skip_lookup:
                row["reason"] = "skipped"
                row["age"] = row["age_seconds"] = None
            elif depth < hits:
                row["reason"] = "hit"
            elif own and depth >= (len(tokens) - 1) // self.size:
                row["reason"] = "last_token"
            elif resident:
                row["reason"] = "after_gap"
            elif was:
                gone, at, *_ = self.snapshots[was[-1] + 1]
                cleared = any(snapshot[3] for snapshot in self.snapshots[was[-1] + 1 :])
                row["reason"] = "reset" if cleared else "evicted"
                if not cleared:
                    row["evicted_ago"], row["evicted_seconds_ago"] = now - gone, time - at
            elif own:
                row["reason"] = "not_cached"
            elif earlier:
                row["reason"] = "key_differs"
                other = self._last_touch(earlier).key
                row["differs"] = " + ".join(name for name, part in PARTS.items() if part(other) != part(key))
                fresh = False
            else:
                shared = max((self._shared(m.tokens, prefix) for m in self.moments if m.key == key), default=0)
                row["reason"] = "first_seen"
                if fresh and shared > depth * self.size:
                    row["reason"], row["shared_tokens"] = "short_share", shared - depth * self.size
                fresh = False
            rows.append(row)
        return rows

    @staticmethod
    def _last_touch(moments: list[Moment]) -> Moment:
        """Of those that had a prefix: whoever asked for it last, or, if nobody did, whoever generated it first."""
        asked = [moment for moment in moments if not moment.grown]
        return asked[-1] if asked else moments[0]

    @staticmethod
    def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
