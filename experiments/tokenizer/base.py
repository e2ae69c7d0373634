"""What a study asks of a tokenizer: text to ids as a server would make them, and the bytes of every single id.

Knows nothing of prompts that share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
"""One message of a chat: `role`, `content` (text), and whatever else a template may ask for (`tool_calls`, `name`)."""
Tools = Sequence[Mapping[str, Any]]


class Tokenizer(ABC):
    """Text in, ids out. A special token written out in a text becomes its one id, as it does in a server's prompt."""

    identity: str
    """Names tokenizer and version, for records and for keys of remembered ids."""
    special: Mapping[int, str]
    """Id of every special token → how it is written."""
    bos_id: int | None
    """The token that some servers put in front of every prompt; None where the model has none."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text as it stands: nothing is put in front of it."""

    @abstractmethod
    def chat(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        """Ids of a chat in the model's template, up to and with the prompt to answer.

        Raises ValueError where the template does not take these messages, or there is none.
        """

    @abstractmethod
    def piece(self, token: int) -> bytes | None:
        """The bytes a token stands for (a special one: as it is written); None for an id the vocabulary lacks."""
