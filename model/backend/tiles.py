"""Attention whose bits depend on nothing but a query's own keys: products of one fixed shape, keys in a fixed order.

    queries   each sequence's new tokens, cut into tiles of TILE_Q rows, the last one padded
    keys      tiles of TILE_KV at absolute positions 0, TILE_KV, 2 · TILE_KV …, folded in this order

Every product is [TILE_Q · group, head_dim] × [head_dim, TILE_KV] or its like; the softmax is folded online (Milakov
and Gimelshein 2018). A tile of keys of which a row sees none changes nothing of that row, exactly: its maximum stays,
exp(0) = 1 scales what there is, and zeros are added. So neither the chunk a token came in, nor its batch, nor what
was cached can show. The one assumption, tested on the BLAS at hand: a product's row depends on that row alone.

Knows nothing of block tables: `Slots` names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.batch import Batch


class Slots(Protocol):
    """From positions to slots."""

    @property
    def tables(self) -> Tensor:
        """Only asked for its device."""

    def slots(self, seqs: Tensor, positions: Tensor) -> Tensor:
        """Slots of `positions [n, m]` of sequences `seqs [n]`."""


@dataclass(frozen=True, slots=True)
class KeyTile:
    """One tile of keys, for the query tiles that see any of it."""

    active: Tensor
    """[m] query tiles"""
    slots: Tensor
    """[m · TILE_KV]; past a sequence's end, its last slot again"""
    hidden: Tensor
    """[m, 1, TILE_Q, 1, TILE_KV], true where a query may not look"""


class TilePlan:
    """The query tiles of a batch, and for each window the key tiles they walk; made once per step."""

    def __init__(self, batch: Batch, pages: Slots, tile_q: int, tile_kv: int) -> None:
        self.pages, self.tile_q, self.tile_kv = pages, tile_q, tile_kv
        self.device = pages.tables.device
        seqs, lens, firsts, rows = [], [], [], []
        for i, length in enumerate(batch.seq_lens):
            start, stop = batch.query_start_loc[i], batch.query_start_loc[i + 1]
            for first in range(start, stop, tile_q):
                seqs.append(i)
                lens.append(length)
                firsts.append(length - (stop - first))
                rows.append([*range(first, min(first + tile_q, stop)), *[-1] * max(0, first + tile_q - stop)])
        self.seqs = torch.tensor(seqs, device=self.device)
        self.lens = torch.tensor(lens, device=self.device)[:, None]
        self.queries = torch.tensor(firsts, device=self.device)[:, None] + torch.arange(tile_q, device=self.device)
        """[tiles, TILE_Q] positions; those past the sequence's end are padding"""
        self.rows = torch.tensor(rows, device=self.device)
        """[tiles, TILE_Q] rows of the step; −1 for padding"""
        self._keys: dict[int | None, list[KeyTile]] = {}

    def keys(self, window: int | None) -> list[KeyTile]:
        """The key tiles, front to back."""
        if window not in self._keys:
            last = self.queries[:, -1].minimum(self.lens[:, 0] - 1)
            first = torch.zeros_like(last) if window is None else (self.queries[:, 0] + 1 - window).clamp(min=0)
            found = []
            for begin in range(int(first.min()) // self.tile_kv * self.tile_kv, int(last.max()) + 1, self.tile_kv):
                active = ((last >= begin) & (first < begin + self.tile_kv)).nonzero()[:, 0]
                if active.numel():
                    found.append(self._key_tile(active, begin, window))
            self._keys[window] = found
        return self._keys[window]

    def _key_tile(self, active: Tensor, begin: int, window: int | None) -> KeyTile:
        positions = torch.arange(begin, begin + self.tile_kv, device=self.device)
        slots = self.pages.slots(self.seqs[active], torch.minimum(positions, self.lens[active] - 1))
        queries = self.queries[active][:, :, None]
        hidden = positions > queries
        if window is not None:
            hidden |= positions <= queries - window
        return KeyTile(active, slots.view(-1), hidden[:, None, :, None])


def attend_tiles(q: Tensor, k_pool: Tensor, v_pool: Tensor, plan: TilePlan, window: int | None) -> Tensor:
    """Rotated `q [rows, num_heads, head_dim]` over pools `[num_slots, kv_heads, head_dim]` → `[rows, heads · dim]`."""
    tiles, tile_q = plan.rows.shape
    kv_heads, dim_v = v_pool.shape[1:]
    group, dim = q.shape[1] // kv_heads, q.shape[2]
    scaled = (q.float() * dim**-0.5)[plan.rows]  # padding computes something that is never looked at
    # [tiles, kv_heads, TILE_Q · group, dim]
    scaled = scaled.view(tiles, tile_q, kv_heads, group, dim).transpose(1, 2).reshape(tiles, kv_heads, -1, dim)
    most = scaled.new_full((tiles, kv_heads, tile_q * group, 1), float("-inf"))
    total, acc = torch.zeros_like(most), scaled.new_zeros(tiles, kv_heads, tile_q * group, dim_v)
    for tile in plan.keys(window):
        at, m = tile.active, tile.active.shape[0]
        # [m, kv_heads, TILE_KV, dim]
        k, v = (
            pool.index_select(0, tile.slots).view(m, plan.tile_kv, kv_heads, -1).transpose(1, 2).float().contiguous()
            for pool in (k_pool, v_pool)
        )
        scores = torch.bmm(scaled[at].flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
        scores = scores.view(m, kv_heads, tile_q, group, plan.tile_kv).masked_fill_(tile.hidden, float("-inf"))
        scores = scores.view(m, kv_heads, tile_q * group, plan.tile_kv)
        most_now = torch.maximum(most[at], scores.amax(-1, keepdim=True))
        floor = most_now.masked_fill(most_now == float("-inf"), 0)  # a row that has seen nothing yet
        weights, keep = torch.exp(scores - floor), torch.exp(most[at] - floor)
        total[at] = total[at] * keep + weights.sum(-1, keepdim=True)
        found = torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(m, kv_heads, -1, dim_v)
        acc[at] = acc[at] * keep + found
        most[at] = most_now
    out = (acc / total).view(tiles, kv_heads, tile_q, group, dim_v).transpose(1, 2).reshape(tiles, tile_q, -1)
    kept: Tensor = out[plan.rows >= 0].to(q.dtype)
    return kept
