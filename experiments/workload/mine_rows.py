"""One line of a user's own jsonl: a text, a chat or token ids, and what else is known of the request.

Exactly one of `text`, `prompt` (a text or token ids), `messages`, `token_ids`; everything else is optional. Fields of
other names are ignored, since logs have many.

Knows nothing of files or tokenizers.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import msgspec

from experiments.workload.rows import Count, Time

KINDS = ("text", "messages", "token_ids")
SAID = "each line needs one of `text`, `prompt`, `messages` or `token_ids`"


class Part(msgspec.Struct):
    """One part of a message's content, as some APIs split it."""

    type: str
    text: str | None = None


class Message(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    name: str | None = None
    tool_call_id: str | None = None


class Row(msgspec.Struct):
    """One line. `timestamp` in seconds; `tenant` and `lora` split the cache as a server's salts and adapters do."""

    text: str | None = None
    prompt: str | list[int] | None = None
    messages: list[Message] | None = None
    token_ids: list[int] | None = None
    tools: list[dict[str, Any]] | None = None
    timestamp: Time = 0.0
    output_tokens: Count = 0
    session: str | int | None = None
    turn: Count | None = None
    category: str | None = None
    tenant: str | None = None
    lora: str | None = None


def prompt_of(row: Row, line: bytes) -> tuple[str, Any]:
    """(kind of KINDS, text, messages as plain dicts, or ids). Raises ValueError saying what the line lacks."""
    given = {key: getattr(row, key) for key in ("text", "prompt", "messages", "token_ids")}
    given = {key: value for key, value in given.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"{SAID}, got {' and '.join(f'`{key}`' for key in given)}")
    if not given:
        raise ValueError(f"{SAID}{_found(line)}")
    ((key, value),) = given.items()
    if key == "messages":
        return "messages", [_plain(message, index) for index, message in enumerate(value)]
    return ("text" if isinstance(value, str) else "token_ids"), value


def _plain(message: Message, index: int) -> dict[str, Any]:
    content = message.content
    if isinstance(content, list):
        odd = [part.type for part in content if part.text is None]
        if odd:
            raise ValueError(f"`messages[{index}].content` has a part of type {odd[0]!r}: only text can be tokenised")
        content = "".join(part.text or "" for part in content)
    told = {"role": message.role, "content": content or ""}
    more = {key: getattr(message, key) for key in ("tool_calls", "name", "tool_call_id")}
    return told | {key: value for key, value in more.items() if value is not None}


def _found(line: bytes) -> str:
    fields = list(msgspec.json.decode(line))
    if not fields:
        return ", but this one is empty"
    wanted = ("text", "prompt", "messages", "token_ids")
    for field in fields:
        for close in get_close_matches(field.lower(), wanted, 1, 0.6):
            return f", but this one has `{field}` (did you mean `{close}`?)"
    return f", but this one has {', '.join(f'`{field}`' for field in fields[:8])}"
