"""How many programs share the keys of one query tile.

A call has `programs` = query tiles × KV heads; a GPU runs about `capacity` = 2 × processors at once. With n splits a
program walks ceil(tiles / n) key tiles, and costs START_TILES more to begin, end and be reduced:

    cost(n) = ceil(programs · n / capacity) · (ceil(tiles / n) + START_TILES)         n = 1, 2, 4 … and the n that
                                                                                      fills one wave exactly
The smallest cost wins, fewer splits on a tie. Few sequences get many splits, many get one, and a batch that would
leave half of its last wave idle gets a number in between.

Knows nothing of clocks: START_TILES is a guess to be measured per GPU, not a measurement.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.launch import cdiv

PROGRAMS_PER_PROCESSOR = 2
START_TILES = 2
MAX_SPLITS = 128


def num_processors(tensor: Tensor) -> int:
    """Streaming multiprocessors (or compute units) of the tensor's GPU; 1 on a CPU, where splits gain nothing."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1


def choose_num_splits(programs: int, max_seq_len: int, tile_kv: int, processors: int) -> int:
    """Splits for `programs` = query tiles × KV heads over at most `max_seq_len` keys: see the module docstring."""
    tiles = max(1, cdiv(max_seq_len, tile_kv))
    capacity = PROGRAMS_PER_PROCESSOR * processors
    most = min(tiles, MAX_SPLITS)
    candidates = (
        {1, most} | {2**i for i in range(most.bit_length())} | {max(1, min(most, capacity // max(programs, 1)))}
    )

    def cost(n: int) -> tuple[int, int]:
        return cdiv(programs * n, capacity) * (cdiv(tiles, n) + (START_TILES if n > 1 else 0)), n

    return min(candidates, key=cost)
