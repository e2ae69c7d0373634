"""Every tokenizer tells the bytes of its tokens, and all of them together are the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.errors import UserError
from experiments.tokenizer.json_file import JsonTokenizer
from experiments.tokenizer.opened import open_tokenizer
from experiments.tokenizer.pieces import byte_alphabet, byte_level, sentence_piece
from experiments.tokenizer.smollm2 import SmolLM2
from model.chat import ChatTemplate

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0xFFFF))
"""Bytes above 0xF0 are not in SmolLM2's vocabulary: such characters become its unknown token."""


@pytest.fixture(scope="module")
def smollm2() -> SmolLM2:
    try:
        return SmolLM2()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def same_from_json(smollm2, tmp_path_factory) -> JsonTokenizer:
    """SmolLM2 again, by way of a tokenizer.json."""
    folder = tmp_path_factory.mktemp("tokenizer")
    smollm2._inner.save(folder)
    return open_tokenizer(str(folder))


@given(text=TEXT)
def test_the_pieces_of_a_text_are_the_text(smollm2, text):
    assert b"".join(smollm2.piece(token) for token in smollm2.encode(text)).decode() == text


@given(text=TEXT)
def test_a_tokenizer_json_tells_the_same_as_the_tokenizer_it_was_saved_from(smollm2, same_from_json, text):
    ids = same_from_json.encode(text + "<|im_end|>")
    assert ids == smollm2.encode(text + "<|im_end|>")
    assert [same_from_json.piece(token) for token in ids] == [smollm2.piece(token) for token in ids]
    assert same_from_json.special == smollm2.special


def test_an_id_beyond_the_vocabulary_has_no_piece(smollm2, same_from_json):
    for tokenizer in (smollm2, same_from_json):
        assert tokenizer.piece(10**9) is None


def test_the_byte_alphabet_spells_every_byte_once():
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert byte_level("Ġa", alphabet) == b" a"
    assert byte_level("<|日|>", alphabet) == "<|日|>".encode()


def test_sentence_pieces_are_spaces_and_single_bytes():
    assert sentence_piece("▁the") == b" the"
    assert sentence_piece("<0xE2>") == b"\xe2"
    assert sentence_piece("<0xE2>x") == b"<0xE2>x"


def test_tools_and_tool_calls_are_written_with_their_keys_in_order(smollm2):
    ids = smollm2.chat(
        [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "a": 1}}]}],
        tools=[{"b": 1, "a": 2}],
    )
    text = b"".join(map(smollm2.piece, ids)).decode()
    assert '<tools>\n[{"b":1,"a":2}]\n</tools>' in text
    assert '<tool_call>\n{"name":"f","a":1}\n</tool_call>' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_a_template_beside_a_tokenizer_json_gets_tools_and_tool_calls_as_they_are(same_from_json):
    """SmolLM2's own template knows no tools, so another one is put beside the same vocabulary."""
    inner = same_from_json._inner
    template = (
        "{{ bos }}{{ tools | tojson }}{% for m in messages %}{{ m.role }}:{{ m.tool_calls | tojson }}{% endfor %}"
    )
    own, inner.template = inner.template, ChatTemplate(template, {"bos": "<|im_start|>"})
    try:
        ids = same_from_json.chat([{"role": "assistant", "tool_calls": [{"b": "é", "a": 1}]}], tools=[{"z": 1, "y": 2}])
        with pytest.raises(ValueError, match="cannot render"):
            same_from_json.chat([{"role": "user"}])
    finally:
        inner.template = own
    text = b"".join(map(same_from_json.piece, ids)).decode()
    assert text == '<|im_start|>[{"z": 1, "y": 2}]assistant:[{"b": "é", "a": 1}]'
    assert ids[0] == inner.special_ids["<|im_start|>"]


def test_a_broken_template_beside_a_tokenizer_json_is_named(smollm2, tmp_path):
    smollm2._inner.save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(UserError, match=r"tokenizer.json: the chat template is no jinja2, line 1"):
        open_tokenizer(str(tmp_path))
