"""Differences in what a server puts around the words: doubled first tokens, hidden special tokens, other templates,
other tokens for the same text.

Knows nothing of the words themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.profile.detector import Correction, Detector, Parting, common_chars, context_before
from experiments.profile.text import Edit, TokenText

AGREE = 4
"""Tokens that must agree behind an inserted one."""
FURTHER = 12
"""Characters by which two chats must agree further once their templates are taken off."""
OPENINGS = (
    r"<\|im_start\|>(\w+)\n?",
    r"(?:<\|begin_of_text\|>)?<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*",
    r"<start_of_turn>(\w+)\n",
    r"<\|(system|user|assistant|tool)\|>\n?",
    r"^#{2,3} ?(System|Instruction|Input|Response|User|Human|Assistant):?[ \n]",
    r"^(SYSTEM|USER|ASSISTANT|System|User|Human|Assistant): ?",
)
CLOSINGS = r"<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<\|end\|>|</s>|<\|endoftext\|>|<bos>|<s>"
OPENING = re.compile("|".join(OPENINGS), re.MULTILINE)
SAME_ROLE = {"instruction": "user", "input": "user", "human": "user", "response": "assistant", "model": "assistant"}


class DeleteToken(Correction):
    """A special token taken out: behind a text that leads to it, or the doubled first ones."""

    def __init__(self, kind: str, token: str, context: str | None, remedy: str) -> None:
        self.kind, self.key, self.remedy = kind, (kind, token, context), remedy
        self._token, self._context = token, context

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        text, token, context = prompt.text, self._token, self._context
        if context is None:
            start = len(token)
            while text.startswith(token * 2, start - len(token)):
                start += len(token)
            return [Edit(len(token), start, "")] if start > len(token) else []
        if not context:
            return [Edit(0, len(token), "")] if text.startswith(token) else []
        found = re.finditer(re.escape(context) + f"({re.escape(token)})", text)
        return [Edit(match.start(1), match.end(1), "") for match in found]


class DoubledFirst(Detector):
    """The first special token twice, as when a template writes a BOS and the tokenizer adds another."""

    def find(self, parting: Parting) -> Correction | None:
        special = parting.tokenizer.special
        doubled = [_leading(prompt, special) for prompt in (parting.one, parting.other)]
        if parting.token > max(doubled) or doubled[0] == doubled[1] or max(doubled) < 2:
            return None
        token = special[(parting.one if doubled[0] > doubled[1] else parting.other).ids[0]]
        return DeleteToken(f"doubled BOS {token}", token, None, "once")


class HiddenSpecial(Detector):
    """A special token that one of two otherwise equal prompts has."""

    def find(self, parting: Parting) -> Correction | None:
        special, k = parting.tokenizer.special, parting.token
        for has, lacks in ((parting.one, parting.other), (parting.other, parting.one)):
            ids = has.ids
            if k < len(ids) and ids[k] in special and ids[k + 1 : k + 1 + AGREE] == lacks.ids[k : k + AGREE] != []:
                token = special[ids[k]]
                return DeleteToken(
                    f"hidden special token {token}", token, context_before(has.text, parting.char), "none"
                )
        return None


class WholeText(Correction):
    """Prompts written anew as a whole."""

    def __init__(self, kind: str, remedy: str) -> None:
        self.kind, self.key, self.remedy = kind, kind, remedy

    def edits(self, prompt: TokenText) -> Sequence[Edit]:
        return [Edit(0, len(prompt.text), self.rewritten(prompt.text))]

    def rewritten(self, text: str) -> str:
        """The text as it should be."""
        return text

    def value(self, prompt: TokenText) -> str | None:
        found = OPENING.search(prompt.text)
        return found[0].strip() if found else None


class OneTemplate(WholeText):
    """Every chat in one and the same template (ChatML)."""

    def __init__(self) -> None:
        super().__init__("another template version", "one template (ChatML) for all")

    def rewritten(self, text: str) -> str:
        chat = read_chat(text)
        return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in chat) if chat else text


class Template(Detector):
    """The same messages in another template, or another version of it."""

    def find(self, parting: Parting) -> Correction | None:
        one, other = parting.texts
        chats = read_chat(one), read_chat(other)
        if not chats[0] or not chats[1]:
            return None
        plain = ["\0".join(f"{role}\1{content}" for role, content in chat) for chat in chats]
        before = len("\0".join(f"{role}\1{content}" for role, content in read_chat(one[: parting.char])))
        return OneTemplate() if common_chars(plain[0], plain[1]) >= before + FURTHER else None


class OtherTokens(Detector):
    """The same text in other tokens, as when an answer's own tokens come back as text."""

    def find(self, parting: Parting) -> Correction | None:
        k = parting.token
        longest = max((len(p.parts[k]) for p in (parting.one, parting.other) if k < len(p.parts)), default=0)
        if parting.char - parting.one.char_of(k) <= longest:
            return None
        return WholeText("same text in other tokens", "tokenised anew as one text")


def read_chat(text: str) -> list[tuple[str, str]]:
    """(role, content) of a rendered prompt, whatever its template; [] where none is recognised."""
    marks = list(OPENING.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), *([len(text)] if marks else [])]
    chat = []
    for mark, end in zip(marks, ends, strict=True):
        role = next(group for group in mark.groups() if group).lower()
        content = re.sub(CLOSINGS, "", text[mark.end() : end]).strip()
        chat.append((SAME_ROLE.get(role, role), content))
    return chat


def place_of(text: str, char: int) -> str:
    """Where a character stands, for people: "system message, line 1" or "line 3"."""
    role, start = "", 0
    for match in OPENING.finditer(text, 0, char):
        role, start = next(group for group in match.groups() if group).lower(), match.end()
    line = text.count("\n", start, char) + 1
    return f"{role} message, line {line}" if role else f"line {line}"


def _leading(prompt: TokenText, special: object) -> int:
    """How often the first token stands at the front, if it is special."""
    ids = prompt.ids
    if not ids or ids[0] not in special:  # type: ignore[operator]
        return 0
    return next((i for i, token in enumerate(ids) if token != ids[0]), len(ids))
