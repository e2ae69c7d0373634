"""The contract every policy of conf/evictor keeps, and what makes each of them itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.conf import build, options, parameters_of
from support.replays import Prompt, drawn_accesses, drawn_prompts, hit_blocks, replayed
from support.simulator import Resident, simulate
from support.slow_policies import SLOW

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor import workload_aware
from cache.evictor.contract import CHECKS, Skip, counts, frozen_trace
from cache.evictor.random import Random
from cache.evictor.workload_aware import WorkloadAware

POLICIES = options("evictor")


@pytest.mark.parametrize("name", POLICIES)
class TestContract:
    @pytest.mark.parametrize("promise", CHECKS)
    def test_every_policy_keeps_the_promise_that(self, name: str, promise: str) -> None:
        try:
            CHECKS[promise](lambda: build("evictor", name))
        except Skip as reason:
            pytest.skip(str(reason))

    def test_golden_hit_blocks_on_the_frozen_trace(self, name: str) -> None:
        today = counts(lambda: build("evictor", name))
        if name not in GOLDEN:
            pytest.skip(f"no golden counts yet; today {name} gives {today}")
        assert today == GOLDEN[name]


GOLDEN = {  # hit blocks on the frozen trace with pools of 40, 120 and 300 blocks, all hints given
    "arc": [2488, 3570, 3832],
    "belady": [2991, 3820, 3967],
    "fifo": [2069, 3095, 3614],
    "gdsf": [2669, 3435, 3796],
    "hazard": [2668, 3518, 3736],
    "length_aware": [1126, 1519, 2355],
    "lfu": [2671, 3570, 3764],
    "lirs": [2583, 3633, 3867],
    "lru": [2118, 3128, 3654],
    "lru_k": [2560, 3582, 3844],
    "marconi": [1702, 3208, 3688],
    "mru": [864, 1428, 2104],
    "random": [2057, 3133, 3657],
    "s3fifo": [2663, 3562, 3822],
    "session": [2219, 2909, 3280],
    "sieve": [2674, 3570, 3764],
    "slru": [2654, 3569, 3764],
    "tail_latency": [1915, 2575, 3080],
    "ttl_priority": [946, 1403, 2083],
    "two_q": [2546, 3491, 3776],
    "w_tinylfu": [2500, 3593, 3897],
    "workload_aware": [2064, 2939, 3662],
}


def lru(resident: Resident) -> Any:
    return resident.last, -resident.depth


RANKS: dict[str, Callable[[Resident], Any]] = {
    "lru": lru,
    "fifo": lambda r: (r.inserted, -r.depth),
    "lfu": lambda r: (r.count, r.last, -r.depth),
}


def judge(name: str, prompts: list[Prompt], victims: list[Prompt]) -> Any:
    """How the simulator chooses: by the policy's formula where there is one, else by checking the choice made."""
    made = iter(victims)

    def choose(candidates: dict[Prompt, Resident], now: int) -> Prompt:
        if name in RANKS:
            return min(candidates, key=lambda prefix: RANKS[name](candidates[prefix]))
        choice = next(made)
        assert choice in candidates, f"{name} evicted {choice}, which is in use, has a child, or is not there"
        if name == "belady":
            assert next_use(choice) == max(next_use(p) for p in candidates)
        return choice

    def hits_at(prompt: Prompt, prefix: Prompt) -> bool:
        return prompt[: len(prefix)] == prefix and len(prefix) < len(prompt)

    def next_use(prefix: Prompt) -> int:
        return next((i for i in range(clock[0], len(prompts)) if hits_at(prompts[i], prefix)), len(prompts))

    clock = [0]

    def timed(candidates: dict[Prompt, Resident], now: int) -> Prompt:
        clock[0] = now
        return choose(candidates, now)

    return timed


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), block_size=st.integers(1, 4), num_blocks=st.integers(4, 30))
def test_hits_equal_those_of_an_independent_simulator(name: str, seed: int, block_size: int, num_blocks: int) -> None:
    prompts = drawn_prompts(seed)
    hits, victims = replayed(prompts, block_size, num_blocks, build("evictor", name))
    assert hits == simulate(
        prompts, block_size, num_blocks, judge(name, fitting(prompts, block_size, num_blocks), victims)
    )


