"""Prompts that often share something, keys that set them apart, and a ledger's rows as plain dictionaries."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.ledger import Ledger
from cache.reasons import REASONS

KEYS = [NO_EXTRA_KEYS, ExtraKeys(tenant="a"), ExtraKeys(lora="a"), ExtraKeys(lora="a", lora_version="2", caller="x")]
PROMPTS = st.builds(
    lambda base, length, tail: base[:length] + tail,
    st.sampled_from([[0] * 14, [0, 1] * 7, [0, 0, 0, 1] * 4]),
    st.integers(1, 14),
    st.lists(st.integers(0, 1), max_size=3),
)


def rows_of(ledger: Ledger) -> list[dict[str, Any]]:
    rows, none = ledger.rows, lambda value: None if value != value or value == -1 else value
    assert rows is not None

    def note(i: int) -> dict[str, Any]:
        told = rows.notes[rows.note[i]] if rows.note[i] >= 0 else {}
        return {key: told.get(key) for key in ("shared_tokens", "differs")}

    return [
        {
            "request": rows.request[i],
            "depth": rows.depth[i],
            "reason": REASONS[rows.reason[i]],
            "age": none(rows.age[i]),
            "age_seconds": none(rows.age_seconds[i]),
            "evicted_ago": none(rows.evicted_ago[i]),
            "evicted_seconds_ago": none(rows.evicted_seconds_ago[i]),
            **note(i),
        }
        for i in range(len(rows))
    ]
