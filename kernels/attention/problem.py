"""One attention call: the arguments every variant shares, their checks, and what kernels are told of them.

The queries of a request are its last tokens: query i of a request with `n` queries and `seq_len` keys sits at
position seq_len − n + i, and the keys before its first query were cached earlier.

    request 0             request 1         q, out: the requests' query tokens, end to end
    [s0, s1)              [s1, s2)          query_start_loc = [0, s1, s2]
    keys 0..seq_lens[0]   keys 0..seq_lens[1]   at k_cache[block_table[r, position // B], position % B]

Knows nothing of tiles, grids or which kernel runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from kernels.arguments import Facts, strided
from kernels.checks import FLOATS, QUANTISED, check_cache, check_tensor, check_unit_stride, check_vector, require
from kernels.launch import next_power_of_2, refuse_bf16_interpreted


class Scoring(TypedDict, total=False):
    """How queries score keys: options of every launcher, free where they are left out or None."""

    scale: float | None  # default head_dim_k**-0.5
    window: int | None  # keys visible per query, itself included
    softcap: float | None
    alibi_slopes: Tensor | None  # [num_heads]
    sinks: Tensor | None  # [num_heads] logits that only grow the denominator
    k_scale: Tensor | None  # of an fp8 or int8 cache: fp32, [1] or [num_blocks, block_size, num_kv_heads]
    v_scale: Tensor | None  # as k_scale, same strides


class Options(Scoring, total=False):
    """Options of launchers that walk each request's keys through its block table."""

    causal: bool  # default True
    kv_starts: Tensor | None  # [num_requests] the first key a request attends to


