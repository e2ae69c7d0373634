"""Editing a prompt line by line gives the tokens of the whole text tokenised anew."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.profile.shown import show_token, visible
from experiments.profile.text import Edit, TokenText

SPECIAL = ["<|im_start|>", "<|im_end|>"]
PLAIN = "Hello_world_ _\n_\n\n_  _2026-11-30_12_é_日本_\t_don't_…_a_._\r\n_\n _🙂_x=1;"
WORDS = st.sampled_from([*PLAIN.split("_"), *SPECIAL])
TEXTS = st.lists(WORDS, max_size=25).map("".join)


@settings(max_examples=300)
@given(data=st.data())
def test_an_edited_prompt_is_the_edited_text_tokenised_anew(data, tokenizer, pieces):
    text = data.draw(TEXTS)
    prompt = TokenText(tokenizer.encode(text), pieces)
    assert prompt.text == text
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4, unique=True)))
    edits = [Edit(a, b, data.draw(TEXTS)) for a, b in zip(places[::2], places[1::2], strict=False)]
    whole, at = "", 0
    for edit in edits:
        whole, at = whole + text[at : edit.start] + edit.new, edit.stop
    whole += text[at:]
    edited = prompt.edited(edits)
    assert TokenText(edited, pieces).text == whole
    assert edited == tokenizer.encode(whole)


@given(TEXTS)
def test_characters_and_tokens_find_each_other(tokenizer, pieces, text):
    prompt = TokenText(tokenizer.encode(text), pieces)
    for token in range(len(prompt.ids)):
        char = prompt.char_of(token)
        assert prompt.token_of(char) <= token
        assert prompt.text[:char].encode() == b"".join(prompt.parts[:token])[: len(prompt.text[:char].encode())]
    assert prompt.token_of(len(text)) == len(prompt.ids)


@given(ids=st.lists(st.integers(17, 49151), max_size=12), cut=st.integers(0, 12))
def test_bytes_that_are_no_text_keep_their_places(tokenizer, pieces, ids, cut):
    prompt = TokenText(ids, pieces)
    token = min(cut, len(ids))
    before = b"".join(prompt.parts[:token])
    begun = prompt.text[: prompt.char_of(token)].encode("utf-8", "surrogateescape")
    assert before.startswith(begun)
    assert len(before) - len(begun) < 4, "at most a character that is cut"


def test_what_cannot_be_seen_is_named(pieces, tokenizer):
    assert visible("a\u200bb\u00a0c d\n") == "a⟨ZERO WIDTH SPACE⟩b⟨NO-BREAK SPACE⟩c·d↵"
    assert show_token(10**9, pieces) == "⟨1000000000⟩"
    first, *_ = tokenizer.encode("🙂")
    assert show_token(first, pieces).startswith("⟨F0")
    assert show_token(5, None) == "⟨5⟩"
