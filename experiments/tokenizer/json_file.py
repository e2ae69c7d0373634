"""Any model's tokenizer from its `tokenizer.json`, with the chat template that lies beside it.

The template is a program that came with the model; it runs in jinja's sandbox, without access to anything but the
messages. Looked for, in this order: `chat_template.jinja`, `chat_template` in `tokenizer_config.json`.

Knows nothing of any one model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from experiments.errors import UserError
from experiments.tokenizer.base import Message, Tokenizer, Tools
from experiments.tokenizer.pieces import byte_alphabet, byte_level, sentence_piece


class JsonTokenizer(Tokenizer):
    """A file in the format of the `tokenizers` library."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the file cannot be read as a tokenizer."""
        try:
            import tokenizers
        except ImportError:
            raise UserError("reading a tokenizer.json needs the package tokenizers: pip install tokenizers") from None
        try:
            text = path.read_text("utf-8")
            self._inner = tokenizers.Tokenizer.from_str(text)
            told = json.loads(text)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}. Name the file tokenizer.json of a model.") from None
        except Exception as error:  # the library raises plain Exception for a file it cannot read
            raise UserError(f"{path} is no tokenizer.json ({error}). Name that file of a model.") from None
        self.identity = f"{path.name}/{sha256(text.encode()).hexdigest()}/tokenizers=={tokenizers.__version__}"
        added = [token for token in told.get("added_tokens") or () if token.get("special")]
        self.special = {token["id"]: token["content"] for token in added}
        self._byte_level = "ByteLevel" in json.dumps([told.get("decoder"), told.get("pre_tokenizer")])
        self._alphabet = byte_alphabet()
        self._config = _config(path.parent)
        bos = _written(self._config.get("bos_token"))
        self.bos_id = next((token for token, text in self.special.items() if text == bos), None)
        self._template = _template(path.parent, self._config)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def chat(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        if self._template is None:
            raise ValueError(
                "the tokenizer has no chat template beside it (chat_template.jinja, or chat_template in "
                "tokenizer_config.json)"
            )
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        written = {key: _written(self._config.get(key)) or "" for key in ("bos_token", "eos_token")}
        try:
            text = environment.from_string(self._template).render(
                messages=list(messages), tools=list(tools) or None, add_generation_prompt=True, **written
            )
        except (TemplateError, TypeError, KeyError) as error:
            raise ValueError(f"the chat template does not take these messages: {error}") from None
        return self.encode(text)

    def piece(self, token: int) -> bytes | None:
        if token in self.special:
            return self.special[token].encode()
        spelled = self._inner.id_to_token(token)
        if spelled is None:
            return None
        return byte_level(spelled, self._alphabet) if self._byte_level else sentence_piece(spelled)


def _config(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    try:
        return (folder / "chat_template.jinja").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        told = config.get("chat_template")
        return told if isinstance(told, str) else None


def _written(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    """Plain JSON with keys in their order: jinja's own would sort and escape them."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise TemplateError(message)
