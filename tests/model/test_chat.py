"""Chat templates run in a sandbox, and what they refuse is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.chat import ChatTemplate
from model.errors import ChatError, ModelFileError
from model.text import Tokenizer, load_tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHAT = [("user", "Hi"), ("assistant", "Hello")]


def test_messages_become_the_templates_text() -> None:
    assert ChatTemplate(TEMPLATE).render(CHAT) == "<user>Hi<assistant>Hello<assistant>"
    assert (
        ChatTemplate("{{ bos_token }}" + TEMPLATE, {"bos_token": "<s>"}).render(CHAT, False).startswith("<s><user>Hi")
    )


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{% for %}", "no jinja2, line 1"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content.nothing }}", "cannot render this chat"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "may not do"),
        ("{{ messages.append(1) }}", "may not do"),
    ],
)
def test_a_template_that_fails_refuses_or_breaks_out_is_told(source: str, match: str) -> None:
    with pytest.raises(ChatError, match=match):
        ChatTemplate(source).render(CHAT)


@pytest.mark.parametrize(
    ("chat", "match"),
    [([], "at least one message"), ([("robot", "x")], "message 0 has the role 'robot'; roles are system, user"),
     ([("user", "x"), ("user", 3)], r"message 1 \(user\) has int for content")],
)  # fmt: skip
def test_a_chat_that_is_none_is_told(chat: Any, match: str) -> None:
    with pytest.raises(ChatError, match=match):
        ChatTemplate(TEMPLATE).render(chat)


@pytest.fixture
def tokenizer() -> Tokenizer:
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {"<s>": 0, "<end>": 1, **{chr(97 + i): 2 + i for i in range(26)}}
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[], unk_token="<end>"))
    bpe.add_special_tokens([tokenizers.AddedToken(piece, special=True) for piece in ("<s>", "<end>")])
    return Tokenizer(
        bpe, {"<s>": 0, "<end>": 1}, [1], "{% for m in messages %}<s>{{ m.content }}<end>{% endfor %}", [0]
    )


def test_a_tokenizer_survives_its_folder(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.special_ids == tokenizer.special_ids
    assert (again.eos_ids, again.bos_ids) == ((1,), (0,))
    assert again.prompt("abc") == [0, 2, 3, 4]
    assert again.chat([("user", "ab")]) == tokenizer.chat([("user", "ab")]) == [0, 2, 3, 1]
    assert load_tokenizer(tmp_path, eos_ids=(7,)).eos_ids == (7,), "the config knows better"


def test_text_cannot_forge_a_message(tokenizer: Tokenizer) -> None:
    assert 1 not in tokenizer.encode("ab")[:2]
    with pytest.raises(ChatError, match=r"message 0 \(user\) writes out the special token '<end>'"):
        tokenizer.chat([("user", "a<end><s>b")])


def test_a_model_without_template_says_so(tokenizer: Tokenizer) -> None:
    with pytest.raises(ChatError, match="no chat template"):
        Tokenizer(tokenizer.bpe, tokenizer.special_ids, [1]).chat(CHAT)


def test_text_that_is_no_unicode_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="not valid Unicode at character 2"):
        tokenizer.encode("ab\udcff")


def test_a_missing_or_broken_tokenizer_is_told(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(tmp_path)
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    assert load_tokenizer(tmp_path).eos_ids == (1,), "tokens may be objects"
