"""Real text from a real model, through scheduler, paged cache and kernels, with prefix caching on, off, or both.

    python -m experiments.generate model=smollm2 workload=shared_prompt
    python -m experiments.generate prompts=path/to/prompts.txt prefix_caching=compare
    python -m experiments.generate chat=path/to/chats.jsonl sampling.temperature=0.7

All prompts arrive at once. Equal `outputs_sha256` means equal tokens in every answer; in invariant mode they are equal
hit or miss.

Knows nothing of models or schedulers beyond what the yaml names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hydra
import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from cache.observer import NOBODY, Observer
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.latency import Row, request_row
from experiments.live.open import watching
from experiments.live.served import watched
from experiments.live.watcher import Watcher
from experiments.prompts import read_chats, read_prompts
from experiments.replay import checked_block_size
from experiments.sampler import Sampler
from experiments.serving import build_engine, check_books, check_vocabulary, load_model
from experiments.show import show_table
from experiments.simulate import partial_reuse, workload_of
from experiments.workload.base import Workload
from model.pretrained import Pretrained
from model.sampling import SamplingParams
from scheduler.engine import Engine, Prompt
from scheduler.request import Request
from scheduler.result import RequestResult

SHOWN_CHARACTERS = 300
MODES = {True: "on", False: "off"}


def generate(engine: Engine, prompts: Sequence[Prompt], params: SamplingParams) -> tuple[Row, list[RequestResult]]:
    """Answer all prompts from a cold cache; returns (metrics, results in order of the prompts).

    Times in milliseconds; a request's first token counts from the moment all prompts were handed over. Raises
    UserError where none can be answered.
    """
    clock = engine.clock
    start = clock.now()
    results = engine.generate(prompts, params)
    seconds = clock.now() - start
    answered = [result for result in results if result.error is None]
    if not answered:
        reason = results[0].error if results else "there are none"
        raise UserError(f"none of {len(results)} prompts could be answered; the first: {reason}")
    ttft = [1000 * result.ttft for result in answered if result.ttft is not None]
    tpot = [1000 * result.tpot for result in answered if result.tpot is not None]
    output_tokens = sum(result.output_tokens for result in answered)
    return {
        "requests": len(results),
        "failed": len(results) - len(answered),
        "ttft_ms_p50": float(np.percentile(ttft, 50)),
        "ttft_ms_p95": float(np.percentile(ttft, 95)),
        "tpot_ms_p50": float(np.percentile(tpot, 50)) if tpot else None,
        "prompt_tokens": sum(result.prompt_tokens for result in answered),
        "hit_tokens": sum(result.hit_tokens for result in answered),
        "recomputed_tokens": sum(result.recomputed_tokens for result in answered),
        "preemptions": sum(result.preemptions for result in answered),
        "output_tokens": output_tokens,
        "output_tokens_per_second": output_tokens / seconds,
        "seconds": seconds,
        "outputs_sha256": outputs_sha256(results),
    }, results


def outputs_sha256(results: Sequence[RequestResult]) -> str:
    """Digest of all tokens of all answers, and of how each ended."""
    told = [[(c.token_ids, c.finish_reason) for c in result.completions] for result in results]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def warm_up(engine: Engine) -> None:
    """First calls of a library allocate and choose; they should not be timed. The cache is cold again afterwards."""
    engine.generate([[0, 1, 2]], SamplingParams(max_tokens=2, temperature=0, ignore_eos=True))
    engine.scheduler.manager.reset()


def generate_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/generate.yaml`: load what the yaml names, answer, and say under which conditions."""
    from experiments.ledger_result import with_reasons
    from experiments.plots.serving import draw_serving

    modes = caching_modes(cfg.prefix_caching)
    checked_block_size(cfg.block_size)
    params = sampling_params(cfg)
    model = load_model(cfg)
    prompts, source = prompts_of(cfg, model)
    conditions: Row = {
        **({"workload": "file"} if cfg.prompts or cfg.chat else {}),
        **({} if any(modes) else {"allocator": "naive"}),
        "prompts_fingerprint": source,
        "weights_version": model.decoder.weights_version,
        "invariant": cfg.invariant,
        "block_size": cfg.block_size,
        "num_blocks": cfg.num_blocks,
        "prefix_caching": cfg.prefix_caching,
        "seed": cfg.seed,
    }
    metrics: Row = {}
    tables: dict[str, list[Row]] = {}
    rows: list[Row] = []
    observer = NOBODY
    for caching in modes:
        last = caching == modes[-1]
        title = f"generate with {model.name}, prefix caching {MODES[caching]}"
        observer = instantiate(cfg.ledger)
        told = log if last else _ignore
        with watching(cfg, title, lambda: len(prompts), _decoder(model)) as watcher:
            found, results, rows = _serve(cfg, model, prompts, params, caching, observer, told, watcher)
        tables[f"outputs_{MODES[caching]}" if len(modes) > 1 else "outputs"] = _answers(results)
        if last:
            metrics = _compared(metrics, found) if metrics else found
            _show(prompts, results, model)
        else:
            metrics = found
    result = Result(conditions | metrics, {"requests": rows, **tables}, partial(draw_serving, rows))
    return with_reasons(result, observer)


