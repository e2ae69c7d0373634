"""Where your prompts agree, where they part and why, and what mending each cause would give.

    python -m experiments.token_profile path=prompts.jsonl
    python -m experiments.token_profile workload=airline_text

Shows the first tokens one by one with how many prompts agree so far, groups of prompts that share, tokens lost to
partial blocks at each block size, and fields that change from prompt to prompt, each with its position and the token
hit rate that a replay of the mended prompts reaches. The record holds `token_profile.html`, one page for sharing.

Knows nothing of outputs or time: it is prompts that share.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, open_dict

from cache.manager import CacheManager
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.pool import resolve_num_blocks
from experiments.profile.fixes import Mender
from experiments.profile.page import page
from experiments.profile.profile import walk
from experiments.profile.report import Profile, Row, build
from experiments.profile.terminal import show
from experiments.profile.text import Pieces
from experiments.replay import checked_block_size
from experiments.tokenizer.opened import open_tokenizer
from experiments.workload.base import Workload
from experiments.workload.checks import check_at_least
from experiments.workload.mine import Mine


def profile_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/token_profile.yaml`."""
    workload = build_workload(cfg)
    block_size = checked_block_size(cfg.block_size)
    _check(cfg)
    walked = walk(workload, list(cfg.block_sizes), cfg.memory_mb << 20, cfg.sample_tokens, log)
    if not walked.losses.prompts:
        raise UserError("there is no prompt to profile: every line is empty, or limit=0 was given.")
    pieces, fixes, before = None, [], None
    if walked.unit == 1:
        tokenizer = workload.tokenizer if isinstance(workload, Mine) else open_tokenizer(cfg.tokenizer)
        pieces = Pieces(tokenizer)
    if pieces is not None and walked.sample:
        num_blocks = inf if str(cfg.num_blocks) == "inf" else resolve_num_blocks(cfg.num_blocks, block_size, workload)
        cache = cfg.copy()
        cache.num_blocks = num_blocks
        detectors = [instantiate(detector) for detector in cfg.detectors]
        mender = Mender(
            walked.sample, pieces, detectors, lambda: CacheManager(instantiate(cache.allocator)), cfg.max_fixes
        )
        before, fixes = mender.before, mender.fixes()
    told = {
        "show_tokens": cfg.show_tokens,
        "block_size": block_size,
        "num_blocks": str(cfg.num_blocks),
        "memory_mb": cfg.memory_mb,
        "empty_prompts": workload.num_empty if isinstance(workload, Mine) else 0,
        "workload_fingerprint": workload.fingerprint(),
    }
    profile = build(_title(cfg), walked, pieces, fixes, before, told)
    return Result(
        {**profile.summary, "fixes": profile.fixes, "groups": profile.groups, "block_sizes": profile.block_sizes},
        {"results": [profile.summary], **_tables(profile)},
        files={"token_profile.html": page(profile).encode()},
        show=lambda: show(profile),
    )


def build_workload(cfg: DictConfig) -> Workload:
    """The workload that the config names, over `path` where one is given. Raises UserError where none can be."""
    node, overrides = cfg.workload.copy(), HydraConfig.get().overrides.task
    with open_dict(node):
        if cfg.path is not None:
            if "path" not in node:
                raise UserError(
                    "path=... names a file, but this workload generates its prompts: leave out one of them."
                )
            node.path = cfg.path
        elif node._target_.endswith(".Mine") and not any(told.startswith("workload") for told in overrides):
            raise UserError("what to profile must be given: path=FILE.jsonl (or a folder), or workload=...")
        if node._target_.endswith(".Mine"):
            node.skip_empty = True
            node.tokenizer = node.tokenizer or cfg.tokenizer
    workload: Workload = instantiate(node)
    return workload


def _check(cfg: DictConfig) -> None:
    try:
        check_at_least(0, show_tokens=cfg.show_tokens, sample_tokens=cfg.sample_tokens, max_fixes=cfg.max_fixes)
        check_at_least(1, memory_mb=cfg.memory_mb)
        for size in cfg.block_sizes:
            check_at_least(1, block_sizes=size)
    except ValueError as error:
        raise UserError(str(error).removeprefix("workload.")) from None


def _title(cfg: DictConfig) -> str:
    return str(cfg.path or cfg.workload.get("path") or HydraConfig.get().runtime.choices.get("workload"))


def _tables(profile: Profile) -> dict[str, list[Row]]:
    tables = {
        "positions": [{**row, "others": str(row["others"])} for row in profile.positions],
        "groups": profile.groups,
        "block_sizes": profile.block_sizes,
        "fixes": profile.fixes,
    }
    return {name: rows for name, rows in tables.items() if rows}


@hydra.main(version_base="1.3", config_path="../conf", config_name="token_profile")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, profile_job)


if __name__ == "__main__":
    cli(main)
