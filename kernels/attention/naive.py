"""Attention over a paged KV cache in plain torch: fp32, one request, one query token, one head at a time.

With s_j = scale · q·k_j, then softcapped as c·tanh(s_j/c), then shifted by slope · (j − i) for a query at position i:

    out = Σ_j exp(s_j) v_j / (Σ_j exp(s_j) + exp(sink))        lse = log(Σ_j exp(s_j) + exp(sink))

over the keys j the query sees. Sources: Vaswani et al. 2017 (attention), Press et al. 2022 (ALiBi), Gemma 2 (softcap),
Beltagy et al. 2020 (window), Xiao et al. 2024 and gpt-oss (a learned sink logit per head).

The only oracle of the attention kernels. Knows nothing of tiles, splits or speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.attention.forest import PrefixNode


def gather(
    cache: Tensor, scales: Tensor | None, block_table: Sequence[int], start: int, stop: int
) -> tuple[Tensor, list[int]]:
    """Tokens at positions start..stop−1 of one request, in fp32, dequantised: `[n, num_kv_heads, head_dim]`.

    Also their positions: a token whose block id lies outside the pool is left out.
    """
    num_blocks, block_size = cache.shape[:2]
    rows, positions = [], []
    for position in range(start, stop):
        block, slot = block_table[position // block_size], position % block_size
        if not 0 <= block < num_blocks:
            continue
        row = cache[block, slot].float()
        if scales is not None:
            row = row * (scales if scales.numel() == 1 else scales[block, slot][:, None]).float()
        rows.append(row)
        positions.append(position)
    if not rows:
        return torch.zeros(0, *cache.shape[2:]), positions
    return torch.stack(rows), positions


def attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    max_query_len: int,
    max_seq_len: int,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    kv_starts: Tensor | None = None,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Arguments as `kernels.attention.varlen.attention`; `max_query_len` and `max_seq_len` are not needed here.

    Returns out `[num_tokens, num_heads, head_dim_v]` in fp32 and, if asked, lse `[num_tokens, num_heads]` in fp32.
    """
    num_tokens, num_heads, head_dim = q.shape
    group = num_heads // k_cache.shape[2]
    scale = head_dim**-0.5 if scale is None else scale
    out = torch.zeros(num_tokens, num_heads, v_cache.shape[3])
    lse = torch.full((num_tokens, num_heads), float("-inf"))
    starts = query_start_loc.tolist()
    for r, seq_len in enumerate(seq_lens.tolist()):
        first_key = 0 if kv_starts is None else int(kv_starts[r])
        table = block_table[r].tolist()
        k, positions = gather(k_cache, k_scale, table, first_key, seq_len)
        v, _ = gather(v_cache, v_scale, table, first_key, seq_len)
        j = torch.tensor(positions, dtype=torch.float32)
        for token in range(starts[r], starts[r + 1]):
            i = seq_len - starts[r + 1] + token  # the queries are the last tokens of the sequence
            seen = torch.ones_like(j, dtype=torch.bool)
            if causal:
                seen &= j <= i
            if window is not None:
                seen &= j > i - window
            for h in range(num_heads):
                s = scale * (k[:, h // group] @ q[token, h].float())
                if softcap is not None:
                    s = softcap * torch.tanh(s / softcap)
                if alibi_slopes is not None:
                    s = s + alibi_slopes[h].float() * (j - i)
                s = s.masked_fill(~seen, float("-inf"))
                logits = s if sinks is None else torch.cat([s, sinks[h : h + 1].float()])
                total = torch.logsumexp(logits, 0) if logits.numel() else torch.tensor(float("-inf"))
                lse[token, h] = total
                if total > float("-inf"):
                    out[token, h] = torch.exp(s - total) @ v[:, h // group]
    return out, (lse if return_lse else None)


def merge(
    outs: Tensor, lses: Tensor, *, sinks: Tensor | None = None, return_lse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Partial results over disjoint keys as one: out = Σ_n exp(lse_n − lse) out_n, lse = log Σ_n exp(lse_n).

    `outs [num_parts, num_tokens, num_heads, head_dim]`, `lses [num_parts, num_tokens, num_heads]` in natural log, −inf
    where a part saw no key (its `outs` are then not looked at). Returns fp32 out and, if asked, lse.
    """
    logits = lses.float()
    if sinks is not None:
        logits = torch.cat([logits, sinks.float().expand(1, *lses.shape[1:])])
    lse = torch.logsumexp(logits, 0)
    weights = torch.exp(lses.float() - lse).nan_to_num(0.0)[..., None]
    out = (weights * outs.float().masked_fill(weights == 0, 0.0)).sum(0)
    return out, (lse if return_lse else None)


def cascade(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    max_query_len: int,
    max_seq_len: int,
    plan: Sequence[PrefixNode],
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What cascade attention must equal: one causal pass, with the plan's blocks put where the plan says they lie.

    Arguments as `kernels.attention.cascade.cascade`. A request's own block table need not name the shared blocks.
    """
    table = block_table.clone()
    block_size = k_cache.shape[1]
    for node in plan:
        first = node.start // block_size
        for r in node.requests:
            table[r, first : first + len(node.blocks)] = torch.tensor(node.blocks, dtype=table.dtype)
    return attention(
        q, k_cache, v_cache, table, query_start_loc, seq_lens, max_query_len, max_seq_len,
        scale=scale, window=window, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks,
        k_scale=k_scale, v_scale=v_scale, return_lse=return_lse,
    )  # fmt: skip
