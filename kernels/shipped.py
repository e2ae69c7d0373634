"""The launches worth studying, built from meta tensors: nothing is allocated and nothing runs.

`Shape` says what a call looks like; `attention_launches`, `cascade_launch`, `write_launch` and `copy_launch` turn one
into the very `Launch` objects the launchers run. `shipped` lists the variants and shapes that ship with defaults.

Knows nothing of compiling or measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels.attention import cascade, merge, split_kv, varlen
from kernels.attention.parts import new_parts
from kernels.attention.prefix_work import PrefixWork
from kernels.attention.problem import Problem
from kernels.attention.rows import query_grid
from kernels.checks import QUANTISED
from kernels.copy import blocks
from kernels.launch import Launch
from kernels.tuning import AttentionConfig, Tuning, section_for
from kernels.write import rope_scatter, scatter, scatter_quantised
from kernels.write.tokens import check_write

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One call. `dtype` and `kv_dtype` are keys of `DTYPES`; `kv_dtype` None is `dtype`. Lengths are per request.

    `scales`: `none`, `tensor` or `token`, for a quantised cache. `layout`: `block` is
    `[num_blocks, block_size, num_kv_heads, head_dim]` in memory, `head` has the heads before the slots.
    """

    batch: int = 64
    query_len: int = 1
    seq_len: int = 4096
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    head_dim_v: int | None = None
    block_size: int = 16
    num_blocks: int = 32768
    dtype: str = "bf16"
    kv_dtype: str | None = None
    scales: str = "none"
    layout: str = "block"

    @property
    def kv(self) -> torch.dtype:
        """The cache's dtype."""
        return DTYPES[self.kv_dtype or self.dtype]

    @property
    def dim_v(self) -> int:
        """Head dim of V."""
        return self.head_dim if self.head_dim_v is None else self.head_dim_v


