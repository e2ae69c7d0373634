"""What every policy costs on one traffic and pool: requests per second of the whole cache path, all policies in turn.

A round serves the traffic once under each policy, from a cold cache; the best of several rounds counts, so that what
disturbs the machine for a while disturbs all of them. An offline policy is shown the future first, untimed. A request
that needs more than the pool is left out.

Knows nothing of how figures are shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from hydra.utils import instantiate
from omegaconf import OmegaConf

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.evictor.base import Evictor
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence as CachedSequence
from experiments.bench.serving import CONF, Figure
from experiments.bench.timing import timed
from experiments.errors import UserError
from experiments.pool import resolve_num_blocks
from experiments.replay import access_of
from experiments.workload.base import Request
from experiments.workload.kept import Kept

ALLOCATORS: dict[str, type[Radix] | type[HashChain]] = {"radix": Radix, "hash_chain": HashChain}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests that fit a pool of `num_blocks` blocks, with what policies may know of each."""

    requests: Sequence[tuple[Request, Access]]
    block_size: int
    num_blocks: int | float

    def future(self) -> Future:
        """For offline policies."""
        size = self.block_size
        return Future(
            (request.extra_keys.encode(), tokens.contents(size), (len(tokens) - 1) // size)
            for request, _ in self.requests
            for tokens in (request.tokens,)
        )


def policy_names() -> list[str]:
    """Of conf/evictor."""
    return sorted(path.stem for path in (CONF / "evictor").glob("*.yaml"))


def traffic(workload: str, block_size: int, num_blocks: str, limit: int) -> Traffic:
    """The first `limit` requests of a workload yaml; `num_blocks` as in replays: a count, or a share of these requests.

    Raises UserError for a workload or pool that is none, and where no request fits.
    """
    path = CONF / "workload" / f"{workload}.yaml"
    if not path.exists():
        known = ", ".join(sorted(path.stem for path in path.parent.glob("*.yaml")))
        raise UserError(f"--workload {workload} is no file of conf/workload. There are: {known}.")
    settings = {"data_dir": os.environ.get("PAGELAB_DATA", "data"), "seed": 0, "workload": OmegaConf.load(path)}
    kept = Kept(instantiate(OmegaConf.create(settings).workload, limit=limit))
    pool = resolve_num_blocks(num_blocks, block_size, kept)
    requests = [request for request in kept if -(-len(request.tokens) // block_size) <= pool]
    if not requests:
        raise UserError(f"no request of --workload {workload} fits --num-blocks {num_blocks}: give more")
    return Traffic([(request, access_of(request, i)) for i, request in enumerate(requests)], block_size, pool)


def costs(traffic: Traffic, allocator: str, names: Sequence[str], repeats: int = 3) -> dict[str, Figure]:
    """Every policy of `names` (conf/evictor) under the same allocator; the best of `repeats` rounds."""
    makers = {name: _maker(traffic, ALLOCATORS[allocator], name) for name in names}
    seconds = dict.fromkeys(names, inf)
    hits = dict.fromkeys(names, 0)
    for _ in range(repeats):
        for name, make in makers.items():
            manager = make()

            def run(manager: CacheManager = manager, name: str = name) -> None:
                hits[name] = _serve(manager, traffic)

            seconds[name] = min(seconds[name], timed(run))
    num_tokens = sum(len(request.tokens) for request, _ in traffic.requests)
    return {name: Figure(len(traffic.requests) / seconds[name], hits[name] / num_tokens) for name in names}


def _maker(traffic: Traffic, allocator: type[Radix] | type[HashChain], name: str) -> Callable[[], CacheManager]:
    """Makes cold caches under a policy of conf/evictor."""
    settings = {"seed": 0, "block_size": traffic.block_size, "num_blocks": traffic.num_blocks}  # a yaml may ask for
    cfg = OmegaConf.create(settings | {"evictor": OmegaConf.load(CONF / "evictor" / f"{name}.yaml")})
    future = traffic.future() if instantiate(cfg.evictor).needs_future else None

    def make() -> CacheManager:
        evictor: Evictor = instantiate(cfg.evictor)
        if future is not None:
            evictor.foresee(future)
        return CacheManager(allocator(traffic.num_blocks, traffic.block_size, BuiltinHash(), evictor))

    return make


def _serve(manager: CacheManager, traffic: Traffic) -> int:
    """One request after the other, from its token ids to the freed sequence; returns the hit tokens."""
    hits = 0
    for request, access in traffic.requests:
        seq = CachedSequence(request.tokens, access, request.extra_keys)
        hits += manager.allocate(seq)
        manager.promote_to_immutable(seq, seq.num_tokens)
        manager.free(seq)
    return hits
