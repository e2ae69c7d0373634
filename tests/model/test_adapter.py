"""Low-rank adapters: merged they are the formula, unmerged they leave no trace, renamed content is new content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.serving import Server
from support.tiny_models import FAMILIES

from model.adapter import Adapter, AdapterSwitch
from model.errors import ModelFileError
from model.pretrained import tiny

Q, UP = "model.layers.1.self_attn.q_proj", "model.layers.2.mlp.up_proj"


def adapter(seed: int = 0, name: str = "a", scale: float = 2.0) -> Adapter:
    g = torch.Generator().manual_seed(seed)

    def factors(out: int, inp: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(4, inp, generator=g) * 0.2, torch.randn(out, 4, generator=g) * 0.2

    return Adapter(name, {Q: factors(96, 48), UP: factors(72, 48)}, scale)


def logits(decoder: Any) -> torch.Tensor:
    server = Server(decoder)
    return server.prefill(server.sequence(range(30)))


def test_a_merged_adapter_is_the_formula_and_touches_nothing_else() -> None:
    decoder, plain = tiny(**FAMILIES["llama"]).decoder, tiny(**FAMILIES["llama"]).decoder
    lora = adapter()
    AdapterSwitch(decoder).switch(lora)
    for name, (linear, start, stop) in decoder.matrices().items():
        base, first, last = plain.matrices()[name]
        wanted = base.dense[first:last]
        if name in lora.factors:
            a, b = lora.factors[name]
            wanted = wanted + 2.0 * b @ a
        torch.testing.assert_close(linear.dense[start:stop], wanted)


def test_going_back_restores_every_bit() -> None:
    decoder = tiny(**FAMILIES["llama"]).decoder
    before, switch = logits(decoder), AdapterSwitch(decoder)
    switch.switch(adapter(0))
    first = logits(decoder)
    switch.switch(adapter(1))
    assert not torch.equal(logits(decoder), first)
    switch.switch(adapter(0))
    assert torch.equal(logits(decoder), first), "another adapter in between leaves no trace"
    switch.switch(None)
    assert torch.equal(logits(decoder), before)
    assert not torch.equal(first, before)


def test_the_key_is_name_and_content() -> None:
    assert adapter(0).key == adapter(0).key
    assert adapter(0).version != adapter(1).version
    assert adapter(0, scale=1.0).version != adapter(0).version
    assert adapter(0, "b").key != adapter(0).key
    assert adapter(0, "b").version == adapter(0).version


def test_an_adapter_that_does_not_fit_changes_nothing() -> None:
    decoder = tiny(**FAMILIES["llama"]).decoder
    before, switch = logits(decoder), AdapterSwitch(decoder)
    with pytest.raises(ValueError, match=r"has no projection model\.layers\.9\.mlp\.up_proj"):
        switch.switch(Adapter("x", {"model.layers.9.mlp.up_proj": adapter().factors[UP]}))
    with pytest.raises(ValueError, match=r"needs A \[rank, 48\] and B \[96, rank\], got \[4, 48\] and \[72, 4\]"):
        switch.switch(Adapter("x", {Q: adapter().factors[UP]}))
    assert torch.equal(logits(decoder), before)
    assert switch.active is None


def test_pefts_folder_is_read(tmp_path: Path) -> None:
    lora = adapter()
    tensors = {}
    for name, (a, b) in lora.factors.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.contiguous()
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelFileError, match=r"adapter_config\.json is missing"):
        Adapter.from_folder(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8}))
    assert Adapter.from_folder(tmp_path, "a").key == lora.key
    save_file({**tensors, "strange": torch.zeros(1)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelFileError, match="not strange"):
        Adapter.from_folder(tmp_path)
