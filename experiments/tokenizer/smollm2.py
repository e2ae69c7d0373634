"""SmolLM2's tokenizer and ChatML template: what PageLab uses where nothing else is asked for.

Tools, which its template does not know, are written into the system message as one JSON list between <tools> and
</tools>, and tool calls into theirs between <tool_call> and </tool_call>; keys keep the order in which they came.

Knows nothing of other models.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from experiments.errors import UserError
from experiments.tokenizer.base import Message, Tokenizer, Tools
from experiments.tokenizer.pieces import byte_alphabet, byte_level
from model.tokenizer import DEFAULT_SYSTEM, MissingModelError, SmolLM2Tokenizer, load_smollm2, smollm2_identity


class SmolLM2(Tokenizer):
    """Reads the vocabulary at the first use, which takes 2 s."""

    def __init__(self, loaded: SmolLM2Tokenizer | None = None) -> None:
        """`loaded`: one that is in memory already. Raises UserError where it is not installed."""
        try:
            self._inner = loaded or load_smollm2()
            self.identity = smollm2_identity()
        except MissingModelError as error:
            raise UserError(str(error)) from None
        self.special = {token: text for text, token in self._inner.special_ids.items()}
        self.bos_id = self._inner.special_ids.get("<|im_start|>")
        self._alphabet = byte_alphabet()

    def encode(self, text: str) -> list[int]:
        return self._inner.encode(text, allow_special=True)

    def chat(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        told = [(str(message["role"]), _text(message)) for message in messages]
        if tools:
            block = f"<tools>\n{msgspec.json.encode(list(tools)).decode()}\n</tools>"
            if told and told[0][0] == "system":
                told[0] = ("system", f"{told[0][1]}\n{block}")
            else:
                told.insert(0, ("system", f"{DEFAULT_SYSTEM}\n{block}"))
        return self._inner.chat(told)

    def piece(self, token: int) -> bytes | None:
        if token in self.special:
            return self.special[token].encode()
        spelled = self._inner.piece(token)
        return None if spelled is None else byte_level(spelled, self._alphabet)


def _text(message: Message) -> str:
    parts = [message["content"]] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        parts.append(f"<tool_call>\n{msgspec.json.encode(call.get('function', call)).decode()}\n</tool_call>")
    return "\n".join(parts)
