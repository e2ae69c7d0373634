"""How large the pool is: a count of blocks, `inf`, or a share of the workload ("5%")."""

from __future__ import annotations

from math import inf

from experiments.ceiling import footprint
from experiments.errors import UserError
from experiments.workload.base import Workload


def resolve_num_blocks(asked: object, block_size: int, workload: Workload) -> int | float:
    """Blocks of the pool. "5%" is 5 % of the workload's distinct prefix tokens, so it is one amount of memory at every
    block size; it costs one walk over the workload.

    Raises UserError for anything that is not a positive count, `inf` or a positive percentage.
    """
    text = str(asked).strip()
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
            if 0 < share < inf:
                return max(1, round(share * footprint(workload)) // block_size)
        elif float(text) == inf:
            return inf
        elif int(text) > 0:
            return int(text)
    except ValueError:
        pass
    raise UserError(
        f"num_blocks={asked} is no pool size. Give a positive number of blocks (num_blocks=10000), inf, or a share of "
        f"the workload's distinct prefix tokens (num_blocks=5%)."
    )
