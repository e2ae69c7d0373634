"""Attention over pages with torch's own operations: the CPU's backend, and on a GPU something to compare with.

Keys and values are gathered slot by slot into the order of their positions, then attended to by torch's fused
attention. Rows are grouped, so that no Python runs per token:

    decode    one new token each: batched by length (powers of two), the query heads of a KV head as query rows
    prefill   several new tokens: one call per sequence; a prompt from position 0 reads its own k and v, no pages

Where a gathered row stands for no key (padding), it repeats the sequence's last slot and is masked: unwritten memory,
which may hold NaN, is never read. Invariant mode goes through `model.backend.tiles` instead.

Knows nothing of Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from model.backend.base import Backend, KVPool, Step
from model.backend.tiles import TilePlan, attend_tiles
from model.batch import Batch
from model.rope import rotate


class SdpaBackend(Backend):
    """torch only; any device."""

    def __init__(self, tile_q: int = 16, tile_kv: int = 256) -> None:
        """The tiles of invariant mode: query tokens, and keys at absolute positions. Both part of its numbers."""
        self.tile_q, self.tile_kv = tile_q, tile_kv

    def prepare(self, batch: Batch, pool: KVPool, rope: tuple[Tensor, Tensor], invariant: bool) -> Step:
        device = rope[0].device
        positions = torch.tensor(batch.positions, device=device)
        cos, sin = (table[positions][:, None] for table in rope)
        slots = torch.tensor(batch.slot_mapping, device=device)
        written = None
        if min(batch.slot_mapping, default=0) < 0:
            written = (slots >= 0).nonzero()[:, 0]
            slots = slots[written]
        pages = Pages(padded(batch.block_tables, device), pool.k[0].shape[1])
        if invariant:
            tiles = TilePlan(batch, pages, self.tile_q, self.tile_kv)
            return TiledStep(pool, cos, sin, slots, written, tiles)
        return GroupedStep(pool, cos, sin, slots, written, _groups(batch), pages)


@dataclass(frozen=True, slots=True)
class Pages:
    """Block tables of the batch's sequences `[num_seqs, width]`, and the way from positions to slots."""

    tables: Tensor
    block_size: int

    def slots(self, seqs: Tensor | int, positions: Tensor) -> Tensor:
        """Slots of `positions [n, m]` of the sequences `seqs [n]` (or `[m]` of one sequence)."""
        table = self.tables[seqs]
        return table.gather(-1, positions // self.block_size) * self.block_size + positions % self.block_size


def padded(tables: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Block tables of different lengths as one tensor; the padding is never looked at."""
    width = max(map(len, tables))
    return torch.tensor([[*table, *[0] * (width - len(table))] for table in tables], device=device)


@dataclass(slots=True)
class Keys:
    """Which slots a group reads, `[num_seqs · num_keys]`, and what is added to its scores (None: nothing)."""

    slots: Tensor
    num_keys: int
    bias: Tensor | None


@dataclass(slots=True)
class Group:
    """Rows that one call serves: the single new tokens of `seqs`, or all of one sequence's."""

    seqs: list[int]
    rows: slice | Tensor
    lens: list[int]
    query_len: int
    keys: dict[int | None, Keys | None] = field(default_factory=dict)
    """By window, so that layers with equal windows share them; made when first asked for."""


def _groups(batch: Batch) -> list[Group]:
    decodes: dict[int, list[int]] = {}
    groups = []
    for i, length in enumerate(batch.seq_lens):
        start, stop = batch.query_start_loc[i], batch.query_start_loc[i + 1]
        if stop - start == 1:
            decodes.setdefault(length.bit_length(), []).append(i)
        else:
            groups.append(Group([i], slice(start, stop), [length], stop - start))
    for seqs in decodes.values():
        rows = [batch.query_start_loc[i] for i in seqs]
        run = rows[-1] - rows[0] == len(rows) - 1
        where = slice(rows[0], rows[-1] + 1) if run else torch.tensor(rows)
        groups.append(Group(seqs, where, [batch.seq_lens[i] for i in seqs], 1))
    return groups


class _Writing(Step):
    """The half all steps share: rotate and write."""

    def __init__(self, pool: KVPool, cos: Tensor, sin: Tensor, slots: Tensor, written: Tensor | None) -> None:
        self.pool, self.cos, self.sin, self.slots, self.written = pool, cos, sin, slots, written

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated k, and the layer's pools as `[num_slots, num_kv_heads, head_dim]`, written."""
        k = rotate(k, self.cos, self.sin)
        # a view, never a copy: `view` refuses memory that is not in this order
        k_pool, v_pool = (pool[layer].view(-1, *pool[layer].shape[2:]) for pool in (self.pool.k, self.pool.v))
        for pool, new in ((k_pool, k), (v_pool, v)):
            pool.index_copy_(0, self.slots, new if self.written is None else new[self.written])
        return k, k_pool, v_pool


class GroupedStep(_Writing):
    """Fast mode."""

    def __init__(
        self, pool: KVPool, cos: Tensor, sin: Tensor, slots: Tensor, written: Tensor | None, groups: list[Group],
        pages: Pages,
    ) -> None:  # fmt: skip
        super().__init__(pool, cos, sin, slots, written)
        self.groups, self.pages = groups, pages

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        q = rotate(q, self.cos, self.sin)
        k, k_pool, v_pool = self.write(layer, k, v)
        if len(self.groups) == 1:
            return self._attend(self.groups[0], q, k, v, k_pool, v_pool, window)
        out = q.new_empty(q.shape[0], q.shape[1] * v.shape[2])
        for group in self.groups:
            at = group.rows
            out[at] = self._attend(group, q[at], k[at], v[at], k_pool, v_pool, window)
        return out

    def _attend(
        self, group: Group, q: Tensor, k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, window: int | None
    ) -> Tensor:
        if window not in group.keys:
            group.keys[window] = self._keys(group, window)
        keys = group.keys[window]
        if keys is None:  # a whole prompt: its keys are at hand
            k, v = k[None], v[None]
        else:
            shape = (len(group.seqs), keys.num_keys)
            k = k_pool.index_select(0, keys.slots).view(*shape, *k.shape[1:])
            v = v_pool.index_select(0, keys.slots).view(*shape, *v.shape[1:])
        bias = keys.bias if keys is not None else None
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        if group.query_len == 1:
            q = q.view(q.shape[0], k.shape[1], -1, q.shape[2])
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).reshape(q.shape[0], -1)
        out = functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None], k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=True
        )
        return out[0].transpose(0, 1).reshape(q.shape[0], -1)

    def _keys(self, group: Group, window: int | None) -> Keys | None:
        """What the group reads; None for a whole prompt that sees all of itself."""
        device, dtype = self.cos.device, self.pool.k[0].dtype
        new, longest = group.query_len, group.lens[0]
        if new > 1:
            if new == longest and (window is None or window >= longest):
                return None
            first = 0 if window is None else max(0, longest - new + 1 - window)
            positions = torch.arange(first, longest, device=device)
            queries = torch.arange(longest - new, longest, device=device)[:, None]
            seen = positions <= queries
            if window is not None:
                seen &= positions > queries - window
            return Keys(self.pages.slots(group.seqs[0], positions), longest - first, _bias(seen, dtype))
        lens = torch.tensor(group.lens, device=device)[:, None]
        firsts = torch.zeros_like(lens) if window is None else (lens - window).clamp(min=0)
        count = int((lens - firsts).max())
        positions = firsts + torch.arange(count, device=device)
        seen = positions < lens
        bias = None if seen.all() else _bias(seen, dtype)[:, None, None]
        seqs = torch.tensor(group.seqs, device=device)
        return Keys(self.pages.slots(seqs, torch.minimum(positions, lens - 1)).view(-1), count, bias)


def _bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen, −inf where not."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


class TiledStep(_Writing):
    """Invariant mode."""

    def __init__(
        self, pool: KVPool, cos: Tensor, sin: Tensor, slots: Tensor, written: Tensor | None, tiles: TilePlan
    ) -> None:
        super().__init__(pool, cos, sin, slots, written)
        self.tiles = tiles

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        q = rotate(q, self.cos, self.sin)
        _, k_pool, v_pool = self.write(layer, k, v)
        return attend_tiles(q, k_pool, v_pool, self.tiles, window)
