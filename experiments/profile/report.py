"""A profile as plain rows: what the JSON line, the tables, the terminal and the page all show.

Knows nothing of how they look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.profile.fixes import Fix, Measured, row_of
from experiments.profile.groups import agreed, groups, main_path
from experiments.profile.profile import Walk
from experiments.profile.shown import excerpt, show_token
from experiments.profile.text import Pieces

Row = dict[str, Any]
ALTERNATIVES = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything there is to show."""

    title: str
    summary: Row
    positions: list[Row]
    groups: list[Row]
    block_sizes: list[Row]
    fixes: list[Row]
    notes: list[str]


def build(
    title: str, walked: Walk, pieces: Pieces | None, fixes: Sequence[Fix], before: Measured | None, options: Row
) -> Profile:
    """`before`: what the sample as it is hits; None where there was no sample to replay."""
    losses, tree = walked.losses, walked.tree
    positions = _positions(walked, pieces, options["show_tokens"])
    last = fixes[-1].together if fixes else before
    summary = {
        "prompts": losses.prompts,
        "prompt_tokens": losses.prompt_tokens,
        "shared_tokens": losses.shared_tokens,
        "shared_rate": losses.shared_tokens / losses.prompt_tokens,
        "agreed_tokens": agreed(tree),
        "prompts_without_a_shared_token": walked.first_share_nothing,
        "empty_prompts": options["empty_prompts"],
        "granularity": walked.unit,
        "forgotten_tokens": tree.forgotten_tokens * walked.unit,
        "sample_prompts": len(walked.sample),
        "block_size": options["block_size"],
        "num_blocks": options["num_blocks"],
        "token_hit_rate": before.rate if before else None,
        "computed_tokens": before.computed if before else None,
        "token_hit_rate_fixed": last.rate if last else None,
        "computed_tokens_fixed": last.computed if last else None,
        "workload_fingerprint": options["workload_fingerprint"],
    }
    return Profile(
        title,
        summary,
        positions,
        _groups(walked, pieces),
        losses.rows(),
        [row_of(fix, before) for fix in fixes] if before else [],
        _notes(walked, summary, options),
    )


def _positions(walked: Walk, pieces: Pieces | None, length: int) -> list[Row]:
    total = max(walked.losses.prompts, 1)
    return [
        {
            "position": step.position,
            "token": step.token,
            "text": show_token(step.token, pieces),
            "special": pieces is not None and step.token in pieces.tokenizer.special,
            "prompts": step.prompts,
            "share": step.prompts / total,
            "ended": step.ended,
            "others": [
                {"text": show_token(t, pieces), "token": t, "prompts": n} for t, n in step.others[:ALTERNATIVES]
            ],
            "num_others": len(step.others),
        }
        for step in main_path(walked.tree, length)
    ]


def _groups(walked: Walk, pieces: Pieces | None) -> list[Row]:
    return [
        {
            "group": group.number,
            "parent": group.parent,
            "level": group.level,
            "prompts": group.prompts,
            "share": group.prompts / max(walked.losses.prompts, 1),
            "shared_tokens": group.shared_tokens * walked.unit,
            "forks": group.forks,
            "begins": excerpt(group.ids[:24], pieces),
            "ends": excerpt(group.ids, pieces),
        }
        for group in groups(walked.tree)
    ]


def _notes(walked: Walk, summary: Row, options: Row) -> list[str]:
    notes = []
    if summary["prompts"] == 1:
        notes.append("there is only one prompt, and nothing to compare it with: give a file with several")
    if len(walked.tree.roots) > 1:
        notes.append(
            f"prompts come under {len(walked.tree.roots):,} cache keys (tenant, LoRA), which share nothing; "
            "the first tokens are those of the largest"
        )
    if walked.unit > 1:
        notes.append(
            f"the workload names blocks of {walked.unit} tokens by hashes: what is inside them, and so every field, is "
            "unknown; positions are of blocks"
        )
    if summary["empty_prompts"]:
        notes.append(f"{summary['empty_prompts']:,} prompts without a token were left out")
    if walked.tree.forgotten_tokens:
        notes.append(
            f"the tree outgrew {options['memory_mb']} MB and forgot {summary['forgotten_tokens']:,} tokens not asked "
            "for: what they would have shared later is missing from the rates (memory_mb=... helps)"
        )
    if walked.unit == 1 and not walked.sample:
        notes.append("no field was sought: not even the first prompt fits into sample_tokens=... (raise it)")
    elif walked.unit == 1 and len(walked.sample) < summary["prompts"]:
        notes.append(
            f"fields were sought and mended in the first {len(walked.sample):,} of {summary['prompts']:,} prompts "
            "(sample_tokens=... takes more)"
        )
    return notes
