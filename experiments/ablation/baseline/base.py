"""What a baseline is: another way from the same inputs to the same results, timed by the same clock.

Knows nothing of clocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.tensors import Pool
from experiments.ablation.variant.base import Call


class UnsupportedError(Exception):
    """The baseline cannot do this point; the message says why, in a few words."""


class Baseline(ABC):
    """`name`: of its columns. `op`: what it does, as `Variant.op`. `trusted`: who disagrees with it is wrong."""

    name: str
    op: ClassVar[str]
    trusted: ClassVar[bool] = False

    @abstractmethod
    def bind(self, inputs: Any, point: Point) -> Call:
        """The call to be timed; whatever it needs beyond the inputs is made here. Raises UnsupportedError."""

    @abstractmethod
    def results(self, inputs: Any, returned: Any) -> Sequence[Tensor]:
        """What the variant's `results` should equal."""


def finite_pool(pool: Pool, point: Point) -> tuple[Tensor, Tensor]:
    """K and V without NaN in the unwritten end of a last block, which others multiply by zero."""
    if point.context % point.block_size == 0:
        return pool.k_cache, pool.v_cache
    return pool.k_cache.nan_to_num(), pool.v_cache.nan_to_num()


def need_plain_cache(point: Point) -> None:
    """Raises UnsupportedError for a quantised pool."""
    if point.kv_dtype is not None:
        raise UnsupportedError(f"no {point.kv_dtype} cache")
