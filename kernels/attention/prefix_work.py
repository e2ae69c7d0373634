"""A forest of shared prefixes as work for the prefix kernel: one row per (node, tile of query rows, key range).

    node [start ............................ stop)            its query rows, packed densely
         [ range 0 )[ range 1 )[ range 2 )                    tile 0, tile 1 ...          work = ranges × tiles
          part p     part p+1   part p+2                      a request's parts are numbered along its path

Pure host work, done once per step for all layers. Knows nothing of the kernel's insides, nor of whether a plan pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import Facts
from kernels.attention.forest import PrefixNode, check_forest, suffix_starts
from kernels.attention.splits import choose_num_splits
from kernels.launch import cdiv, next_power_of_2
from kernels.tuning import FALLBACK, AttentionConfig


@dataclass(frozen=True, slots=True)
class PrefixWork:
    """A forest laid out for the kernel: int32 tensors, as the kernel's pointer arguments describe them.

    `num_parts` counts the parts the prefixes need: the most key ranges along any path of the forest.
    """

    node_blocks: Tensor
    node_tokens: Tensor
    node_positions: Tensor
    work: Tensor
    suffix_starts: Tensor
    num_parts: int
    max_suffix_len: int
    tile_q: int
    nodes: tuple[PrefixNode, ...]

    def facts(self) -> Facts:
        """As the prefix kernel asks for them."""
        return {
            "node_blocks_ptr": self.node_blocks,
            "node_tokens_ptr": self.node_tokens,
            "node_positions_ptr": self.node_positions,
            "work_ptr": self.work,
        }


def lay_out(
    nodes: Sequence[PrefixNode],
    query_start_loc: Sequence[int],
    seq_lens: Sequence[int],
    *,
    num_heads: int,
    num_kv_heads: int,
    block_size: int,
    device: torch.device,
    processors: int,
    config: AttentionConfig = FALLBACK,
) -> PrefixWork:
    """Turn a forest into work for the prefix kernel. Pure host work: do it once per step, for all layers.

    Raises ValueError naming `plan` for a forest `check_forest` refuses, or a node that reaches past the first query
    of one of its requests (the prefix must lie before every query).
    """
    num_requests = len(seq_lens)
    check_forest(nodes, block_size, num_requests)
    past = [seq_lens[r] - (query_start_loc[r + 1] - query_start_loc[r]) for r in range(num_requests)]
    group = num_heads // num_kv_heads
    tile_q = max(config.tile_q, next_power_of_2(group))
    per_tile = tile_q // group
    blocks: list[int] = []
    tokens: list[int] = []
    positions: list[int] = []
    work: list[list[int]] = []
    next_part = [0] * num_requests  # a request's parts are numbered along its path
    for node in sorted(nodes, key=lambda n: n.start):
        for r in node.requests:
            if node.stop > past[r]:
                raise ValueError(f"plan: a node ends at {node.stop}, past request {r}'s first query at {past[r]}")
        first_token, first_block = len(tokens), len(blocks)
        blocks.extend(node.blocks)
        for r in node.requests:
            tokens.extend(range(query_start_loc[r], query_start_loc[r + 1]))
            positions.extend(range(past[r], seq_lens[r]))
        count = len(tokens) - first_token
        tiles = cdiv(count, per_tile)
        splits = choose_num_splits(tiles * num_kv_heads, node.num_tokens, config.tile_kv, processors)
        step = cdiv(cdiv(len(node.blocks), splits) * block_size, config.tile_kv) * config.tile_kv
        step = cdiv(step, block_size) * block_size  # a range starts at a block, whatever the block size
        ranges = range(node.start, node.stop, step) if count else range(0)
        part = max(next_part[r] for r in node.requests)
        for i, lo in enumerate(ranges):
            for tile in range(tiles):
                at = tile * per_tile
                work.append(
                    [
                        first_block + (lo - node.start) // block_size,
                        lo,
                        min(node.stop, lo + step),
                        first_token + at,
                        min(per_tile, count - at),
                        part + i,
                    ]
                )
        for r in node.requests:
            next_part[r] = part + len(ranges)

    def int32(values: Sequence[int] | Sequence[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    suffixes = suffix_starts(nodes, num_requests)
    longest = max((n - s for n, s in zip(seq_lens, suffixes, strict=True)), default=0)
    return PrefixWork(
        int32(blocks), int32(tokens), int32(positions), int32(work).view(-1, 6),
        int32(suffixes), max(next_part, default=0), longest, tile_q, tuple(nodes),
    )  # fmt: skip
