"""Any model's tokenizer from its `tokenizer.json`, with the chat template beside it: `model.text`, for studies.

Knows nothing of any one model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from experiments.errors import UserError
from experiments.tokenizer.base import Message, Tokenizer, Tools
from experiments.tokenizer.pieces import byte_alphabet, byte_level, sentence_piece
from model.errors import ChatError, ModelFileError
from model.text import load_tokenizer


class JsonTokenizer(Tokenizer):
    """A file in the format of the `tokenizers` library."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the file cannot be read as a tokenizer, or what lies beside it is broken."""
        try:
            self._inner = load_tokenizer(path.parent, name=path.name)
        except ImportError:
            raise UserError("reading a tokenizer.json needs the package tokenizers: pip install tokenizers") from None
        except (ModelFileError, ChatError) as error:
            raise UserError(f"{path}: {error}. Name the file tokenizer.json of a model.") from None
        text = path.read_text("utf-8")
        told = json.loads(text)
        self.identity = f"{path.name}/{sha256(text.encode()).hexdigest()}/tokenizers=={version('tokenizers')}"
        self.special = {token: piece for piece, token in self._inner.special_ids.items()}
        self.bos_id = self._inner.special_ids.get(self._inner.template_variables.get("bos_token", ""))
        self._byte_level = "ByteLevel" in json.dumps([told.get("decoder"), told.get("pre_tokenizer")])
        self._alphabet = byte_alphabet()

    def encode(self, text: str) -> list[int]:
        return self._inner.encode(text, allow_special=True)

    def chat(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        if self._inner.template is None:
            raise ValueError(
                "the tokenizer has no chat template beside it (chat_template.jinja, or chat_template in "
                "tokenizer_config.json)"
            )
        return self.encode(self._inner.template.fill(messages, tools))

    def piece(self, token: int) -> bytes | None:
        if token in self.special:
            return self.special[token].encode()
        spelled = self._inner.piece(token)
        if spelled is None:
            return None
        return byte_level(spelled, self._alphabet) if self._byte_level else sentence_piece(spelled)
