"""Weights on disk: every fault in one message, nothing read that could run code, and versions that mean content."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.serving import Server
from support.tiny_models import FAMILIES

from model import memory
from model.config import parse_config, read_config
from model.errors import ModelFileError, NotEnoughMemory, UnsupportedModel
from model.pretrained import Pretrained, from_folder, tiny

LLAMA = FAMILIES["llama"]


def tensors(told: dict[str, Any] = LLAMA, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=g) * 0.1 for name, shape in parse_config(told).tensor_shapes().items()}


def written(folder: Path, weights: dict[str, torch.Tensor], told: dict[str, Any] = LLAMA, shards: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(told))
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    where = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(weights)}
    for file in set(where.values()):
        save_file({name: weights[name] for name in weights if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def logits(model: Pretrained) -> torch.Tensor:
    server = Server(model.decoder)
    return server.prefill(server.sequence(range(20)))


def test_one_file_and_shards_are_the_same_model(tmp_path: Path) -> None:
    one = from_folder(written(tmp_path / "one", tensors()))
    many = from_folder(written(tmp_path / "many", tensors(), shards=3))
    assert one.decoder.weights_version == many.decoder.weights_version
    assert torch.equal(logits(one), logits(many))


def test_weights_are_cast_as_they_are_read(tmp_path: Path) -> None:
    half = {name: t.half() for name, t in tensors().items()}
    model = from_folder(written(tmp_path / "half", half))
    assert model.decoder.dtype == torch.float32
    wide = from_folder(written(tmp_path / "wide", {name: t.float() for name, t in half.items()}))
    assert model.decoder.weights_version == wide.decoder.weights_version, "what is computed with is the same"
    narrow = from_folder(tmp_path / "wide", dtype="float16")
    assert narrow.decoder.weights_version != wide.decoder.weights_version
    torch.testing.assert_close(logits(narrow), logits(wide), atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("name", ["model.layers.2.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_one_changed_weight_is_another_version(tmp_path: Path, name: str) -> None:
    weights = tensors()
    before = from_folder(written(tmp_path / "a", weights)).decoder.weights_version
    weights[name].view(-1)[-1] += 1e-3
    assert from_folder(written(tmp_path / "b", weights)).decoder.weights_version != before


def test_every_fault_is_in_one_message(tmp_path: Path) -> None:
    weights = tensors()
    del weights["model.norm.weight"]
    weights["model.layers.0.mlp.down_proj.weight"] = torch.zeros(3, 4)
    weights["model.surprise"] = torch.zeros(2)
    weights["model.layers.1.mlp.up_proj.weight"] = weights["model.layers.1.mlp.up_proj.weight"].to(torch.int8)
    with pytest.raises(ModelFileError) as caught:
        from_folder(written(tmp_path / "m", weights))
    text = str(caught.value)
    assert "missing: model.norm.weight [48]" in text
    assert (
        "misshapen: model.layers.0.mlp.down_proj.weight is [3, 4] in model.safetensors, the config says [48, 72]"
        in text
    )
    assert "unexpected: model.surprise [2]" in text
    assert "not floats: model.layers.1.mlp.up_proj.weight is I8" in text


def test_what_old_checkpoints_store_twice_is_no_fault(tmp_path: Path) -> None:
    told = FAMILIES["qwen3"]
    weights = tensors(told)
    before = from_folder(written(tmp_path / "a", weights, told)).decoder.weights_version
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    assert from_folder(written(tmp_path / "b", weights, told)).decoder.weights_version == before


@pytest.mark.parametrize("damage", ["truncated", "header", "empty"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    folder = written(tmp_path / "m", tensors(), shards=2)
    file = folder / "model-1.safetensors"
    data = file.read_bytes()
    file.write_bytes({"truncated": data[:-1000], "header": b"\xff" * 16 + data[16:], "empty": b""}[damage])
    with pytest.raises(ModelFileError, match=r"model-1\.safetensors is truncated or corrupted"):
        from_folder(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", tensors(), shards=2)
    (folder / "model-0.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"model-0\.safetensors is missing"):
        from_folder(folder)


def test_an_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", tensors(), shards=2)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}))
    with pytest.raises(ModelFileError, match="outside its folder"):
        from_folder(folder)


def test_a_weight_that_is_no_number_is_named(tmp_path: Path) -> None:
    weights = tensors()
    weights["model.layers.1.self_attn.v_proj.weight"][0, 0] = float("nan")
    with pytest.raises(ModelFileError, match=r"model\.layers\.1\.self_attn\.v_proj\.weight holds NaN"):
        from_folder(written(tmp_path / "m", weights))


def test_pickled_weights_are_refused_unread(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "exploded",)

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError, match=r"pickled weights only \(pytorch_model\.bin\)"):
        from_folder(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"config\.json is missing"):
        from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(ModelFileError, match=r"holds no \*\.safetensors"):
        from_folder(tmp_path)
    with pytest.raises(ModelFileError, match=r"config\.json is missing"):
        from_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("{", ModelFileError, "is not JSON"),
        ("[]", ModelFileError, "a config is an object"),
        (
            json.dumps({**LLAMA, "hidden_size": "big"}),
            ModelFileError,
            "hidden_size must be a positive .*'big'",
        ),
        (json.dumps({**LLAMA, "num_key_value_heads": 4}), ModelFileError, "6 is no multiple of num_key_value_heads 4"),
        (json.dumps({**LLAMA, "head_dim": 15}), ModelFileError, "head_dim 15 must be even"),
        (json.dumps({**LLAMA, "hidden_act": "gelu"}), UnsupportedModel, "hidden_act 'gelu'"),
        (
            json.dumps({**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 2}}),
            UnsupportedModel,
            "rope_type 'yarn'",
        ),
        (json.dumps({**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 2}}), ModelFileError, "lacks low"),
        (
            json.dumps({**LLAMA, "architectures": ["GemmaForCausalLM"]}),
            UnsupportedModel,
            "GemmaForCausalLM is not",
        ),
    ],
)
def test_a_config_that_cannot_be_used_is_told_with_file_and_field(
    tmp_path: Path, text: str, error: type[Exception], match: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(error, match=match) as caught:
        read_config(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_weights_that_do_not_fit_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "m", tensors())
    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    with pytest.raises(NotEnoughMemory, match=r"needs 0\.0 GiB on cpu, 0\.0 GiB are available"):
        from_folder(folder)


def test_a_seed_makes_a_model_and_another_seed_another() -> None:
    assert tiny(1, **LLAMA).decoder.weights_version == tiny(1, **LLAMA).decoder.weights_version
    assert tiny(1, **LLAMA).decoder.weights_version != tiny(2, **LLAMA).decoder.weights_version


def test_a_model_without_tokenizer_says_so_when_one_is_needed() -> None:
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        tiny(**LLAMA).needs_tokenizer()


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype=int4 is unknown: take one of float32"):
        from_folder(written(tmp_path / "m", tensors()), dtype="int4")
