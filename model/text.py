"""Text to token ids and back, for any model whose folder has a `tokenizer.json`.

Text never turns into a special token unless asked to: what a user types cannot end a message or open another.

Knows nothing of weights or caches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.chat import ChatTemplate, Message
from model.errors import ChatError, ModelFileError

if TYPE_CHECKING:
    import tokenizers

TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


class Tokenizer:
    """A `tokenizers` model with its special tokens and chat template."""

    def __init__(
        self,
        bpe: tokenizers.Tokenizer,
        special_ids: Mapping[str, int],
        eos_ids: Sequence[int],
        chat_template: str | None = None,
        bos_ids: Sequence[int] = (),
        template_variables: Mapping[str, str] | None = None,
    ) -> None:
        """`special_ids`: piece → id of those no text yields; `bos_ids`: what opens a prompt that is no chat."""
        self.bpe = bpe
        self.special_ids = dict(special_ids)
        self.eos_ids = tuple(eos_ids)
        self.bos_ids = tuple(bos_ids)
        self.chat_template = chat_template
        self.vocab_size: int = bpe.get_vocab_size()
        self.template = ChatTemplate(chat_template, template_variables) if chat_template is not None else None
        self.template_variables = dict(template_variables or {})
        self._special = re.compile("|".join(map(re.escape, self.special_ids))) if self.special_ids else None

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Ids of `text`. With `allow_special`, a special token written out in it becomes its one id.

        Raises ValueError for text that is no Unicode (a lone surrogate, as undecodable bytes leave behind).
        """
        self.bpe.encode_special_tokens = not allow_special
        try:
            ids: list[int] = self.bpe.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError):
            at = _lone_surrogate(text)
            raise ValueError(f"text is not valid Unicode at character {at}: decode it as UTF-8") from None
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens written out. Bytes that are no UTF-8 become U+FFFD."""
        text: str = self.bpe.decode(list(ids), skip_special_tokens=False)
        return text

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary spells it, mostly in GPT-2's byte alphabet; None for an id it lacks."""
        spelled: str | None = self.bpe.id_to_token(token) if 0 <= token < self.vocab_size else None
        return spelled

    def prompt(self, text: str) -> list[int]:
        """Ids of a prompt that is no chat, with whatever the model expects in front."""
        return [*self.bos_ids, *self.encode(text)]

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """Ids of a chat as the model's template writes it.

        Raises ChatError for an unknown role, a template that is missing or fails, or content that writes out a special
        token (it could forge a message).
        """
        if self.template is None:
            raise ChatError("this model has no chat template: give plain text prompts, or token ids")
        for i, (role, content) in enumerate(messages):
            found = self._special.search(content) if self._special and isinstance(content, str) else None
            if found:
                raise ChatError(f"message {i} ({role}) writes out the special token {found[0]!r}: take it out")
        return self.encode(self.template.render(messages, add_generation_prompt), allow_special=True)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and, if there is one, `chat_template.jinja`."""
        self.bpe.save(str(folder / TOKENIZER))
        pieces = {token_id: piece for piece, token_id in self.special_ids.items()}
        settings: dict[str, Any] = {"eos_token": pieces.get(self.eos_ids[0]) if self.eos_ids else None}
        if self.bos_ids:
            settings |= {"bos_token": pieces.get(self.bos_ids[0]), "add_bos_token": True}
        (folder / SETTINGS).write_text(json.dumps(settings, ensure_ascii=False, indent=2) + "\n", "utf-8")
        if self.chat_template is not None:
            (folder / TEMPLATE).write_text(self.chat_template, "utf-8")


def load_tokenizer(folder: Path, eos_ids: Sequence[int] = (), name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer of a model's folder; `eos_ids` of its config, if that names any, end a text; `name` of its file.

    Raises ModelFileError where the file is missing or broken, ChatError for a broken template.
    """
    from tokenizers import Tokenizer as Bpe

    path = folder / name
    if not path.is_file():
        raise ModelFileError(f"{path} is missing: this model has no tokenizer, give prompts as token ids")
    try:
        bpe = Bpe.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileError(f"{path} is no tokenizer ({error}): fetch the file again") from None
    settings = _settings(folder / SETTINGS)
    special = {token.content: i for i, token in bpe.get_added_tokens_decoder().items() if token.special}
    variables = {name: _content(settings.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    ends = tuple(eos_ids) or tuple(i for piece, i in special.items() if piece == variables["eos_token"])
    bos = variables["bos_token"]
    opens = [special[bos]] if settings.get("add_bos_token") and bos in special else []
    template = folder / TEMPLATE
    source = template.read_text("utf-8") if template.is_file() else settings.get("chat_template")
    return Tokenizer(bpe, special, ends, source if isinstance(source, str) else None, opens, variables)


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON ({error}): fetch the file again") from None
    return settings if isinstance(settings, dict) else {}


def _content(token: Any) -> str:
    """A token as tokenizer_config.json names it: its text, or an object that holds it."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _lone_surrogate(text: str) -> int:
    return next((i for i, c in enumerate(text) if 0xD800 <= ord(c) <= 0xDFFF), 0)
