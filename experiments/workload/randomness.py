"""Made-up token ids and skewed choices for the generators, the same in every process for the same seed.

Every stream of numbers is named by the seed and a few integers, so drawing more of one never shifts another.

Knows nothing of requests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cache.tokens import INT32_MAX


def stream(seed: int, *name: int) -> np.random.Generator:
    """The random numbers called `name` under `seed`, from their beginning. No integer may be negative."""
    return np.random.default_rng([seed, *name])


def random_tokens(rng: np.random.Generator, count: int, vocab_size: int) -> bytes:
    """`count` uniform ids below `vocab_size`, as packed int32. Raises ValueError for ids beyond int32."""
    if vocab_size - 1 > INT32_MAX:
        raise ValueError(f"workload.vocab_size must be at most {INT32_MAX + 1} for token ids to fit int32")
    return rng.integers(vocab_size, size=count).astype("<i4").tobytes()


def zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Probability of item i proportional to 1 / (i + 1)^exponent; 0 is uniform."""
    weights: NDArray[np.float64] = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights
