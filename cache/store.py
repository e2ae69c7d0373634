"""The KV tensors: one K and one V pool per layer, blocks copied and swapped for all layers at once.

    k[layer]   | block 0 … num_blocks − 1: the allocator's | guard block: nobody's (poison only, behind the view) |
               each [block_size, num_kv_heads, head_dim]; v[layer] likewise, with a head_dim of its own

With `poison`, memory that nobody wrote is NaN: all of it at first, and each block again when it is handed out or
given back (`poison_blocks`). Whoever reads what it does not own computes NaN, and sampling refuses that. The guard
block past the end, and the canary in it, must never change: `check_guard` says so.

On a GPU blocks move by the Triton kernel, all layers in one launch; on a CPU by torch's indexing.

Knows nothing of sequences, tokens or why a block moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cache.errors import MisuseError
from kernels.copy.blocks import copy_blocks, gather_blocks, pool_table, scatter_blocks

Pairs = Sequence[tuple[int, int]]
CANARY = -12345.0
"""What the guard block holds: exact in every float type, and no number a model writes."""


class KVStore:
    """K and V of `num_blocks` device blocks, and room for `num_host_blocks` swapped ones."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        head_dim_v: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        num_host_blocks: int = 0,
        poison: bool = False,
    ) -> None:
        """Raises MemoryError that names the sizes where the pool does not fit, ValueError for a size below 1."""
        sizes = {
            "num_blocks": num_blocks, "block_size": block_size, "num_layers": num_layers,
            "num_kv_heads": num_kv_heads, "head_dim": head_dim,
        }  # fmt: skip
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.num_blocks, self.block_size, self.poison = num_blocks, block_size, poison
        self.num_host_blocks = num_host_blocks
        self.device = torch.device(device)
        rows = num_blocks + (1 if poison else 0)
        dims = (head_dim, head_dim if head_dim_v is None else head_dim_v)
        shapes = [(block_size, num_kv_heads, dim) for dim in dims]
        self.bytes_per_block = sum(block_size * num_kv_heads * dim for dim in dims) * num_layers * dtype.itemsize
        try:
            pools = [[self._new(rows, shape, dtype) for _ in range(num_layers)] for shape in shapes]
            self._host = self._new_host(num_host_blocks)
        except (RuntimeError, MemoryError) as error:  # torch has an error of its own on a GPU, and this one on a CPU
            need = (rows + num_host_blocks) * self.bytes_per_block
            raise MemoryError(
                f"{num_blocks} KV blocks of {block_size} tokens and {num_host_blocks} host blocks need "
                f"{need / 2**30:.1f} GiB, which is not there ({str(error).splitlines()[0]}): lower num_blocks"
            ) from None
        self.k, self.v = ([whole[:num_blocks] for whole in pool] for pool in pools)
        self._pools = [*self.k, *self.v]
        self._table = pool_table(self._pools) if self.device.type == "cuda" else None
        self._guards = [whole[num_blocks:] for pool in pools for whole in pool]
        for guard in self._guards:
            guard.fill_(CANARY)

    def copy(self, pairs: Pairs) -> None:
        """Copy block a over block b for each (a, b), in every layer: copy-on-write.

        No destination may be named twice or be a source. Raises MisuseError for ids outside the pool.
        """
        if not pairs:
            return
        source, destination = self._ids(pairs, 0, self.num_blocks), self._ids(pairs, 1, self.num_blocks)
        if self._table is not None:
            copy_blocks(self._table, source, destination)
            return
        for pool in self._pools:
            pool[destination] = pool[source]

    def swap_out(self, pairs: Pairs) -> None:
        """(device block, host block): save blocks to the host. Done when it returns."""
        if not pairs:
            return
        source, host = self._ids(pairs, 0, self.num_blocks), self._ids(pairs, 1, self.num_host_blocks, host=True)
        if self._table is not None:
            rows = torch.empty(len(pairs), self.bytes_per_block, dtype=torch.uint8, device=self.device)
            gather_blocks(self._table, source, rows)
            self._host[host] = rows.cpu()
            return
        at = 0
        for pool in self._pools:
            block = pool[source].view(len(pairs), -1).view(torch.uint8)
            self._host[host, at : at + block.shape[1]] = block
            at += block.shape[1]

    def swap_in(self, pairs: Pairs) -> None:
        """(host block, device block): bring blocks back, bit for bit."""
        if not pairs:
            return
        host, destination = self._ids(pairs, 0, self.num_host_blocks, host=True), self._ids(pairs, 1, self.num_blocks)
        rows = self._host[host]
        if self._table is not None:
            scatter_blocks(self._table, destination, rows.to(self.device))
            return
        at = 0
        for pool in self._pools:
            width = pool[0].numel() * pool.element_size()
            # [blocks, bytes] as the elements they are; a slice must be whole before it can be read as wider ones
            block = rows[:, at : at + width].contiguous().view(pool.dtype)
            pool[destination] = block.view(len(pairs), *pool.shape[1:])
            at += width

    def poison_blocks(self, blocks: Sequence[int]) -> None:
        """Fill blocks with NaN, if `poison`: for blocks handed out uncached, and for those that lost their key."""
        if not self.poison or not blocks:
            return
        ids = torch.tensor(list(blocks), device=self.device)
        for pool in self._pools:
            pool[ids] = float("nan")

    def check_guard(self) -> None:
        """Raises AssertionError where something wrote past the last block."""
        for i, guard in enumerate(self._guards):
            kind, layer = ("k", i) if i < len(self.k) else ("v", i - len(self.k))
            assert bool((guard == CANARY).all()), f"{kind}[{layer}]: the guard block was written"

    def _new(self, rows: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if self.poison:
            return torch.full((rows, *shape), float("nan"), dtype=dtype, device=self.device)
        return torch.zeros(rows, *shape, dtype=dtype, device=self.device)

    def _new_host(self, count: int) -> Tensor:
        pinned = self.device.type == "cuda" and count > 0
        return torch.empty(count, self.bytes_per_block, dtype=torch.uint8, pin_memory=pinned)

    def _ids(self, pairs: Pairs, side: int, count: int, host: bool = False) -> Tensor:
        ids = [pair[side] for pair in pairs]
        if not 0 <= min(ids) <= max(ids) < count:
            raise MisuseError(
                f"{'host ' if host else ''}block ids must lie in 0..{count - 1}, got {min(ids)}..{max(ids)}"
            )
        return torch.tensor(ids, device="cpu" if host else self.device)
