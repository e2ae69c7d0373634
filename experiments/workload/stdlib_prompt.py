"""The words of the `stdlib_agent` workload: its system prompt, and how an agent and its user speak of source files.

Knows nothing of tokens, time or which file comes when.
"""

from __future__ import annotations

import json
import re

from experiments.workload.stdlib_sources import Source

SYSTEM = """You are a careful programming assistant that answers questions about the source code of Python's standard \
library. You work in a read-only checkout of the library. You cannot run code, reach the network or change files; you \
read, search, and explain.

How to work
1. Read before you answer. Never describe code that you have not seen in this conversation. If a file is long, read it \
in parts, front to back, and say which lines you have read so far.
2. Call one tool at a time and wait for its result. Put a short sentence in front of each call that says what you look \
for and why. Do not repeat a call whose result is still in the conversation.
3. Quote names exactly as they are spelled in the source. When you mention a function, a method or a class, also give \
the file and, if you know it, the line where it begins.
4. Tell behaviour that the code guarantees apart from behaviour that merely follows from the implementation, and \
say which of the two your answer rests on. Mention exceptions that are raised on purpose, and the conditions for them.
5. If the code contradicts its own documentation, trust the code, and point out the difference.
6. Keep answers short: first the answer in one or two sentences, then the evidence as a list. No introductions, no \
apologies, no closing questions. Say "I do not know" when the code that you have read does not settle the question.

Tools
You may call the functions described below. To call one, write its name and its arguments as a JSON object between \
<tool_call> and </tool_call>. The result comes back as a message from the tool.

<tools>
{"name": "read_file", "description": "Read consecutive lines of one source file. The result begins with a line that \
names the file, the lines shown and the number of lines in the file.", "parameters": {"type": "object", "properties": \
{"path": {"type": "string", "description": "Path of the file below the root of the library, with forward slashes, for \
example json/decoder.py"}, "start": {"type": "integer", "minimum": 1, "description": "First line to show, counted from \
1"}, "stop": {"type": "integer", "minimum": 1, "description": "Last line to show; lines beyond the end of the file are \
left out"}}, "required": ["path", "start", "stop"]}}
{"name": "search", "description": "Find lines of one source file that contain a word. Case matters. At most \
forty lines are returned, each with its number in front.", "parameters": {"type": "object", "properties": {"path": \
{"type": "string", "description": "Path of the file below the root of the library"}, "word": {"type": "string", \
"description": "The text to look for, not a regular expression"}}, "required": ["path", "word"]}}
{"name": "list_definitions", "description": "List the classes and functions of one source file with the line on which \
each begins, in the order of the file. Nested definitions are indented as they are in the source.", "parameters": \
{"type": "object", "properties": {"path": {"type": "string", "description": "Path of the file below the root of the \
library"}}, "required": ["path"]}}
</tools>

Conventions of this checkout: lines are counted from 1; paths never begin with a slash; names that begin with an \
underscore are private to their module and may change without notice; a name that is listed in __all__ is public even \
if it is imported from an accelerator written in C. Where such an accelerator exists, the pure Python code that you \
can read is the reference for its behaviour, but not for its speed."""

REMOVED = "[result removed to save room; call the tool again if it is needed]"

OPENINGS = (
    "What is {file} for, and which parts of it are meant to be used from outside?",
    "I have to review {file}. Walk me through how it is organised.",
    "Explain the most important classes and functions of {file} to a newcomer.",
    "Which errors can {file} raise, and when?",
)
QUESTIONS = (
    "What does `{name}` do, and who calls it?",
    "Can `{name}` be called from several threads at once?",
    "Which arguments does `{name}` accept, and what happens with wrong ones?",
    "Is the behaviour of `{name}` documented, or could it change?",
    "How would I test `{name}` on its own?",
    "Why is `{name}` written this way? Is there a simpler form?",
    "What would break if I removed `{name}`?",
    "Does `{name}` keep any state between calls?",
)

_DEFINITION = re.compile(r"^\s*(?:async\s+)?(def|class)\s+(\w+)")


def tool_call(thought: str, tool: str, **arguments: str | int) -> str:
    """An assistant message that calls a tool."""
    return f"{thought}\n<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def read_result(source: Source, start: int, stop: int) -> str:
    """What `read_file` answers; lines are counted from 1, `stop` belongs to them."""
    stop = min(stop, len(source.lines))
    head = f"{source.name}, lines {start}-{stop} of {len(source.lines)}"
    return "\n".join([head, *source.lines[start - 1 : stop]])


def search_result(source: Source, word: str) -> str:
    """What `search` answers."""
    found = [f"{number}: {line}" for number, line in enumerate(source.lines, start=1) if word in line]
    return "\n".join([f"{source.name}, {len(found)} lines contain {word}", *found[:40]])


def definitions(source: Source, start: int = 1, stop: int | None = None) -> list[tuple[int, str, str]]:
    """Line, `def` or `class`, and name of all definitions between two lines."""
    lines = source.lines[start - 1 : stop]
    found = ((number, _DEFINITION.match(line)) for number, line in enumerate(lines, start))
    return [(number, match[1], match[2]) for number, match in found if match]


def answer(source: Source, start: int, stop: int, about: str | None = None) -> str:
    """What the agent says after reading: names and comments that really stand in the lines it has read."""
    found = definitions(source, start, stop)
    first = f"`{about}` belongs to {source.name}; " if about else f"{source.name}: "
    parts = [f"{first}lines {start} to {min(stop, len(source.lines))} settle the question."]
    parts += [
        f"- `{name}` ({'class' if kind == 'class' else 'function'}) begins in line {n}." for n, kind, name in found
    ]
    remarks = [line.strip().lstrip("# ") for line in source.lines[start - 1 : stop] if line.lstrip().startswith("# ")]
    if remarks:
        parts.append("The source remarks: " + " ".join(remarks[:6]))
    return "\n".join(parts[:14])
