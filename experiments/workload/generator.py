"""What generators share: a constructor argument is a dataclass field, and the fingerprint is what decides the tokens.

Knows nothing of what is generated.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, fields

from experiments.workload.base import Workload
from experiments.workload.fingerprint import fingerprint

PACE = ("time_scale", "request_rate", "output_tokens")
"""Fields that decide when requests come and how long answers are, and no token of any prompt."""


@dataclass(eq=False)
class Generator(Workload):
    """`limit`, `time_scale` and `seed` as in `Workload`. Raises ValueError for an argument out of range."""

    _: KW_ONLY
    limit: int | None = None
    time_scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__(self.limit, self.time_scale, self.seed)
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raises ValueError for an argument out of range, naming it."""

    def fingerprint(self) -> str:
        return fingerprint(self, **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in PACE})