def caching_modes(asked: object) -> list[bool]:
    """Whether to share prefixes, run by run. Raises UserError for anything but true, false and compare."""
    if isinstance(asked, bool):
        return [asked]
    if asked == "compare":
        return [False, True]
    raise UserError(f"prefix_caching={asked} is none of true, false, compare.")


def sampling_params(cfg: DictConfig) -> SamplingParams:
    """What the yaml asks for; lists become tuples."""
    made: SamplingParams = instantiate(cfg.sampling, stop=tuple(cfg.sampling.stop), _convert_="all")
    return made


def prompts_of(cfg: DictConfig, model: Pretrained) -> tuple[list[Prompt], str]:
    """Prompts as the yaml says, and a digest of what decides them."""
    if cfg.prompts is not None and cfg.chat is not None:
        raise UserError("give prompts= or chat=, not both.")
    prompts: list[Prompt]
    if cfg.prompts is not None:
        texts = read_prompts(cfg.prompts)
        prompts = [[("user", text)] for text in texts] if cfg.as_chat else list(texts)
    elif cfg.chat is not None:
        prompts = list(read_chats(cfg.chat))
    else:
        workload: Workload = workload_of(cfg)
        if workload.granularity != 1:
            raise UserError(
                f"this workload names blocks of {workload.granularity} tokens, not text: a model would read noise. "
                "Take a text workload (shared_prompt, stdlib_agent, agent_text, airline_text), prompts= or chat="
            )
        known = [request.tokens.tolist() for request in workload]
        check_vocabulary(known, model)
        return list(known), workload.fingerprint()
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer: only workloads of token ids can be served, no text.")
    prompts = prompts[: cfg.max_requests]
    return prompts, hashlib.sha256(json.dumps(prompts).encode()).hexdigest()


def _serve(
    cfg: DictConfig,
    model: Pretrained,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    caching: bool,
    observer: Observer,
    log: Callable[[Row], None],
    watcher: Watcher | None,
) -> tuple[Row, list[RequestResult], list[Row]]:
    engine = build_engine(cfg, model, caching)
    warm_up(engine)
    engine.observe(observer)
    sampler = Sampler(engine.scheduler, log, 0.0)
    rows: list[Row] = []

    def finished(request: Request) -> None:
        rows.append(request_row(request))
        sampler.finished(request)

    engine.loop.watch = watched(sampler.watch, engine.scheduler, watcher)
    engine.on_finish = finished
    metrics, results = generate(engine, prompts, params)
    sampler.row(engine.clock.now())
    check_books(engine)
    metrics["peak_blocks_in_use"] = sampler.peak
    served = [row for row in rows if row["error"] is None]
    return metrics | partial_reuse(engine.scheduler, served), results, sorted(rows, key=lambda row: row["request"])


def _compared(without: Row, found: Row) -> Row:
    names = ("ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "output_tokens_per_second", "seconds", "peak_blocks_in_use")
    return {
        **found,
        **{f"without_caching_{name}": without[name] for name in names},
        "ttft_ms_p50_saved": without["ttft_ms_p50"] - found["ttft_ms_p50"],
        "same_outputs": without["outputs_sha256"] == found["outputs_sha256"],
    }


def _answers(results: Sequence[RequestResult]) -> list[Row]:
    return [
        {
            "request": place,
            "completion": i,
            "text": completion.text,
            "token_ids": list(completion.token_ids),
            "finish_reason": completion.finish_reason,
            "logprob": completion.logprob,
            "error": result.error,
        }
        for place, result in enumerate(results)
        for i, completion in enumerate(result.completions)
    ]


def _show(prompts: Sequence[Prompt], results: Sequence[RequestResult], model: Pretrained) -> None:
    rows = []
    for prompt, result in zip(prompts, results, strict=True):
        shared = f"{result.hit_tokens} of {result.prompt_tokens}"
        ttft = "" if result.ttft is None else f"{1000 * result.ttft:.0f} ms"
        for completion in result.completions:
            said = completion.text.strip() if model.tokenizer else f"{len(completion.token_ids)} token ids"
            text = f"error: {result.error}" if result.error else said
            rows.append((_asked(prompt, model), _short(text), shared, ttft))
    show_table("", ("asked", "answered", "tokens hit", "first token"), rows)


def _asked(prompt: Any, model: Pretrained) -> str:
    """The end of a prompt, without special tokens: of a chat, what was said last."""
    if isinstance(prompt, str):
        return _short(prompt)
    if not isinstance(prompt[0], int):
        return _short(str(prompt[-1][1]))
    if model.tokenizer is None:
        return f"{len(prompt)} token ids"
    special = set(model.tokenizer.special_ids.values())
    ends = [i for i, token in enumerate(prompt) if token in special]
    if len(ends) > 2:  # <|im_start|>user … <|im_end|> <|im_start|>assistant
        prompt = prompt[ends[-3] + 1 : ends[-2]]
    return _short(model.tokenizer.decode(prompt).removeprefix("user\n"))


def _decoder(model: Pretrained) -> Callable[[list[int]], str] | None:
    """How a watcher shows token ids."""
    tokenizer = model.tokenizer
    return None if tokenizer is None else lambda ids: "… " + " ".join(tokenizer.decode(ids).split())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _ignore(row: Row) -> None:
    return


@hydra.main(version_base="1.3", config_path="../conf", config_name="generate")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, generate_job)


if __name__ == "__main__":
    cli(main)
