"""The same logits as transformers, which is the reference everybody else compares with."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from support.conf import MODELS
from support.serving import Server
from support.tiny_models import FAMILIES

from model.config import parse_config
from model.decoder import Decoder
from model.errors import UnsupportedModel

transformers = pytest.importorskip("transformers")
TOLERANCE = {"atol": 1e-4, "rtol": 1e-5}
"""In fp32: on SmolLM2 the logits reach 28, and transformers' own lie up to 0.9e-4 from those it computes in fp64."""


def reference(told: dict[str, Any], seed: int = 0) -> Any:
    """A random transformers model of this config, with weights large enough for attention to matter."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    kind = getattr(transformers, told["architectures"][0])
    config = kind.config_class(**{k: v for k, v in told.items() if k not in ("architectures", "model_type")})
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (1 if parameter.dim() == 1 else 0))
    return model


def ours(theirs: Any, told: dict[str, Any]) -> Decoder:
    state = theirs.state_dict()
    return Decoder(parse_config(told), lambda name: state[name].clone())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_model_has_the_logits_of_transformers(family: str) -> None:
    told = FAMILIES[family]
    theirs = reference(told)
    prompt = torch.randint(0, 97, (1, 150), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        wanted = theirs(prompt).logits[0]
    server = Server(ours(theirs, told), block_size=8)
    whole = server.prefill(server.sequence(prompt[0].tolist()))
    chunked = server.prefill(server.sequence(prompt[0].tolist()), 1, 30, 7, 64, 1)
    torch.testing.assert_close(whole, wanted, **TOLERANCE)
    torch.testing.assert_close(chunked, wanted, **TOLERANCE)


def test_the_config_that_transformers_writes_today_is_read(tmp_path: Any) -> None:
    for family, told in FAMILIES.items():
        written = reference(told).config.to_dict()
        read = parse_config(written | {"architectures": told["architectures"], "eos_token_id": None})
        assert read == parse_config(told), family


@pytest.fixture(scope="module")
def both(smollm2: Any, tmp_path_factory: Any) -> Any:
    """SmolLM2 by transformers, from the very folder that was imported."""
    from model.import_gguf import smollm2_folder

    folder = smollm2_folder(MODELS)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return smollm2, theirs


QUESTIONS = [
    "What is the capital of France?", "Write a haiku about rain.", "Count from one to ten.",
    "Explain gravity to a child.",
    "Name three primary colours.", "What is 12 times 12?", "Tell me about penguins.", "Why is the sky blue?",
]  # fmt: skip


def test_smollm2_has_the_logits_of_transformers(both: Any) -> None:
    model, theirs = both
    prompt = model.tokenizer.chat([("user", " ".join(QUESTIONS))])
    with torch.inference_mode():
        wanted = theirs(torch.tensor([prompt])).logits[0]
    server = Server(model.decoder, 64)
    torch.testing.assert_close(server.prefill(server.sequence(prompt), 17), wanted, **TOLERANCE)


def test_smollm2_says_greedily_what_transformers_says_for_128_tokens(both: Any) -> None:
    model, theirs = both
    prompts = [model.tokenizer.chat([("user", question)]) for question in QUESTIONS]
    server = Server(model.decoder, 200)
    seqs = [server.sequence(prompt) for prompt in prompts]
    last = server.step(*((seq, len(seq.tokens)) for seq in seqs))
    for _ in range(128):
        for seq, logits in zip(seqs, last, strict=True):
            seq.tokens.append(int(logits[-1].argmax()))
        last = server.step(*((seq, 1) for seq in seqs))
    for seq, prompt in zip(seqs, prompts, strict=True):
        with (
            torch.inference_mode()
        ):  # fed our text, its choice after every token of it: equal one by one, so equal in all
            choices = theirs(torch.tensor([seq.tokens[:-1]])).logits[0].argmax(-1)
        assert seq.tokens[len(prompt) :] == choices[len(prompt) - 1 :].tolist()


def test_an_unsupported_architecture_is_refused_with_the_list_of_those_that_are() -> None:
    with pytest.raises(UnsupportedModel, match="GPT2LMHeadModel is not supported; supported are LlamaForCausalLM"):
        parse_config({"architectures": ["GPT2LMHeadModel"]})
