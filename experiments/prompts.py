"""Prompts from files: one a line, as JSON lines, or chats as JSON lines.

    prompts.txt     What is a KV cache?
    prompts.jsonl   {"prompt": "What is a KV cache?"}
    chats.jsonl     [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a KV cache?"}]

Knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from experiments.errors import UserError

T = TypeVar("T")


class PromptRow(msgspec.Struct):
    """One line of a .jsonl file of prompts."""

    prompt: str


class MessageRow(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str


def read_prompts(path: str | Path) -> list[str]:
    """Texts of a file, blank lines left out. Raises UserError naming file and line."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return [_decoded(path, number, line, PromptRow).prompt for number, line in _lines(path)]
    return _some(path, [line for _, line in _lines(path)])


def read_chats(path: str | Path) -> list[list[tuple[str, str]]]:
    """Chats of a file as (role, content) pairs. Raises UserError naming file and line.

    A role that the model's template does not know is found out later, when the chat is tokenised.
    """
    path = Path(path)
    rows = [_decoded(path, number, line, list[MessageRow]) for number, line in _lines(path)]
    return _some(path, [[(message.role, message.content) for message in chat] for chat in rows])


def _some(path: Path, found: list[T]) -> list[T]:
    if not found:
        raise UserError(f"{path} holds no prompts: every line is blank.")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise UserError(f"{path}, line {number}: no valid UTF-8 at byte {error.start}; save it as UTF-8.") from None
        if text:
            yield number, text


def _decoded(path: Path, number: int, line: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        form = '{"prompt": "..."}' if kind is PromptRow else '[{"role": "user", "content": "..."}]'
        raise UserError(f"{path}, line {number}: {error}. A line looks like {form}; mend or remove this one.") from None
