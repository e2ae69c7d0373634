"""One SHA-256 for everything that decides a workload's token ids.

Knows nothing of files or generators; callers say what matters.
"""

from __future__ import annotations

import hashlib
import json

from experiments.workload.base import Workload


def fingerprint(workload: Workload, **parts: str | int | float | bool | None) -> str:
    """Digest of the class, `limit`, `seed` and `parts`, in any order. Paths do not belong in it."""
    kind = f"{type(workload).__module__}.{type(workload).__qualname__}"
    told = {"class": kind, "limit": workload.limit, "seed": workload.seed, **parts}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
