"""A user's own jsonl: read as it is meant, or refused with the line, the field and what to do."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from cache.extra_keys import ExtraKeys
from experiments.errors import UserError
from experiments.workload.mine import Mine

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def complaint(path, **options):
    with pytest.raises(UserError) as caught:
        list(Mine(str(path), **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_texts_chats_and_ids_become_the_tokens_a_server_would_make(write, cache_dir, smollm2):
    texts = [{"text": "Hello<|im_end|>", "timestamp": 3.5}, {"prompt": "Bye", "timestamp": 4, "output_tokens": 7}]
    one, two = Mine(write(*texts), cache_dir=cache_dir)
    assert one.tokens.tolist() == [*smollm2.encode("Hello"), smollm2.special_ids["<|im_end|>"]]
    assert (one.arrival, two.arrival, two.num_output_tokens) == (0.0, 0.5, 7)
    (chat,) = Mine(write(CHAT, name="chats"), cache_dir=cache_dir)
    assert chat.tokens.tolist() == smollm2.chat([("user", "Hi")])
    ids = [{"token_ids": [5, 6]}, {"prompt": [7]}]
    assert [request.tokens.tolist() for request in Mine(write(*ids, name="ids"))] == [[5, 6], [7]]


def test_content_in_parts_is_joined_and_tools_come_in_the_system_message(write, cache_dir, smollm2):
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}
    assert next(iter(Mine(write(parts), cache_dir=cache_dir))).tokens.tolist() == smollm2.chat([("user", "ab")])
    tools = {**CHAT, "tools": [{"name": "f", "b": 1, "a": 2}]}
    (request,) = Mine(write(tools, name="tools"), cache_dir=cache_dir)
    assert '<tools>\n[{"name":"f","b":1,"a":2}]\n</tools>' in smollm2.decode(request.tokens.tolist())


def test_sessions_count_their_turns_and_tenants_split_the_cache(write):
    rows = [{"token_ids": [1], "session": "a"}, {"token_ids": [1], "session": 7}, {"token_ids": [1], "session": "a"}]
    assert [(r.session, r.turn) for r in Mine(write(*rows))] == [("a", 0), ("7", 0), ("a", 1)]
    (request,) = Mine(write({"token_ids": [1], "tenant": "t", "lora": "l"}, name="t"))
    assert request.extra_keys == ExtraKeys(lora="l", tenant="t")


@pytest.mark.parametrize(("field", "other"), [("lora", "tenant"), ("tenant", "lora")])
def test_an_empty_tenant_or_adapter_is_none_whatever_the_other_is(write, field, other):
    lines = [more | {"token_ids": [1]} for given in ({}, {other: "x"}) for more in (given, {**given, field: ""})]
    keys = [request.extra_keys for request in Mine(write(*lines, name="e"))]
    assert keys == [ExtraKeys(), ExtraKeys(), ExtraKeys(**{other: "x"}), ExtraKeys(**{other: "x"})]


def test_a_folder_is_read_in_order_of_names_and_blamed_by_file(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"token_ids": [2]}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"token_ids": [1]}\n'))
    (tmp_path / "notes.txt").write_text("no jsonl")
    assert [r.tokens.tolist() for r in Mine(str(tmp_path))] == [[1], [2]]
    before = Mine(str(tmp_path)).fingerprint()
    (tmp_path / "b.jsonl").write_text('{"token_ids": [3]}\n')
    assert Mine(str(tmp_path)).fingerprint() != before
    (tmp_path / "b.jsonl").write_text('{"token_ids": "2"}\n')
    assert "b.jsonl, line 1" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "this one is empty"),
        ({"tokens": [1]}, "did you mean `token_ids`?"),
        ({"Text": "x"}, "did you mean `text`?"),
        ({"model": "m", "temperature": 0}, "this one has `model`, `temperature`"),
        ({"text": "x", "token_ids": [1]}, "got `text` and `token_ids`"),
        ({"text": 3}, r"\$.text"),
        ({"token_ids": [1, "2"]}, r"\$.token_ids"),
        ({"token_ids": [1, -2]}, "int32"),
        ({"token_ids": [2**31]}, "int32"),
        ({"token_ids": [2**80]}, "int32"),
        ({"token_ids": []}, "the prompt is empty"),
        ({"text": ""}, "workload.skip_empty=true"),
        ({"messages": []}, "the prompt is empty"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url'"),
        ({"token_ids": [1], "timestamp": -1}, "timestamp"),
        ("[1]", "expected `object`|Expected `object`"),
        ("{", "truncated"),
        ('{"text": "\\ud800"}', ""),
    ],
    ids=str,
)
def test_a_wrong_line_is_told_with_its_number_and_field(write, row, words):
    message = complaint(write({"token_ids": [1]}, row))
    assert "line 2" in message
    assert re.search(words, message)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xef\xbb\xbf" + b'{"token_ids": [1]}\n', "byte order mark"),
        ('{"token_ids": [1]}\n'.encode("utf-16"), "iconv -f UTF-16"),
        ('{"text": "caf\xe9"}\n'.encode("latin-1"), "byte 13 of the line, 0xe9, is no UTF-8.*iconv -f LATIN1"),
        (b"PK\x03\x04 a spreadsheet", "malformed"),
        (b"Just my prompt", r"malformed.*; a line here looks like \{\"text\": .*\"messages\": .*\"token_ids\": "),
        (b'["a prompt"]', r"got `array`; a line here looks like \{\"text\""),
    ],
    ids=["byte order mark", "UTF-16", "Latin-1", "binary", "plain text", "a list"],
)
def test_another_encoding_is_named_with_its_cure(tmp_path, data, words):
    (tmp_path / "x.jsonl").write_bytes(data)
    assert re.search(words, complaint(tmp_path / "x.jsonl"))


def test_kinds_are_not_mixed_within_a_file_or_folder(write, tmp_path):
    message = complaint(write({"token_ids": [1]}, {"text": "x"}))
    assert "line 2: the line holds `text`, but trace, line 1 holds `token_ids`" in message


def test_empty_prompts_are_left_out_and_counted_on_request(write):
    mine = Mine(write({"token_ids": []}, {"token_ids": [1]}, {"token_ids": []}), skip_empty=True)
    assert len(list(mine)) == 1
    assert mine.num_empty == 2


def test_a_file_has_one_fingerprint_whether_or_not_empty_prompts_would_be_left_out(write):
    path = write({"token_ids": [1]}, {"token_ids": [2, 3]})
    assert Mine(path, skip_empty=True).fingerprint() == Mine(path).fingerprint()


def test_a_missing_file_and_an_empty_folder_are_told_without_talk_of_downloads(tmp_path):
    assert "does not exist: check the path" in complaint(tmp_path / "absent.jsonl")
    assert "holds no file named *.jsonl" in complaint(tmp_path)
    (tmp_path / "x.jsonl").write_text("\n")
    assert "holds no request: write it anew" in complaint(tmp_path / "x.jsonl")


def test_an_unknown_tokenizer_is_refused_and_nothing_is_downloaded(write, tmp_path):
    assert "tokenizer=gpt-99 is unknown" in complaint(write({"text": "x"}), tokenizer="gpt-99")
    (tmp_path / "tokenizer.json").write_text("{}")
    told = complaint(write({"text": "x"}), tokenizer=str(tmp_path))
    assert f"{tmp_path / 'tokenizer.json'} is no tokenizer" in told
    assert "Name the file tokenizer.json of a model" in told


def test_any_tokenizer_json_with_its_chat_template_is_used(write, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocab = {"[UNK]": 0, "<s>": 1, "user": 2, "hi": 3, "4": 4}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(["<s>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    template = "{{ bos_token }}{% for m in messages %} {{ m.role }} {{ m.content }}{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "chat_template": template}))
    chat = {"messages": [{"role": "user", "content": "hi hi"}]}
    (request,) = Mine(write(chat), tokenizer=str(tmp_path), cache_dir=str(tmp_path))
    assert request.tokens.tolist() == [1, 2, 3, 3]
    evil = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": evil}))
    told = complaint(write(chat), tokenizer=str(tmp_path / "tokenizer.json"), cache_dir=str(tmp_path / "b"))
    assert "line 1: the chat template tried what" in told
    assert "is unsafe" in told
    (tmp_path / "tokenizer_config.json").unlink()
    assert "no chat template" in complaint(write(chat), tokenizer=str(tmp_path), cache_dir=str(tmp_path / "c"))
