"""A model's chat template: messages to the text of a prompt, in a sandbox.

Templates come with the weights, from strangers: jinja2's immutable sandbox lets them format text and nothing else.

Knows nothing of token ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model.errors import ChatError

Message = tuple[str, str]
"""Role and content."""
ROLES = ("system", "user", "assistant", "tool")


class ChatTemplate:
    """One template, compiled. Raises ChatError where it is no jinja2."""

    def __init__(self, source: str, special: Mapping[str, str] | None = None) -> None:
        """`special`: variables a template expects, such as `bos_token` and `eos_token`."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.filters["tojson"] = _tojson
        self.source = source
        self._special = dict(special or {})
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ChatError(f"the chat template is no jinja2, line {error.lineno}: {error.message}") from None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The prompt's text. Raises ChatError for an unknown role, or where the template refuses the chat or fails."""
        check_messages(messages)
        return self.fill([{"role": role, "content": content} for role, content in messages], (), add_generation_prompt)

    def fill(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The same for messages as an API takes them, with tool calls and whatever else the template may ask for.

        `tools`: their JSON schemas. Raises ChatError where the template refuses the chat or fails.
        """
        values = {"tools": list(tools) or None, "add_generation_prompt": add_generation_prompt, **self._special}
        try:
            return self._template.render(messages=list(messages), **values)
        except SecurityError as error:
            raise ChatError(f"the chat template tried what a template may not do: {error}") from None
        except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
            raise ChatError(f"the chat template cannot render this chat: {error}") from None


def check_messages(messages: Sequence[Message]) -> None:
    """Raises ChatError for a chat without messages, an unknown role, or content that is no text."""
    if not messages:
        raise ChatError("a chat needs at least one message")
    for i, (role, content) in enumerate(messages):
        if role not in ROLES:
            raise ChatError(f"message {i} has the role {role!r}; roles are {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise ChatError(f"message {i} ({role}) has {type(content).__name__} for content, text is needed")


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    """Plain JSON with keys in their order: jinja's own would sort and escape them."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
