"""One walk over all prompts, whatever their number: where they agree, who shares how far, what block sizes lose.

The walk keeps a tree of bounded size, sums, and a sample of prompts for `fixes`; no texts.

Knows nothing of files, terminals or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cache.tokens import TokenIds, TraceTokens, pack
from experiments.profile.losses import Losses
from experiments.profile.tree import PrefixTree
from experiments.workload.base import Request, Workload

Row = dict[str, Any]
SAMPLE_STEP = 1.05


@dataclass(slots=True)
class Walk:
    """What a walk leaves."""

    tree: PrefixTree
    losses: Losses
    unit: int
    """Tokens per id of the tree: 1, or the unit of a trace that names blocks by hashes."""
    sample: list[Request] = field(default_factory=list)
    first_share_nothing: int = 0
    """Prompts that share not even their first token with an earlier one, the very first left out."""


def walk(
    workload: Workload,
    block_sizes: Sequence[int],
    budget: int,
    sample_tokens: int,
    log: Callable[[Row], None] = lambda row: None,
) -> Walk:
    """Walk a workload once. `budget`: bytes of the tree; `sample_tokens`: of the prompts to keep, from the first on."""
    losses = Losses(block_sizes)
    done = Walk(PrefixTree(budget), losses, 1)
    room, due = sample_tokens, 1.0
    for request in workload:
        ids, unit = _ids(request.tokens)
        done.unit = max(done.unit, unit)
        length = len(request.tokens)
        common = min(done.tree.add(ids, request.extra_keys.encode()).tokens * unit, length)
        losses.add(length, common)
        done.first_share_nothing += common == 0 and losses.prompts > 1
        room -= length  # the sample is what comes first, without gaps
        if room >= 0 and unit == 1:
            done.sample.append(request)
        if losses.prompts >= due:
            due = losses.prompts * SAMPLE_STEP + 1
            log(
                {
                    "request": losses.prompts,
                    "prompt_tokens": losses.prompt_tokens,
                    "shared_rate": losses.shared_tokens / losses.prompt_tokens,
                    "tree_bytes": done.tree.used,
                }
            )
    return done


def _ids(tokens: TokenIds) -> tuple[bytes, int]:
    """Ids to compare, packed, and how many tokens each stands for."""
    if isinstance(tokens, TraceTokens):
        return pack(tokens.ids), tokens.unit
    return tokens.packed(), 1
