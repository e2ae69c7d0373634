"""The cache and its ledger as data frames, for notebooks and records.

`blocks` and `sequences` show a cache as it is now, `prefixes` all it ever saw, as a tree; `reasons`, `ages` and
`lookups` show what the ledger counted.

Knows nothing of how to draw them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cache.extra_keys import decode
from cache.ledger_blocks import RESIDENT
from cache.ledger_rows import NONE
from cache.reasons import MEANING, REASONS

if TYPE_CHECKING:
    from cache.ledger import Ledger
    from cache.manager import CacheManager
    from cache.sequence import Sequence

AGE_COLUMNS = {"hit": "at_hit", "evicted": "at_eviction", "missed": "at_miss"}
STEP = 2**0.25
"""Ages are reported in steps of a quarter of an octave."""


def blocks(
    manager: CacheManager, ledger: Ledger | None = None, names: Mapping[str, Sequence] | None = None
) -> pd.DataFrame:
    """One row per block of the pool (of those in use, where it is infinite): its state, owners, and what it holds.

    Columns: block, state (free, mutable, immutable, idle), ref_count, owners (names given in `names`, else the index of
    the request), position (in the owner's table); with a ledger that keeps every block (`full`) also prefix, depth,
    parent (block), age and age_seconds since the last touch, key (extra keys), content.
    """
    allocator = manager.allocator
    called = {id(seq): name for name, seq in (names or {}).items()}
    owners: dict[int, list[str]] = {}
    position: dict[int, int] = {}
    for seq in manager.live_sequences:
        for place, block in enumerate(seq.block_table):
            owners.setdefault(block, []).append(called.get(id(seq), str(seq.access.request_index)))
            position[block] = place
    held = {} if ledger is None or ledger.blocks is None else ledger.blocks.prefixes()
    ids = sorted(owners.keys() | held.keys()) if allocator.num_blocks == inf else range(int(allocator.num_blocks))
    frame = pd.DataFrame({"block": ids})
    frame["state"] = [allocator.state(block) for block in ids]
    frame["ref_count"] = [allocator.ref_count(block) for block in ids]
    frame["owners"] = [", ".join(owners.get(block, [])) for block in ids]
    frame["position"] = pd.array([position.get(block, pd.NA) for block in ids], dtype="Int64")
    if ledger is None or ledger.blocks is None:
        return frame
    frame["prefix"] = pd.array([held.get(block, pd.NA) for block in ids], dtype="Int64")
    known = _prefixes(ledger)
    known["parent"] = known.parent.map({prefix: block for block, prefix in held.items()}).astype("Int64")
    return frame.merge(known, how="left", left_on="prefix", right_index=True)


def sequences(manager: CacheManager) -> pd.DataFrame:
    """One row per sequence that holds blocks: request, tokens, hit, immutable and all blocks, its table, its keys."""
    rows = [
        {
            "request": seq.access.request_index,
            "session": seq.access.session,
            "num_tokens": seq.num_tokens,
            "num_computed_tokens": seq.num_computed_tokens,
            "num_hit_blocks": seq.num_hit_blocks,
            "num_immutable_blocks": seq.num_immutable_blocks,
            "block_table": list(seq.block_table),
            "key": _readable_key(seq.root or b""),
        }
        for seq in manager.live_sequences
    ]
    return pd.DataFrame(rows)


def prefixes(ledger: Ledger) -> pd.DataFrame:
    """The tree of all prefixes ever looked up, one row per run of blocks that no prompt has parted yet.

    Columns: run, parent (run; NA under a root), depth (of its first block), blocks, tokens, children, resident (blocks
    of it findable now; with a full ledger), last_request, age, age_seconds, key.
    """
    rows, size = [], ledger.tree.block_size
    for root in ledger.tree.roots():
        for node in ledger.tree.nodes(root):
            age, seconds = ledger.age(node.stamp)
            states = [ledger.blocks.state(node.first + i) for i in range(node.length)] if ledger.blocks else []
            parent = node.parent if node.depth else None
            rows.append(
                {
                    "run": node.first,
                    "parent": pd.NA if parent is None else parent.first,
                    "depth": node.depth,
                    "blocks": node.length,
                    "tokens": node.length * size,
                    "children": len(node.children),
                    "resident": states.count(RESIDENT) if ledger.blocks else pd.NA,
                    "last_request": node.stamp,
                    "age": age,
                    "age_seconds": seconds,
                    "key": _readable_key(root),
                }
            )
    frame = pd.DataFrame(rows)
    return frame.astype({"parent": "Int64", "resident": "Int64"}) if rows else frame


def reasons(ledger: Ledger) -> pd.DataFrame:
    """Looked-up blocks by reason: blocks, share, tokens, meaning; parts of keys that differ have rows of their own."""
    total = max(sum(ledger.counts.values()), 1)
    rows = [
        {"reason": reason, "part": None, "blocks": ledger.counts[reason], "meaning": MEANING[reason]}
        for reason in REASONS
    ]
    rows += [
        {"reason": "key_differs", "part": " + ".join(parts), "blocks": count, "meaning": "of these, by part of the key"}
        for parts, count in sorted(ledger.differing.items())
    ]
    frame = pd.DataFrame(rows)
    frame.insert(3, "share", frame.blocks / total)
    frame.insert(4, "tokens", frame.blocks * ledger.tree.block_size)
    return frame


def ages(ledger: Ledger, unit: str = "requests") -> pd.DataFrame:
    """Blocks by age since their last touch, in steps of a quarter of an octave of `unit` (requests or seconds).

    Columns: age (lower end of the step), hit, evicted, missed (asked for again after having been evicted).
    """
    columns = {}
    for name, attribute in AGE_COLUMNS.items():
        events = np.array([tuple(event) for event in getattr(ledger, attribute)], dtype=float).reshape(-1, 3)
        age = events[:, 0 if unit == "requests" else 1]
        step = np.floor(np.log(np.maximum(age, 1e-3)) / np.log(STEP) + 1e-9)
        columns[name] = pd.Series(events[:, 2], index=step).groupby(level=0).sum()
    frame = pd.DataFrame(columns).fillna(0).astype(int).sort_index()
    frame.insert(0, "age", STEP ** frame.index.to_numpy(dtype=float))
    return frame.reset_index(drop=True)


def lookups(ledger: Ledger) -> pd.DataFrame:
    """Every looked-up block, a row each, in order. Raises ValueError unless the ledger was made with `full`.

    Columns: request, depth, reason, block (of a hit), age and age_seconds since the last touch, evicted_ago and
    evicted_seconds_ago, decision (what the policy went by), victim (its place among `victims` chosen together),
    shared_tokens, differs (parts of the key).
    """
    rows = ledger.rows
    if rows is None:
        raise ValueError("only counts were kept: make the ledger with full=True (ledger=full) to keep every block")
    frame = pd.DataFrame({"request": rows.request, "depth": rows.depth})
    frame["reason"] = pd.Categorical.from_codes(np.array(rows.reason, dtype=np.int8), categories=pd.Index(REASONS))
    for column in ("block", "age", "evicted_ago"):
        values = pd.Series(np.array(getattr(rows, column), dtype=np.int64)).astype("Int64")
        frame[column] = values.mask(values == NONE)
    for column in ("age_seconds", "evicted_seconds_ago"):
        frame[column] = np.array(getattr(rows, column))
    notes = pd.DataFrame(rows.notes, columns=["decision", "victim", "victims", "shared_tokens", "differs"])
    notes = notes.astype({"victim": "Int64", "victims": "Int64", "shared_tokens": "Int64"})
    more = notes.reindex(np.array(rows.note, dtype=np.int64)).reset_index(drop=True)
    return pd.concat([frame, more], axis=1)


def _prefixes(ledger: Ledger) -> pd.DataFrame:
    """One row per prefix, by number: its parent's number, depth, ages, keys and content."""
    rows: dict[int, dict[str, Any]] = {}
    for root in ledger.tree.roots():
        for node in ledger.tree.nodes(root):
            above = node.parent.first + node.parent.length - 1 if node.parent and node.depth else None
            age, seconds = ledger.age(node.stamp)
            key = _readable_key(root)
            for i, content in enumerate(node.contents()):
                row = {"depth": node.depth + i, "parent": above, "age": age, "age_seconds": seconds}
                rows[node.first + i] = row | {"key": key, "content": content}
                above = node.first + i
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["depth", "parent", "age", "age_seconds", "key", "content"]
    )


def _readable_key(root: bytes) -> str:
    return ", ".join(f"{part} {value!r}" for part, value in decode(root).items())