def meta(*size: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """A tensor with shape, strides and dtype, and no memory."""
    return torch.empty(*size, dtype=dtype, device="meta")


def pools(shape: Shape) -> tuple[Tensor, Tensor]:
    """K and V pools of a shape, as meta tensors."""

    def pool(dim: int) -> Tensor:
        if shape.layout == "head":
            heads_first = meta(shape.num_blocks, shape.num_kv_heads, shape.block_size, dim, dtype=shape.kv)
            return heads_first.transpose(1, 2)
        return meta(shape.num_blocks, shape.block_size, shape.num_kv_heads, dim, dtype=shape.kv)

    return pool(shape.head_dim), pool(shape.dim_v)


def pool_scales(shape: Shape) -> tuple[Tensor | None, Tensor | None]:
    """Scales of a shape's pools, as meta tensors."""
    if shape.scales == "none":
        return None, None
    size = (1,) if shape.scales == "tensor" else (shape.num_blocks, shape.block_size, shape.num_kv_heads)
    return meta(*size, dtype=torch.float32), meta(*size, dtype=torch.float32)


def problem(shape: Shape, **options: Any) -> Problem:
    """The attention call of a shape. `options` are `Problem`'s; True for a tensor of one makes that tensor."""
    dtype, tokens = DTYPES[shape.dtype], shape.batch * shape.query_len
    width = -(-shape.seq_len // shape.block_size)
    tensors = {
        "alibi_slopes": meta(shape.num_heads, dtype=torch.float32),
        "sinks": meta(shape.num_heads, dtype=torch.float32),
        "kv_starts": meta(shape.batch),
    }
    options = {name: tensors[name] if value is True and name in tensors else value for name, value in options.items()}
    k_scale, v_scale = pool_scales(shape)
    call = Problem(
        meta(tokens, shape.num_heads, shape.head_dim, dtype=dtype), *pools(shape), meta(shape.batch, width),
        meta(shape.batch + 1), meta(shape.batch), shape.query_len, shape.seq_len,
        k_scale=k_scale, v_scale=v_scale, **options,
    )  # fmt: skip
    call.check(varlen.varlen_kernel)
    return call


def attention_launches(
    variant: str,
    shape: Shape,
    config: AttentionConfig,
    *,
    num_splits: int = 8,
    invariant: bool = False,
    return_lse: bool = False,
    **options: Any,
) -> list[Launch]:
    """The launches of `varlen` (one) or `split_kv` (split, then merge). Raises ValueError for another variant."""
    call = problem(shape, **options)
    out, lse = call.new_outputs(return_lse)
    if variant == "varlen":
        return [varlen.plan(call, out, lse, config, invariant)]
    if variant != "split_kv":
        raise ValueError(f"unknown variant {variant!r}: there are varlen and split_kv (and cascade_launch)")
    parts = new_parts(call, varlen.num_segments(shape.seq_len) if invariant else num_splits)
    split = split_kv.plan(call, parts, config, num_splits, invariant)
    return [split, merge.plan(parts, call.sinks, out, lse, split.fp_fusion)]


def cascade_launch(shape: Shape, config: AttentionConfig, *, num_splits: int = 8, **options: Any) -> Launch:
    """The prefix pass of `cascade`, for one prefix of `shape.seq_len` tokens shared by the whole batch."""
    call = problem(shape, **options)
    tile_q = query_grid(call, config)[0]
    tokens = shape.batch * shape.query_len
    tiles = -(-tokens // (tile_q // call.group))
    width = call.block_table.shape[1]
    work = PrefixWork(
        meta(width), meta(tokens), meta(tokens), meta(tiles * num_splits, 6), meta(shape.batch),
        num_parts=num_splits, max_suffix_len=1, tile_q=tile_q, nodes=(),
    )  # fmt: skip
    return cascade.plan_prefix(call, work, new_parts(call, num_splits), config)


def write_launch(variant: str, shape: Shape, *, rotary_dim: int | None = None, interleaved: bool = False) -> Launch:
    """The launch of `scatter`, `rope_scatter` or `scatter_quantised`. Raises ValueError for another variant."""
    dtype, tokens = DTYPES[shape.dtype], shape.batch * shape.query_len
    k = meta(tokens, shape.num_kv_heads, shape.head_dim, dtype=dtype)
    v = meta(tokens, shape.num_kv_heads, shape.dim_v, dtype=dtype)
    k_cache, v_cache = pools(shape)
    slots = meta(tokens, dtype=torch.int64)
    quantised = shape.kv in QUANTISED
    check_write(k, v, k_cache, v_cache, slots, quantised=quantised, validate=False)
    if variant == "scatter":
        return scatter.plan(k, v, k_cache, v_cache, slots)
    if variant == "rope_scatter":
        q = meta(tokens, shape.num_heads, shape.head_dim, dtype=dtype)
        angles = meta(shape.seq_len, (rotary_dim or shape.head_dim) // 2, dtype=torch.float32)
        positions = meta(tokens, dtype=torch.int64)
        out = torch.empty_like(q)
        return rope_scatter.plan(q, k, v, angles, angles, positions, k_cache, v_cache, slots, out, interleaved)
    if variant != "scatter_quantised":
        raise ValueError(f"unknown variant {variant!r}: there are scatter, rope_scatter and scatter_quantised")
    k_scale, v_scale = pool_scales(shape)
    if k_scale is None or v_scale is None:
        raise ValueError("scales must be tensor or token for scatter_quantised")
    return scatter_quantised.plan(k, v, k_cache, v_cache, k_scale, v_scale, slots)


def copy_launch(variant: str, shape: Shape, *, num_layers: int = 32) -> Launch:
    """The launch of `copy`, `gather` or `scatter` over all layers' pools. Raises ValueError for another variant."""
    k_cache, v_cache = pools(shape)
    table = blocks.pool_table([k_cache, v_cache] * num_layers)
    ids = meta(shape.batch)
    buffer = meta(shape.batch, table.bytes_per_block, dtype=torch.uint8)
    if variant == "copy":
        return blocks.plan(table, ids, meta(shape.batch), None)
    if variant == "gather":
        return blocks.plan(table, ids, None, buffer)
    if variant == "scatter":
        return blocks.plan(table, None, ids, buffer)
    raise ValueError(f"unknown variant {variant!r}: there are copy, gather and scatter")


def shipped(tuning: Tuning, fp8: str = "fp8e4m3") -> dict[str, Callable[[], Launch]]:
    """Name → builder of every variant shipped with defaults, tiled by `tuning`. `fp8` is the cache's fp8 dtype."""

    def config(shape: Shape, section: str | None = None, invariant: bool = False) -> AttentionConfig:
        group = shape.num_heads // shape.num_kv_heads
        section = section or section_for(shape.query_len, group, invariant)
        return tuning.attention(section, max(shape.head_dim, shape.dim_v), DTYPES[shape.dtype].itemsize)

    def attention(variant: str, shape: Shape, invariant: bool = False, **options: Any) -> Callable[[], Launch]:
        tiles = config(shape, invariant=invariant)
        return lambda: attention_launches(variant, shape, tiles, invariant=invariant, **options)[0]

    decode = Shape()
    prefill = Shape(batch=1, query_len=8192, seq_len=8192)
    everything: dict[str, Any] = {"window": 1024, "softcap": 30.0, "alibi_slopes": True, "sinks": True}
    quantised = replace(decode, kv_dtype=fp8, scales="tensor")
    int8 = replace(decode, kv_dtype="int8", scales="token")
    return {
        "decode": attention("varlen", decode),
        "decode fp32": attention("varlen", replace(decode, dtype="fp32")),
        "split": attention("split_kv", decode),
        "split block 1": attention("split_kv", replace(decode, block_size=1)),
        "split block 24": attention("split_kv", replace(decode, block_size=24)),
        "split block 128": attention("split_kv", replace(decode, block_size=128)),
        "split dim 64": attention("split_kv", replace(decode, head_dim=64)),
        "split dim 80": attention("split_kv", replace(decode, head_dim=80)),
        "split dim 256": attention("split_kv", replace(decode, head_dim=256)),
        f"split {fp8}": attention("split_kv", quantised),
        "split int8": attention("split_kv", int8),
        "prefill": attention("varlen", prefill),
        "prefill dim 64": attention("varlen", replace(prefill, head_dim=64)),
        "prefill dim 256": attention("varlen", replace(prefill, head_dim=256)),
        "prefill options": attention("varlen", prefill, **everything, return_lse=True),
        "invariant": attention("varlen", prefill, invariant=True),
        "invariant split": attention("split_kv", decode, invariant=True),
        "cascade": lambda: cascade_launch(decode, config(decode, "cascade")),
        "merge": lambda: attention_launches("split_kv", decode, config(decode))[1],
        "scatter": lambda: write_launch("scatter", prefill),
        "rope_scatter": lambda: write_launch("rope_scatter", prefill),
        f"scatter {fp8}": lambda: write_launch(
            "scatter_quantised", replace(prefill, kv_dtype=fp8, scales="token")
        ),
        "scatter int8": lambda: write_launch("scatter_quantised", replace(prefill, kv_dtype="int8", scales="token")),
        "copy": lambda: copy_launch("copy", decode),
        "gather": lambda: copy_launch("gather", decode),
    }  # fmt: skip
