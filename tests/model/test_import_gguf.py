"""The packaged model becomes a folder like any other's, whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from model import import_gguf
from model.errors import ModelFileError
from model.tokenizer import MissingModelError, load_smollm2


def test_the_imported_model_answers(smollm2: Any) -> None:
    from support.serving import Server

    tokenizer = smollm2.needs_tokenizer()
    server = Server(smollm2.decoder)
    seq = server.sequence(tokenizer.chat([("user", "What is the capital of France? Answer in one sentence.")]))
    said: list[int] = []
    while not said or said[-1] not in smollm2.eos_ids:
        said.append(int(server.step((seq, len(seq.tokens) - seq.computed))[0][-1].argmax()))
        seq.tokens.append(said[-1])
    assert tokenizer.decode(said[:-1]) == "The capital of France is Paris."


def test_its_tokenizer_is_the_packaged_one(smollm2: Any) -> None:
    built, read = load_smollm2(), smollm2.needs_tokenizer()
    assert read.special_ids == built.special_ids
    assert read.vocab_size == built.vocab_size
    for text in ("Hello  world 2024\n\té日本 🙂", "a<|im_end|>b", "", "def f(x):\n    return x"):
        assert read.encode(text) == built.encode(text)
        assert read.encode(text, allow_special=True) == built.encode(text, allow_special=True)
        assert read.decode(read.encode(text)) == text
    chat = [("user", "Hi 42!"), ("assistant", "Hello."), ("user", "Bye.")]
    assert read.chat(chat) == built.chat(chat)
    assert set(read.eos_ids) <= set(built.eos_ids)


def test_the_import_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        file = import_gguf.smollm2_gguf()
    except MissingModelError as error:
        pytest.skip(str(error))

    def full(reader: Any, config: Any) -> Any:
        yield from ()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_gguf, "_tensors", full)
    with pytest.raises(OSError, match="No space"):
        import_gguf.import_gguf(file, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_gguf_is_named_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "x.gguf").write_bytes(b"no model")
    with pytest.raises(ModelFileError, match="no whole GGUF"):
        import_gguf.import_gguf(tmp_path / "x.gguf", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["import_gguf", str(tmp_path / "out"), "--gguf", str(tmp_path / "x.gguf")])
    assert import_gguf.main() == 2
    assert "x.gguf is no whole GGUF" in capsys.readouterr().err
