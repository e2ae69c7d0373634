"""Weights on disk: safetensors, in one file or sharded with an index, checked before anything is read.

Headers alone tell names, shapes and types, so a checkpoint that does not fit its config is refused with every fault
in one message. Files are memory-mapped; a tensor is read when asked for. Pickled checkpoints are refused: unpickling
runs whatever code the file holds.

Knows nothing of layers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.errors import ModelFileError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
FLOATS = ("F64", "F32", "F16", "BF16")
REDUNDANT = (".rotary_emb.inv_freq",)
"""Old checkpoints store what the config says already."""
LISTED = 20


class Checkpoint:
    """The tensors of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        """Reads headers only. Raises ModelFileError naming the file that is missing, truncated or no safetensors."""
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._where: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        for name in _shards(folder):
            self._open(name)

    def check(self, wanted: Mapping[str, tuple[int, ...]], tied_head: bool) -> None:
        """Raises ModelFileError that names every tensor missing, unexpected, misshapen or not of floats.

        `tied_head`: a stored head is no fault, though the embedding is used.
        """
        faults = [f"missing: {name} {list(shape)}" for name, shape in wanted.items() if name not in self.shapes]
        for name, shape in self.shapes.items():
            at = self._where[name]
            if name not in wanted:
                if not name.endswith(REDUNDANT) and not (tied_head and name == "lm_head.weight"):
                    faults.append(f"unexpected: {name} {list(shape)} in {at}")
            elif shape != wanted[name]:
                faults.append(f"misshapen: {name} is {list(shape)} in {at}, the config says {list(wanted[name])}")
            elif self._dtypes[name] not in FLOATS:
                kind = self._dtypes[name]
                faults.append(f"not floats: {name} is {kind} in {at} (quantised weights are not supported)")
        if faults:
            shown = "\n  ".join(faults[:LISTED])
            more = f"\n  and {len(faults) - LISTED} more" if len(faults) > LISTED else ""
            raise ModelFileError(f"{self.folder}: the weights do not fit config.json:\n  {shown}{more}")

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """One tensor, cast, in memory of its own. Raises ModelFileError where it holds NaN or infinity."""
        file = self._where[name]
        try:
            tensor: Tensor = self._files[file].get_tensor(name).to(dtype, copy=True)
        except SafetensorError as error:
            raise ModelFileError(f"{self.folder / file}: cannot read {name} ({error}): fetch the file again") from None
        low, high = torch.aminmax(tensor) if tensor.numel() else (torch.zeros(()), torch.zeros(()))
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise ModelFileError(
                f"{self.folder / file}: {name} holds NaN or infinity as {str(dtype).removeprefix('torch.')}: "
                f"fetch the file again, or load it as float32"
            )
        return tensor

    def _open(self, name: str) -> None:
        path = self.folder / name
        try:
            file: Any = safe_open(path, framework="pt", device="cpu")
            for tensor in file.keys():  # noqa: SIM118 (the file is no dict)
                part = file.get_slice(tensor)
                self.shapes[tensor] = tuple(part.get_shape())
                self._dtypes[tensor] = str(part.get_dtype())
                self._where[tensor] = name
        except FileNotFoundError:
            raise ModelFileError(f"{path} is missing, though {INDEX} names it: fetch it") from None
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{path} is truncated or corrupted ({error}): fetch the file again") from None
        self._files[name] = file


def _shards(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is no folder: give one with config.json and *.safetensors")
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFileError(f"{index} has no readable weight_map ({error!r}): fetch the file again") from None
        strange = sorted(str(name) for name in names if Path(str(name)).name != name)
        if strange:
            raise ModelFileError(f"{index} names files outside its folder: {strange[0]}")
        return sorted(names)
    if (folder / SINGLE).is_file():
        return [SINGLE]
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelFileError(f"{folder} has {len(found)} safetensors files and no {INDEX} to say which belong together")
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelFileError(
            f"{folder} holds pickled weights only ({pickles[0]}), which can run code when read and are refused: "
            f"take the safetensors files of this model"
        )
    raise ModelFileError(f"{folder} holds no *.safetensors")
