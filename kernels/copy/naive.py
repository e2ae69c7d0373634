"""Moving blocks in plain torch, one block at a time. A block id outside the pool moves nothing.

The only oracle of the copy kernels. Knows nothing of why a block moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_blocks(pools: Sequence[Tensor], src_ids: Tensor, dst_ids: Tensor) -> None:
    """Arguments as `kernels.copy.blocks.copy_blocks`, with the pools themselves for the table."""
    for pool in pools:
        for src, dst in zip(src_ids.tolist(), dst_ids.tolist(), strict=True):
            if 0 <= src < pool.shape[0] and 0 <= dst < pool.shape[0]:
                pool[dst] = pool[src]


def gather_blocks(pools: Sequence[Tensor], block_ids: Tensor, buffer: Tensor) -> None:
    """Arguments as `kernels.copy.blocks.gather_blocks`. A pool's block lies in the buffer as it does in memory."""
    for i, block in enumerate(block_ids.tolist()):
        at = 0
        for pool in pools:
            size = pool[0].numel() * pool.element_size()
            if 0 <= block < pool.shape[0]:
                buffer[i, at : at + size] = in_memory_order(pool[block]).view(torch.uint8)
            at += size


def scatter_blocks(pools: Sequence[Tensor], block_ids: Tensor, buffer: Tensor) -> None:
    """Arguments as `kernels.copy.blocks.scatter_blocks`."""
    for i, block in enumerate(block_ids.tolist()):
        at = 0
        for pool in pools:
            size = pool[0].numel() * pool.element_size()
            if 0 <= block < pool.shape[0]:
                in_memory_order(pool[block]).view(torch.uint8).copy_(buffer[i, at : at + size])
            at += size


def in_memory_order(block: Tensor) -> Tensor:
    """A dense block as a flat view of its elements, in the order they have in memory."""
    order = sorted(range(block.dim()), key=block.stride, reverse=True)
    return block.permute(order).view(-1)
