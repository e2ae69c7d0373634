"""Low-rank adapters (LoRA, Hu et al. 2021), merged into the weights one at a time: W' = W + scale · B A.

A merged adapter costs nothing per step, and serves all requests of a step alike; another request's adapter is another
`switch`. Going back restores the very bits of the base, which are kept aside, so K and V computed under the base hold
again. `key()` goes into the cache key: the name, and a hash of the content, so that new content under an old name
misses.

Knows nothing of caches or of when to switch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.decoder import Decoder
from model.errors import ModelFileError
from model.linear import Linear

Factors = tuple[Tensor, Tensor]
"""A `[rank, in]` and B `[out, rank]`."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Deltas by the published names of the projections, such as `model.layers.0.self_attn.q_proj`."""

    name: str
    factors: Mapping[str, Factors]
    scale: float = 1.0
    version: str = field(init=False)
    """Hash of scale and factors."""

    def __post_init__(self) -> None:
        hasher = xxhash.xxh3_128(repr(self.scale).encode())
        for name, pair in sorted(self.factors.items()):
            hasher.update(name.encode())
            for part in pair:
                hasher.update(f"{list(part.shape)}".encode())
                hasher.update(part.detach().cpu().double().contiguous().numpy().tobytes())
        object.__setattr__(self, "version", hasher.hexdigest())

    @property
    def key(self) -> tuple[str, str]:
        """Name and version, for the cache key."""
        return self.name, self.version

    @classmethod
    def from_folder(cls, folder: str | Path, name: str | None = None) -> Adapter:
        """Read PEFT's layout: `adapter_config.json` (r, lora_alpha) and `adapter_model.safetensors`.

        Raises ModelFileError naming the file, or the tensors that have no partner.
        """
        folder = Path(folder)
        settings, path = folder / "adapter_config.json", folder / "adapter_model.safetensors"
        try:
            told = json.loads(settings.read_text("utf-8"))
            scale = float(told["lora_alpha"]) / float(told["r"])
        except FileNotFoundError:
            raise ModelFileError(f"{settings} is missing") from None
        except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ModelFileError(f"{settings} names no usable r and lora_alpha ({error!r})") from None
        try:
            file: Any = safe_open(path, framework="pt", device="cpu")
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 (no dict)
        except (FileNotFoundError, SafetensorError, OSError) as error:
            raise ModelFileError(f"{path} is missing, truncated or corrupted ({error})") from None
        return cls(name or folder.name, _pairs(tensors, path), scale)


class AdapterSwitch:
    """Which adapter a decoder has in its weights."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.active: Adapter | None = None
        self._originals: list[tuple[Linear, Tensor]] = []

    def switch(self, adapter: Adapter | None) -> None:
        """Merge `adapter` into the base's weights; None goes back to the base, bit for bit.

        Raises ValueError for a projection the model has not, or factors that do not fit it; then nothing changes.
        """
        if adapter is not None and self.active is not None and adapter.version == self.active.version:
            self.active = adapter
            return
        matrices = self.decoder.matrices()
        if adapter is not None:
            _check(adapter, matrices)
        for linear, weight in self._originals:
            linear.set_weight(weight)
        self._originals, self.active = [], adapter
        if adapter is None:
            return
        touched: dict[int, tuple[Linear, Tensor]] = {}
        for name, (a, b) in adapter.factors.items():
            linear, start, stop = matrices[name]
            if id(linear) not in touched:
                dense = linear.dense
                self._originals.append((linear, dense))
                touched[id(linear)] = linear, dense.clone()
            merged = touched[id(linear)][1]
            delta = adapter.scale * (b.to(merged.device).float() @ a.to(merged.device).float())
            merged[start:stop] = (merged[start:stop].float() + delta).to(merged.dtype)
        for linear, merged in touched.values():
            linear.set_weight(merged)


def _check(adapter: Adapter, matrices: Mapping[str, tuple[Linear, int, int]]) -> None:
    for name, (a, b) in adapter.factors.items():
        if name not in matrices:
            raise ValueError(f"adapter {adapter.name}: the model has no projection {name}")
        linear, start, stop = matrices[name]
        out, inp = stop - start, linear.shape[1]
        if tuple(a.shape) != (b.shape[1], inp) or b.shape[0] != out:
            raise ValueError(
                f"adapter {adapter.name}: {name} needs A [rank, {inp}] and B [{out}, rank], "
                f"got {list(a.shape)} and {list(b.shape)}"
            )


def _pairs(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Factors]:
    pairs, used = {}, set()
    for key, a in tensors.items():
        stem, found, _ = key.partition(".lora_A.")
        other = key.replace(".lora_A.", ".lora_B.")
        if found and other in tensors:
            pairs[stem.removeprefix("base_model.model.")] = (a, tensors[other])
            used |= {key, other}
    left = sorted(set(tensors) - used)
    if left or not pairs:
        strange = ", ".join(left[:5]) or "none"
        raise ModelFileError(f"{path}: only pairs of lora_A and lora_B are understood, not {strange}")
    return pairs
