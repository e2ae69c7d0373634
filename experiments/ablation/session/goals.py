"""The project's speed goals, judged on the rows of a session; a goal whose rows are missing is not met but unknown.

Knows nothing of how rows were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """`got` is None where nothing was measured; `met` then too. `at_least` False: small is good."""

    name: str
    wanted: float
    got: float | None
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached."""
        if self.got is None:
            return None
        return self.got >= self.wanted if self.at_least else self.got <= self.wanted

    def row(self) -> Row:
        """For a table or a record."""
        return {**asdict(self), "met": self.met}


def judge_goals(rows: Sequence[Row]) -> list[Goal]:
    """All goals. `rows`: those of a session, with `section`, the fields of a point, and what `measured` found."""
    decode = [row for row in _measured(rows) if row["section"] == "decode"]
    prefill = [row for row in _measured(rows) if row["section"] == "prefill" and row["query_len"] == 8192]
    write = [row for row in _measured(rows) if row["section"] == "write" and row["variant"] == "Scatter"]
    overhead = [row for row in _measured(rows) if row["section"] == "overhead"]
    return [
        Goal("decode, block size 16: share of copy bandwidth, worst context", 0.90, _worst_share(decode, 16)),
        Goal("decode, block size 8: share of copy bandwidth, worst context", 0.85, _worst_share(decode, 8)),
        Goal("decode, block size 16 over 128: time ratio, worst context", 1.03, _worst_ratio(decode), at_least=False),
        Goal("KV write: share of copy bandwidth", 0.85, _least(row["share_of_ceiling"] for row in write)),
        Goal("prefill 8k: speed over torch's fastest dense SDPA", 0.75, _least(map(_over_sdpa, prefill))),
        Goal("cascade, prefix 8k, batch 64: speed-up over one pass over shared blocks", 5.0, _speed_up(rows, True)),
        Goal("cascade, prefix 8k, batch 64: speed-up over blocks of everybody's own", 5.0, _speed_up(rows, False)),
        Goal("cascade by the planner's choice: speed-up, worst case", 0.97, _planner(rows)),
        Goal(
            "decode, batch 1, context 1k, back to back with the host: time over SDPA",
            1.3,
            _least(_ratio(row, "host_us", "sdpa_host_us") for row in overhead),
            at_least=False,
        ),
        Goal(
            "decode, batch 1, context 1k, on the device alone: time over SDPA",
            1.3,
            _least(_ratio(row, "p50_us", "sdpa_us") for row in overhead),
            at_least=False,
        ),
    ]


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.get("p50_us") is not None]


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _ratio(row: Row, above: str, below: str) -> float | None:
    return row[above] / row[below] if row.get(above) and row.get(below) else None


def _worst_share(decode: Sequence[Row], block_size: int) -> float | None:
    return _least(row["share_of_ceiling"] for row in decode if row["block_size"] == block_size)


def _worst_ratio(decode: Sequence[Row]) -> float | None:
    times = {(row["block_size"], row["context"]): row["p50_us"] for row in decode}
    contexts = {context for _, context in times}
    ratios = [times[16, c] / times[128, c] for c in contexts if (16, c) in times and (128, c) in times]
    return max(ratios, default=None)


def _over_sdpa(row: Row) -> float | None:
    best = _least(
        value
        for key, value in row.items()
        if key.startswith("sdpa") and key.endswith("_us") and not key.endswith("_host_us")
    )
    return None if best is None else best / row["p50_us"]


def _pairs(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[Any, dict[str, Row]]:
    """Rows of the cascade section by what they share, then by variant."""
    pairs: dict[Any, dict[str, Row]] = {}
    for row in _measured(rows):
        if row["section"] == "cascade":
            name = row["variant"] if row["shared_prefix"] else "own blocks"
            pairs.setdefault(key(row), {})[name] = row
    return pairs


def _speed_up(rows: Sequence[Row], shared: bool) -> float | None:
    largest = _pairs(rows, lambda row: (row["context"], row["batch"]))
    if not largest:
        return None
    found = largest[max(largest)]
    other = found.get("SplitKv" if shared else "own blocks")
    return other["p50_us"] / found["Cascade"]["p50_us"] if other and "Cascade" in found else None


def _planner(rows: Sequence[Row]) -> float | None:
    """Where the planner declines, its choice is the one pass itself: exactly 1."""
    ratios = []
    for found in _pairs(rows, lambda row: (row["context"], row["batch"])).values():
        if "Cascade" in found and "SplitKv" in found:
            gain = found["SplitKv"]["p50_us"] / found["Cascade"]["p50_us"]
            ratios.append(gain if found["Cascade"]["planner_pays"] else 1.0)
    return min(ratios, default=None)
