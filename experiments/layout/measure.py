"""One layout on the clock: the real scheduler and cache over the laid-out chat, with the answers known in advance.

The model is told what to answer, so that the next prompt of a session repeats what was generated, as in a real chat,
and generated tokens can hit. Three ways to count what is computed although it need not be:

    resent_tokens_computed      instructions and earlier turns, sent before: what a better layout could save
    recomputed_prefix_tokens    what a cache without bounds would have hit in this layout: what more memory could save
    computed_tokens             all prompt tokens that missed

Knows nothing of layouts; the workload has them laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from experiments.ceiling import InfiniteCache
from experiments.latency import Row
from experiments.layout.workload import LaidOutChat
from experiments.workload.base import Request
from scheduler.request import Branch


def foretold(replies: Sequence[Sequence[int]]) -> Callable[[Branch, int, int], Sequence[int]]:
    """The output tokens of a scheduler whose requests are numbered as `replies` are."""
    return lambda branch, start, stop: replies[branch.request.index][start:stop]


def ceiling_tokens(requests: Sequence[Request], replies: Sequence[Sequence[int]], block_size: int) -> list[int]:
    """Per request, what an infinite cache would have hit had each request ended before the next began.

    A request leaves its prompt and all but the last token of its answer, whose K and V nobody needed.
    """
    from cache.tokens import PackedTokens, pack

    infinite, found = InfiniteCache(), []
    for request, reply in zip(requests, replies, strict=True):
        hits = infinite.observe(b"", request.tokens, block_size)
        found.append(min(hits, (len(request.tokens) - 1) // block_size) * block_size)
        infinite.observe(b"", PackedTokens(request.tokens.packed() + pack(reply[:-1])), block_size)
    return found


def count_resent(rows: Sequence[Row], workload: LaidOutChat, block_size: int) -> list[Row]:
    """The rows of `simulate`, one per request in order, with `turn` and the tokens that need not have been computed.

    Raises ValueError where rows and workload are of different requests.
    """
    requests = list(workload)
    more = zip(
        rows,
        workload.turns()[: len(requests)],
        workload.sent_before()[: len(requests)],
        ceiling_tokens(requests, workload.replies()[: len(requests)], block_size),
        strict=True,
    )
    return [
        row
        | {
            "turn": turn + 1,
            "resent_tokens": sent,
            "resent_tokens_computed": max(0, sent - (row["hit_tokens"] or 0)),
            "ceiling_tokens": ceiling,
        }
        for row, turn, sent, ceiling in more
    ]


def layout_metrics(rows: Sequence[Row]) -> Row:
    """Sums and means over the requests that were served."""
    served = [row for row in rows if row["error"] is None]
    total = {name: sum(row[name] for row in served) for name in SUMMED}
    count = len(served)
    return {
        "prompt_tokens_per_request": total["prompt_tokens"] / count,
        "computed_tokens_per_request": (total["prompt_tokens"] - total["hit_tokens"]) / count,
        "resent_tokens_per_request": total["resent_tokens"] / count,
        "resent_tokens_computed_per_request": total["resent_tokens_computed"] / count,
        "ceiling_token_hit_rate": total["ceiling_tokens"] / total["prompt_tokens"],
        "recomputed_prefix_tokens_per_request": (total["ceiling_tokens"] - total["hit_tokens"]) / count,
    }


SUMMED = ("prompt_tokens", "hit_tokens", "resent_tokens", "resent_tokens_computed", "ceiling_tokens")


def by_turn(rows: Sequence[Row]) -> list[Row]:
    """One row per turn of a session: requests, what they held, hit and computed, median time to first token."""
    import numpy as np

    served = sorted((row for row in rows if row["error"] is None), key=lambda row: row["turn"])
    table = []
    for turn, group in groupby(served, key=lambda row: row["turn"]):
        part = list(group)
        total = {name: sum(row[name] for row in part) for name in SUMMED}
        table.append(
            {
                "turn": turn,
                "requests": len(part),
                "token_hit_rate": total["hit_tokens"] / total["prompt_tokens"],
                **{f"{name}_per_request": total[name] / len(part) for name in SUMMED},
                "ttft_ms_p50": 1000 * float(np.median([row["ttft"] for row in part])),
            }
        )
    return table
