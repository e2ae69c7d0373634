"""How large the pool is: a count of blocks, `inf`, or a share of the workload ("5%")."""

from __future__ import annotations

from math import inf

from experiments.ceiling import footprint
from experiments.errors import UserError
from experiments.workload.base import Workload

MOST_PERCENT = 1e6


def resolve_num_blocks(asked: object, block_size: int, workload: Workload) -> int | float:
    """Blocks of the pool. "5%" is 5 % of the workload's distinct prefix tokens, so it is one amount of memory at every
    block size; it costs one walk over the workload.

    Raises UserError for anything that is not a positive count, `inf` or a positive percentage.
    """
    count = _count(asked)
    if count is None:
        raise UserError(
            f"num_blocks={asked} is no pool size. Give a positive whole number of blocks (num_blocks=10000), inf, or a "
            f"share of the workload's distinct prefix tokens (num_blocks=5%)."
        )
    if str(asked).strip().endswith("%"):
        return max(1, round(count / 100 * footprint(workload)) // block_size)
    return count if count == inf else int(count)


def _count(asked: object) -> float | None:
    """The number that was asked for, of blocks or of percent; None where it is no pool size."""
    text = str(asked).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        return None
    if text.endswith("%"):
        return number if 0 < number <= MOST_PERCENT else None
    return number if number > 0 and (number == inf or number.is_integer()) and not isinstance(asked, bool) else None