OTHER_PARAMETERS: dict[str, dict[str, Any]] = {  # where small pools and short traces would not show a parameter
    "lirs": {"hir": 0.4},
    "marconi": {"alpha": 7.0, "crossover": 3.0},
    "tail_latency": {"block_size": 500, "budget": 4700},
    "ttl_priority": {"block_size": 500, "default": 50},
    "w_tinylfu": {"window": 0.3, "protected": 0.4, "counters": 17},
    "workload_aware": {"horizon": 5.0},
}


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=12, deadline=None, phases=[Phase.reuse, Phase.generate])  # shrinking a seed tells nothing
@given(seed=st.integers(0, 10**6), num_blocks=st.integers(24, 60), other=st.booleans(), leaf_only=st.booleans())
def test_victims_equal_those_of_a_slow_model_of_the_source(
    name: str, seed: int, num_blocks: int, other: bool, leaf_only: bool
) -> None:
    chosen = OTHER_PARAMETERS.get(name, {}) if other else {}
    prompts = drawn_prompts(seed, count=120)
    accesses = drawn_accesses(seed, prompts, 512)
    fast, slow = (
        replayed(prompts, 1, num_blocks, evictor, accesses, leaf_only)
        for evictor in (build("evictor", name, **chosen), SLOW[name](**(parameters_of("evictor", name) | chosen)))
    )
    assert fast == slow


def test_workload_aware_forgets_as_its_slow_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_aware, "MEMORY", 60)
    for seed in range(6):
        prompts = drawn_prompts(seed, count=120)
        accesses = drawn_accesses(seed, prompts, 512)
        fast, slow = (
            replayed(prompts, 1, 24 + 4 * seed, evictor, accesses)
            for evictor in (WorkloadAware(20.0), SLOW["workload_aware"](horizon=20.0, memory=60))
        )
        assert fast == slow


def fitting(prompts: list[Prompt], block_size: int, num_blocks: int) -> list[Prompt]:
    """The prompts, with an empty one where the real one is refused and so uses nothing."""
    return [p if -(-len(p) // block_size) <= num_blocks else () for p in prompts]


@pytest.mark.parametrize("block_size", [1, 2])
def test_no_policy_beats_belady(block_size: int) -> None:
    """Small pools, few symbols, every prompt on a block boundary: where a block that cannot hit would mislead it."""
    draw = random.Random(4)
    for _ in range(80):
        symbols = [[s] * block_size for s in range(4)]
        prompts = [tuple(t for s in draw.choices(symbols, k=draw.randint(1, 3)) for t in s) for _ in range(8)]
        best = hit_blocks(prompts, "belady", block_size, num_blocks=3)
        for name in POLICIES:
            assert hit_blocks(prompts, name, block_size, num_blocks=3) <= best, (name, prompts)


def test_random_depends_on_its_seed_alone() -> None:
    prompts = frozen_trace()
    assert replayed(prompts, 1, 40, Random(1)) == replayed(prompts, 1, 40, Random(1))
    assert replayed(prompts, 1, 40, Random(1)) != replayed(prompts, 1, 40, Random(2))


def test_random_is_uniform_over_its_candidates() -> None:
    counts = [0] * 5
    for seed in range(2000):
        evictor = Random(seed)
        for block in range(5):
            evictor.evictable(block)
        counts[evictor.victim()] += 1
    assert min(counts) > 320, counts


def test_belady_without_a_future_says_what_is_missing() -> None:
    with pytest.raises(PolicyError, match="foresee"):
        build("evictor", "belady").inserted([0], 0, Access(0), ["k"])
