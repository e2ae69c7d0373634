"""The same prompts through a real model: time to first token as a clock on the wall tells it.

One request at a time, in order of arrival, so that nobody queues and the time is that of the prefill. The model's own
answers are a few tokens that nobody reads; the prompts are those of the script, so answers of earlier turns are
computed again where a served chat would find them, and hit rates come out a little lower than simulated.

Knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from omegaconf import DictConfig

from experiments.generate import warm_up
from experiments.latency import Row
from experiments.layout.workload import LaidOutChat
from experiments.serving import build_engine, load_model
from model.sampling import SamplingParams
from scheduler.result import RequestResult


def real_ttft(cfg: DictConfig, workload: LaidOutChat) -> tuple[Row, list[Row]]:
    """Serve the first `cfg.real.requests` prompts on `cfg.real.model`; returns (metrics, one row per request).

    Metrics are named `real_*`; times in milliseconds of wall clock. Raises UserError for what cannot be built.
    """
    cfg = cfg.copy()
    cfg.model, cfg.num_blocks = cfg.real.model, -(-cfg.real.pool_tokens // cfg.block_size)
    cfg.scheduler.max_num_batched_tokens = cfg.real.max_num_batched_tokens
    cfg.scheduler.max_num_seqs = 1
    model = load_model(cfg)
    engine = build_engine(cfg, model, prefix_caching=True)
    warm_up(engine)
    params = SamplingParams(max_tokens=cfg.real.output_tokens, temperature=0, ignore_eos=True)
    results: list[RequestResult] = []
    for request in islice(workload, cfg.real.requests):
        results += engine.generate([request.tokens.tolist()], params)
    engine.scheduler.check_integrity()
    return real_metrics(results), [_row(index, result) for index, result in enumerate(results)]


def real_metrics(results: Sequence[RequestResult]) -> Row:
    """Rates and percentiles over the requests that were answered."""
    answered = [result for result in results if result.error is None]
    ttft = [1000 * result.ttft for result in answered if result.ttft is not None]
    prompt_tokens = sum(result.prompt_tokens for result in answered)
    return {
        "real_requests": len(answered),
        "real_failed": len(results) - len(answered),
        "real_token_hit_rate": sum(result.hit_tokens for result in answered) / prompt_tokens if prompt_tokens else 0.0,
        "real_ttft_ms_p50": float(np.percentile(ttft, 50)) if ttft else None,
        "real_ttft_ms_p95": float(np.percentile(ttft, 95)) if ttft else None,
    }


def _row(index: int, result: RequestResult) -> Row:
    return {
        "request": index,
        "prompt_tokens": result.prompt_tokens,
        "hit_tokens": result.hit_tokens,
        "ttft_ms": None if result.ttft is None else 1000 * result.ttft,
        "error": result.error,
    }
