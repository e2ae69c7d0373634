"""Tile sizes by a stated rule: the first row whose bounds all hold, read from `conf/kernel/<arch>.yaml`.

A row is `{head_dim: 128, bytes: 2, use: {tile_q: 64, tile_kv: 64, num_warps: 4, num_stages: 3}}`: its bounds are
inclusive maxima (the larger of the two head dims; bytes per element of q), a bound left out always holds. A section
without a matching row, or a missing section, falls back to `FALLBACK`, which compiles everywhere. Four sections:

    decode     every query tile of a call fits 16 rows (max_query_len × heads per KV head)
    prefill    otherwise
    cascade    a shared prefix read for many requests
    invariant  invariant mode: one shape for prefill and decode alike, so the bounds never ask for either

Nothing here measures or caches: a table is data, read once by whoever builds the model or the ablation.
Knows nothing of GPUs beyond the names of the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # PyYAML ships no types

SECTIONS = ("decode", "prefill", "cascade", "invariant")
CONF = Path(__file__).parents[1] / "conf" / "kernel"


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """`tile_q` rows (query tokens × heads per KV head) by `tile_kv` keys; powers of two, at least 16."""

    tile_q: int = 16
    tile_kv: int = 32
    num_warps: int = 4
    num_stages: int = 2

    def __post_init__(self) -> None:
        for name in ("tile_q", "tile_kv"):
            value = getattr(self, name)
            if value < 16 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two and at least 16, got {value}")
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1):
            raise ValueError(f"num_warps must be a power of two, got {self.num_warps}")
        if self.num_stages < 1:
            raise ValueError(f"num_stages must be at least 1, got {self.num_stages}")


FALLBACK = AttentionConfig()


class Tuning:
    """One architecture's table. `sections` maps a section's name to its rows; see the module docstring."""

    def __init__(self, arch: str, **sections: Sequence[Mapping[str, Any]]) -> None:
        """Raises ValueError for an unknown section, or a row that names anything but head_dim, bytes and use."""
        unknown = set(sections) - set(SECTIONS)
        if unknown:
            raise ValueError(f"unknown section {sorted(unknown)}: a table has {', '.join(SECTIONS)}")
        self.arch = arch
        self.rows = {name: [_row(row) for row in rows] for name, rows in sections.items()}

    def attention(self, section: str, head_dim: int, element_bytes: int) -> AttentionConfig:
        """The first row of `section` with head_dim and element_bytes within its bounds, or `FALLBACK`."""
        if section not in SECTIONS:
            raise ValueError(f"unknown section {section!r}: a table has {', '.join(SECTIONS)}")
        for max_head_dim, max_bytes, config in self.rows.get(section, []):
            if head_dim <= max_head_dim and element_bytes <= max_bytes:
                return config
        return FALLBACK


def load(arch: str, folder: Path = CONF) -> Tuning:
    """The table of `folder/<arch>.yaml`. Raises ValueError naming the tables there are, if that is not one."""
    path = folder / f"{arch}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        raise ValueError(f"no tuning table for {arch!r} in {folder}: there are {', '.join(known) or 'none'}")
    table = yaml.safe_load(path.read_text())
    table.pop("_target_", None)  # the same file is a Hydra group member that builds this class
    return Tuning(**table)


def section_for(max_query_len: int, group: int, invariant: bool) -> str:
    """Which section a call reads, from the shape alone."""
    if invariant:
        return "invariant"
    return "decode" if max_query_len * group <= 16 else "prefill"


def _row(row: Mapping[str, Any]) -> tuple[float, float, AttentionConfig]:
    unknown = set(row) - {"head_dim", "bytes", "use"}
    if unknown or "use" not in row:
        raise ValueError(f"a row has head_dim, bytes and use, got {sorted(row)}")
    config = AttentionConfig(**row["use"])
    return float(row.get("head_dim", "inf")), float(row.get("bytes", "inf")), config
