"""One point of a kernel sweep: the call that is studied, and the tiles it is studied with.

    request r   [ shared_prefix, the same for all | context − shared_prefix of its own ]     context tokens in all,
                                                                     the last query_len of them ask

Placement, with `w` blocks per request, block i of request r:

    contiguous   r·w + i            as a pool fills that serves one request after the other
    strided      i·batch + r        as a batch leaves it that decodes side by side
    shuffled     anywhere           as a pool looks after hours

Knows nothing of tensors, kernels or devices.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

PLACEMENTS = ("contiguous", "strided", "shuffled")
DTYPES = ("fp16", "bf16", "fp32")
KV_DTYPES = ("fp8e4m3", "fp8e5m2", "int8")
SCALES = ("none", "tensor", "token")
TILES = ("tile_q", "tile_kv", "num_warps", "num_stages")
COUNTS = ("block_size", "head_dim", "num_kv_heads", "gqa_ratio", "batch", "query_len", "context")


@dataclass(frozen=True, slots=True)
class Point:
    """Lengths in tokens. None: tiles from the tuned table, splits from the work at hand, `kv_dtype` as `dtype`."""

    block_size: int = 16
    head_dim: int = 128
    num_kv_heads: int = 8
    gqa_ratio: int = 4
    dtype: str = "bf16"
    kv_dtype: str | None = None
    scales: str = "none"
    batch: int = 64
    query_len: int = 1
    context: int = 4096
    shared_prefix: int = 0
    placement: str = "shuffled"
    num_splits: int | None = None
    tile_q: int | None = None
    tile_kv: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError naming the field, what it may be and what it is."""
        for name in COUNTS:
            self._demand(name, _is_count(getattr(self, name)), "a positive whole number")
        for name in (*TILES, "num_splits"):
            value = getattr(self, name)
            self._demand(name, value is None or _is_count(value), "a positive whole number, or null")
        for name, allowed in (("placement", PLACEMENTS), ("dtype", DTYPES), ("scales", SCALES)):
            self._demand(name, getattr(self, name) in allowed, f"one of {', '.join(allowed)}")
        self._demand("kv_dtype", self.kv_dtype in (None, *KV_DTYPES), f"one of {', '.join(KV_DTYPES)}, or null")
        self._demand("query_len", self.query_len <= self.context, f"at most context={self.context}")
        prefix = self.shared_prefix
        whole = isinstance(prefix, int) and 0 <= prefix <= self.context - self.query_len
        self._demand(
            "shared_prefix",
            whole and prefix % self.block_size == 0,
            f"a multiple of block_size={self.block_size}, at most {self.context - self.query_len} (before the queries)",
        )

    def _demand(self, name: str, condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(f"{name} must be {what}, got {getattr(self, name)!r}")

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.num_kv_heads * self.gqa_ratio

    @property
    def num_tokens(self) -> int:
        """Query tokens (or new tokens) of the whole batch."""
        return self.batch * self.query_len

    @property
    def blocks_per_request(self) -> int:
        """Columns of the block table."""
        return -(-self.context // self.block_size)

    def row(self) -> dict[str, Any]:
        """The point as columns of the table."""
        return asdict(self)


def small(point: Point) -> Point:
    """The same kind of call at a size the plain reference can afford: same block size, tiles, dtypes, group, placement.

    Several blocks and key tiles, a last block that is not full, and every request with a tail of its own.
    """
    tile = point.tile_kv or 64
    prefix = 2 * point.block_size if point.shared_prefix else 0
    query_len = min(point.query_len, 19)
    own = query_len + max(point.block_size, 2 * tile) + 3
    return replace(
        point,
        batch=min(point.batch, 3),
        num_kv_heads=min(point.num_kv_heads, 2),
        query_len=query_len,
        context=min(point.context, prefix + own) if not prefix else prefix + own,
        shared_prefix=prefix,
        num_splits=None if point.num_splits is None else min(point.num_splits, 6),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
