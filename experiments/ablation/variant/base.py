"""What a variant is to the ablation: launches to compile, a call to time, a reference to agree with, work to count.

A new variant is one file here and one yaml in `conf/variant`. Inputs are opaque to everybody but the variant.

Knows nothing of clocks or compilers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.ablation.point import Point
from kernels.launch import Launch
from kernels.tuning import AttentionConfig, Tuning

Call = Callable[[], Any]
"""Does the work once: the public function, with its checks and allocations."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least a call has to move and compute: each input byte read once, each output byte written once."""

    bytes: int
    flops: int


class Variant(ABC):
    """See the module docstring. `op` says which variants compute the same thing."""

    op: ClassVar[str]

    def resolve(self, point: Point, tuning: Tuning, processors: int) -> Point:
        """The point with everything decided that is left to the work at hand. Raises ValueError for what cannot be."""
        return point

    @abstractmethod
    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        """What would be launched, from meta tensors; the one worth studying first. The point is resolved."""

    @abstractmethod
    def inputs(self, point: Point, device: torch.device, seed: int) -> Any:
        """Fresh random inputs."""

    @abstractmethod
    def bind(self, inputs: Any, point: Point, tuning: Tuning) -> Call:
        """The public call on these inputs."""

    def results(self, inputs: Any, returned: Any) -> Sequence[Tensor]:
        """What is compared after a call that returned `returned`."""
        return [returned]

    @abstractmethod
    def reference(self, inputs: Any) -> Sequence[Tensor]:
        """What `results` must be, in plain torch on the CPU; leaves `inputs` as they are."""

    @abstractmethod
    def work(self, point: Point) -> Work:
        """See `Work`."""


def attention_tiles(section: str, point: Point, tuning: Tuning, element_bytes: int) -> AttentionConfig:
    """The tuned tiles of a section, with whatever the point fixes put in their place. Raises ValueError."""
    tuned = tuning.attention(section, point.head_dim, element_bytes)
    fixed = {name: getattr(point, name) for name in ("tile_q", "tile_kv", "num_warps", "num_stages")}
    return replace(tuned, **{name: value for name, value in fixed.items() if value is not None})
