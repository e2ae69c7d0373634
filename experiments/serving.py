"""From a config to an engine over a real model: weights, KV pool, cache, scheduler, executor.

Knows nothing of prompts or measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from cache.manager import CacheManager
from cache.store import KVStore
from experiments.errors import UserError
from experiments.simulate import online_manager
from model.memory import available_memory
from model.pretrained import Pretrained
from model.runner import ModelRunner
from scheduler.checks import Limits
from scheduler.clock import Clock
from scheduler.engine import Engine
from scheduler.loop import Watch
from scheduler.scheduler import Scheduler
from scheduler.stopping import StopRules
from scheduler.torch_executor import TorchExecutor

NO_SHARING = OmegaConf.create(
    {"_target_": "cache.allocator.naive.Naive", "num_blocks": "${num_blocks}", "block_size": "${block_size}"}
)


def load_model(cfg: DictConfig) -> Pretrained:
    """The model that the yaml names. Raises UserError for one that is only described."""
    if cfg.model.get("weights") is None:
        raise UserError(
            "this model is described for simulation, but has no weights to load. Take model=smollm2, or any checkpoint "
            "on disk with model=folder model.weights.folder=path/to/folder"
        )
    model: Pretrained = instantiate(cfg.model.weights)
    return model


def check_vocabulary(prompts: Iterable[Sequence[int]], model: Pretrained) -> None:
    """Raises UserError where a workload's token ids are not the model's."""
    size = model.config.vocab_size
    highest = max((max(prompt, default=0) for prompt in prompts), default=0)
    if highest >= size:
        raise UserError(
            f"the workload has token id {highest}, but model {model.name} knows only {size} tokens. Take a model with "
            f"the workload's tokenizer, or a generated workload with workload.vocab_size={size} (shared_prefix, ...)."
        )


def build_engine(
    cfg: DictConfig, model: Pretrained, prefix_caching: bool, watch: Watch | None = None, clock: Clock | None = None
) -> Engine:
    """An engine with a cold cache, on the wall's clock unless told otherwise.

    Raises UserError for what cannot be built, MemoryError for too large a pool.
    """
    cfg = cfg.copy()
    if not isinstance(cfg.num_blocks, int) or cfg.num_blocks < 1:
        raise UserError(
            f"num_blocks={cfg.num_blocks}: a real pool has a positive whole number of blocks (num_blocks=512)."
        )
    if not prefix_caching:
        cfg.allocator = NO_SHARING
    shape, decoder = model.config, model.decoder
    num_host_blocks = cfg.preemption.get("num_host_blocks", 0)
    try:
        manager: CacheManager = online_manager(cfg)
        _check_pool_fits(cfg, model, num_host_blocks)
        store = KVStore(
            cfg.num_blocks,
            cfg.block_size,
            shape.num_layers,
            shape.num_kv_heads,
            shape.head_dim,
            dtype=decoder.dtype,
            device=decoder.device,
            num_host_blocks=num_host_blocks,
            poison=cfg.get("poison", False),
        )
        tokenizer = model.tokenizer
        stop = StopRules(model.eos_ids, None if tokenizer is None else tokenizer.decode)
        limits = Limits(shape.max_model_len, shape.vocab_size, has_text=tokenizer is not None)
        scheduler: Scheduler = instantiate(cfg.scheduler)(manager=manager, limits=limits, stop=stop)
        runner = ModelRunner(decoder, store, instantiate(cfg.backend), cfg.invariant)
    except ValueError as error:
        raise UserError(str(error)) from None
    manager.set_weights_version(decoder.weights_version)
    executor = TorchExecutor(runner, store, cfg.block_size)
    return Engine(scheduler, executor, clock, tokenizer, seed=cfg.seed, watch=watch)


def check_books(engine: Engine) -> None:
    """Raise AssertionError where queues, blocks and owners disagree, or something was written behind the pool."""
    engine.scheduler.check_integrity()
    executor = engine.loop.executor
    if isinstance(executor, TorchExecutor) and isinstance(executor.store, KVStore):
        executor.store.check_guard()


def _check_pool_fits(cfg: DictConfig, model: Pretrained, num_host_blocks: int) -> None:
    """Systems promise more memory than there is, and kill who then uses it; better to say so first."""
    shape, decoder = model.config, model.decoder
    per_block = 2 * cfg.block_size * shape.num_kv_heads * shape.head_dim * shape.num_layers * decoder.dtype.itemsize
    for count, what, place in (
        (cfg.num_blocks, f"num_blocks={cfg.num_blocks}", decoder.device),
        (num_host_blocks, f"preemption.num_host_blocks={num_host_blocks}", torch.device("cpu")),
    ):
        left = available_memory(place)
        if left is not None and count * per_block > left:
            raise UserError(
                f"{what} of {cfg.block_size} tokens: {count * per_block / 2**30:.1f} GiB of K and V are needed on "
                f"{place}, {left / 2**30:.1f} GiB are available: lower {what.partition('=')[0]}"
            )