@dataclass(frozen=True, slots=True)
class Problem:
    """Shapes, units and meaning of the fields: `kernels.attention.varlen.attention`, and `Options`."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    max_query_len: int
    max_seq_len: int
    scale: float | None = None
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    kv_starts: Tensor | None = None

    @property
    def num_requests(self) -> int:
        """Requests in the batch."""
        return self.seq_lens.shape[0]

    @property
    def num_kv_heads(self) -> int:
        """Heads of the cache."""
        return self.k_cache.shape[2]

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q.shape[1] // self.num_kv_heads

    @property
    def scale_per_token(self) -> bool:
        """Whether each slot and head has scales of its own, rather than one for the whole pool."""
        return self.k_scale is not None and self.k_scale.dim() == 3

    def check(self, kernel: Any, validate: bool = False) -> None:
        """Raises ValueError naming the argument. `validate` also reads the metadata (and synchronises)."""
        q, device = self.q, self.q.device
        check_tensor("q", q, (None, None, None), FLOATS, device)
        check_unit_stride("q", q)
        refuse_bf16_interpreted(kernel, "q", q)
        check_cache(self.k_cache, self.v_cache, device)
        num_heads, num_requests = q.shape[1], self.num_requests
        require(self.k_cache.shape[3] == q.shape[2], "k_cache", f"must have q's head dim {q.shape[2]}")
        require(
            num_heads % self.num_kv_heads == 0,
            "q",
            f"has {num_heads} heads, not a multiple of the cache's {self.num_kv_heads}",
        )
        quantised = self.k_cache.dtype in QUANTISED
        require(
            quantised or self.k_cache.dtype == q.dtype, "k_cache", f"is {self.k_cache.dtype} and q is {q.dtype}: cast q"
        )
        check_tensor("block_table", self.block_table, (num_requests, None), (torch.int32, torch.int64), device)
        check_unit_stride("block_table", self.block_table)
        check_vector("query_start_loc", self.query_start_loc, num_requests + 1, device)
        check_vector("seq_lens", self.seq_lens, num_requests, device)
        require(self.max_query_len >= 0, "max_query_len", f"must not be negative, got {self.max_query_len}")
        require(self.max_seq_len >= 0, "max_seq_len", f"must not be negative, got {self.max_seq_len}")
        self._check_options(device, quantised)
        if validate:
            self._check_ranges()

    def _check_options(self, device: torch.device, quantised: bool) -> None:
        num_heads = self.q.shape[1]
        require(self.window is None or self.window >= 1, "window", f"must be at least 1, got {self.window}")
        require(self.window is None or self.causal, "window", "needs causal=True")
        require(self.softcap is None or self.softcap > 0, "softcap", f"must be positive, got {self.softcap}")
        for name, per_head in (("alibi_slopes", self.alibi_slopes), ("sinks", self.sinks)):
            if per_head is not None:
                check_tensor(name, per_head, (num_heads,), FLOATS, device)
                check_unit_stride(name, per_head)
        require((self.k_scale is None) == (self.v_scale is None), "v_scale", "and k_scale come together")
        require(quantised or self.k_scale is None, "k_scale", f"has no meaning for a {self.k_cache.dtype} cache")
        require(
            self.k_cache.dtype != torch.int8 or self.scale_per_token,
            "k_scale",
            "must be [num_blocks, block_size, num_kv_heads] for an int8 cache",
        )
        if self.k_scale is not None and self.v_scale is not None:
            shape = tuple(self.k_cache.shape[:3]) if self.scale_per_token else (1,)
            check_tensor("k_scale", self.k_scale, shape, (torch.float32,), device)
            check_tensor("v_scale", self.v_scale, shape, (torch.float32,), device)
            require(self.k_scale.stride() == self.v_scale.stride(), "v_scale", "must have the strides of k_scale")
        if self.kv_starts is not None:
            check_vector("kv_starts", self.kv_starts, self.num_requests, device)

    def _check_ranges(self) -> None:
        starts, lens = self.query_start_loc.cpu().long(), self.seq_lens.cpu().long()
        counts = starts.diff()
        num_blocks, block_size = self.k_cache.shape[:2]
        require(
            bool(starts[0] == 0) and bool(starts[-1] == self.q.shape[0]) and bool((counts >= 0).all()),
            "query_start_loc",
            f"must rise from 0 to q's {self.q.shape[0]} tokens, got {starts.tolist()}",
        )
        if not counts.numel():
            return
        require(bool((lens >= counts).all()), "seq_lens", "counts the query tokens too: none may be shorter")
        require(int(counts.max()) <= self.max_query_len, "max_query_len", f"is below a request's {int(counts.max())}")
        require(int(lens.max()) <= self.max_seq_len, "max_seq_len", f"is below a request's {int(lens.max())}")
        width = self.block_table.shape[1]
        require(int(lens.max()) <= width * block_size, "block_table", f"of {width} columns is too narrow")
        used = torch.arange(width)[None, :] * block_size < lens[:, None]
        if self.kv_starts is not None:
            first = self.kv_starts.cpu().long()
            require(bool((first >= 0).all()), "kv_starts", "must not be negative")
            used &= (torch.arange(width)[None, :] + 1) * block_size > first[:, None]
        ids = self.block_table.cpu()[used]
        require(
            not ids.numel() or (int(ids.min()) >= 0 and int(ids.max()) < num_blocks),
            "block_table",
            f"names a block outside 0..{num_blocks - 1}",
        )

    def facts(self) -> Facts:
        """What attention kernels ask for, by name. None switches a feature off at compile time."""
        q, k_cache, v_cache = self.q, self.k_cache, self.v_cache
        head_dim_k, head_dim_v = q.shape[2], v_cache.shape[3]
        return {
            **strided("q", q, "token", "head"),
            **strided("k", k_cache, "block", "slot", "head"),
            **strided("v", v_cache, "block", "slot", "head"),
            **strided("scale", self.k_scale if self.scale_per_token else None, "block", "slot", "head"),
            **strided("block_table", self.block_table, "request"),
            "k_scale_ptr": self.k_scale,
            "v_scale_ptr": self.v_scale,
            "alibi_ptr": self.alibi_slopes,
            "sinks_ptr": self.sinks,
            "query_start_loc_ptr": self.query_start_loc,
            "seq_lens_ptr": self.seq_lens,
            "kv_starts_ptr": self.kv_starts,
            "num_requests": self.num_requests,
            "num_blocks": k_cache.shape[0],
            "scale": float(head_dim_k**-0.5 if self.scale is None else self.scale),
            "softcap": None if self.softcap is None else float(self.softcap),
            "window": self.window,
            "CAUSAL": self.causal,
            "SCALE_PER_TOKEN": self.scale_per_token,
            "GROUP": self.group,
            "HEAD_DIM_K": head_dim_k,
            "HEAD_DIM_V": head_dim_v,
            "KV_BLOCK": k_cache.shape[1],
            "TILE_DK": max(16, next_power_of_2(head_dim_k)),
            "TILE_DV": max(16, next_power_of_2(head_dim_v)),
        }

    def new_outputs(self, return_lse: bool) -> tuple[Tensor, Tensor | None]:
        """Uninitialised out `[num_tokens, num_heads, head_dim_v]` and, if asked for, lse `[num_tokens, num_heads]`."""
        num_tokens, num_heads = self.q.shape[:2]
        out = self.q.new_empty(num_tokens, num_heads, self.v_cache.shape[3])
        return out, self.q.new_empty(num_tokens, num_heads, dtype=torch.float32) if return_lse else None
