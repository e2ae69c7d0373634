"""What users of a serving system feel: latencies in percentiles, throughput, goodput.

TTFT: arrival to first token. TPOT: time per output token after the first. E2E: arrival to last token. Goodput: requests
per second that meet the service-level objective in both TTFT and TPOT (Zhong et al., "DistServe", OSDI 2024).

Knows nothing of how the requests were served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cache.reasons import HIT, REASONS
from scheduler.request import Request
from scheduler.result import time_per_token

Row = dict[str, Any]
PERCENTILES = (50, 90, 95, 99)
MISSES = tuple(reason for reason in REASONS if reason != HIT)


def request_row(request: Request) -> Row:
    """One finished request as a row of a table; times in seconds, None where there is none. With a ledger, also how
    many of its prompt's blocks missed for each reason."""
    first, arrival = request.first_token_at, request.arrival
    finished, reasons = request.finished_at, request.reasons
    why = {} if reasons is None else {f"miss_{reason}": reasons.get(reason, 0) for reason in MISSES}
    return {
        "request": request.index,
        "arrival": arrival,
        "prompt_tokens": len(request.prompt),
        "output_tokens": request.num_outputs,
        "hit_tokens": request.hit_tokens,
        "partial_hit_tokens": request.partial_hit_tokens,
        "rehit_tokens": request.rehit_tokens,
        "recomputed_tokens": request.recomputed_tokens,
        "swapped_in_tokens": request.swapped_in_tokens,
        "preemptions": request.preemptions,
        "inflight_waits": request.inflight_waits,
        "queued": None if request.admitted_at is None else request.admitted_at - arrival,
        "ttft": None if first is None else first - arrival,
        "tpot": time_per_token(request),
        "e2e": None if finished is None else finished - arrival,
        "error": request.error,
        **why,
    }


def latencies(rows: Sequence[Row]) -> Row:
    """`ttft_p50` … in seconds, over the rows that have the figure."""
    found: Row = {}
    for name in ("queued", "ttft", "tpot", "e2e"):
        values = [row[name] for row in rows if row[name] is not None]
        if values:
            found[f"{name}_mean"] = float(np.mean(values))
            percents = np.percentile(values, PERCENTILES).tolist()
            found |= {f"{name}_p{p}": value for p, value in zip(PERCENTILES, percents, strict=True)}
    return found


def goodput(rows: Sequence[Row], slo: Mapping[str, float], seconds: float) -> Row:
    """Requests that meet the objective: their share of all, and how many per second. One token has no TPOT to miss."""
    good = sum(
        row["error"] is None
        and row["ttft"] is not None
        and row["ttft"] <= slo["ttft"]
        and (row["tpot"] or 0.0) <= slo["tpot"]
        for row in rows
    )
    return {
        "slo_ttft": float(slo["ttft"]),
        "slo_tpot": float(slo["tpot"]),
        "good_requests": good,
        "good_request_rate": good / len(rows) if rows else 0.0,
        "goodput": good / seconds if seconds else 0.0,
    }
