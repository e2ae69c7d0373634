"""Each kind of instability is found, placed, and worth what prompts written without it would have hit."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest

BODY = "You answer questions about the shop. Be brief, be kind, and never promise what you do not know.\n" * 6
USERS = ["Where is my parcel?", "May I return these shoes?", "What does the blue coat cost?", "Do you ship to Chile?"]
NUM = 60
draw = random.Random(5)
START = datetime(2026, 11, 30, 7, 0)
WHEN = [START + timedelta(seconds=977 * i) for i in range(NUM)]
TOOLS = [
    {"name": f"tool_{k}", "description": "Does a thing.", "parameters": {"x": "int", "y": "str"}} for k in range(4)
]


def shuffled(value):
    if isinstance(value, dict):
        items = [(key, shuffled(item)) for key, item in value.items()]
        return dict(draw.sample(items, len(items)))
    return draw.sample([shuffled(item) for item in value], len(value)) if isinstance(value, list) else value


def keys_shuffled(tool):
    return dict(draw.sample(list(tool.items()), len(tool)))


def letters(count):
    return "".join(draw.choice("abcdefghjkmnpqrstuvwxyz") + draw.choice("23456789") for _ in range(count))


KINDS = {
    "timestamp": lambda i: f"Now: {WHEN[i]:%Y-%m-%dT%H:%M:%SZ}\n{BODY}",
    "timestamp in seconds": lambda i: f"now={1_790_000_000 + 977 * i}\n{BODY}",
    "timestamp in words": lambda i: f"It is {WHEN[i]:%A, %B %d, %Y at %I:%M %p}.\n{BODY}",
    "date": lambda i: f"Today is {START + timedelta(days=i):%d %B %Y}.\n{BODY}",
    "time of day": lambda i: f"Local time {WHEN[i]:%H:%M}.\n{BODY}",
    "UUID": lambda i: f"Request {UUID(int=draw.getrandbits(128))}.\n{BODY}",
    "random id": lambda i: f"trace=req_{letters(8)}\n{BODY}",
    "counter": lambda i: f"Conversation {i + 100}\n{BODY}",
    "number": lambda i: f"Load: {draw.randrange(100, 999)}\n{BODY}",
    "shuffled JSON keys": lambda i: f"Tools: {json.dumps([keys_shuffled(tool) for tool in TOOLS])}\n{BODY}",
    "shuffled tools": lambda i: f"Tools: {json.dumps(shuffled(TOOLS))}\n{BODY}",
    "trailing space": lambda i: f"You are a shop assistant.{' ' * (i % 3)}\n{BODY}",
    "carriage return": lambda i: BODY.replace("\n", "\r\n" if i % 2 else "\n"),
    "white space": lambda i: f"You are{' ' * (1 + i % 3)}a shop assistant.\n{BODY}",
    "invisible character": lambda i: f"You are{chr(0x200B) * (i % 2)} a shop assistant.\n{BODY}",
    "invisible character NBSP": lambda i: f"You{chr(0xA0) if i % 2 else ' '}are a shop assistant.\n{BODY}",
}
STEADY = {
    "timestamp": lambda i: f"Now: {WHEN[0]:%Y-%m-%dT%H:%M:%SZ}\n{BODY}",
    "shuffled tools": lambda i: f"Tools: {json.dumps(TOOLS)}\n{BODY}",
    "trailing space": lambda i: f"You are a shop assistant.\n{BODY}",
}


def ids_of(tokenizer, system, i):
    return tokenizer.chat(
        [{"role": "system", "content": system(i)}, {"role": "user", "content": USERS[i % 4] + " " * 0}]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_unstable_field_is_named_placed_and_worth_nearly_everything(kind, tokenizer, profiled):
    prompts = [ids_of(tokenizer, KINDS[kind], i) for i in range(NUM)]
    before, fixes = profiled(prompts)
    first = fixes[0]
    assert first.kind.lower().startswith(kind.split(" in ")[0].replace(" NBSP", "").lower())
    assert first.where == "system message, line 1"
    system = KINDS[kind](0)
    steady, _ = profiled([ids_of(tokenizer, lambda i: system, i) for i in range(NUM)])
    assert first.alone == first.together
    assert first.together.unshared == pytest.approx(steady.unshared, rel=0.05)
    assert first.together.unshared < 0.9 * before.unshared
    parted = min(next(k for k, (a, b) in enumerate(zip(*pair, strict=False)) if a != b) for pair in pairwise(prompts))
    assert first.position <= parted + 1


@pytest.mark.parametrize("kind", STEADY)
def test_the_rate_is_that_of_prompts_written_without_the_field(kind, tokenizer, profiled):
    unstable = [ids_of(tokenizer, KINDS[kind], i) for i in range(NUM)]
    steady, _ = profiled([ids_of(tokenizer, STEADY[kind], i) for i in range(NUM)])
    assert profiled(unstable)[1][0].together.rate == pytest.approx(steady.rate, abs=0.004)


def test_prompts_without_an_unstable_field_have_none(tokenizer, profiled):
    prompts = [ids_of(tokenizer, lambda i: BODY, i) for i in range(NUM)]
    assert profiled(prompts)[1] == []


def test_a_field_behind_another_one_in_the_same_block_comes_to_light(tokenizer, profiled):
    prompts = [
        ids_of(tokenizer, lambda i: f"{WHEN[i]:%H:%M} {UUID(int=draw.getrandbits(128))}\n{BODY}", i) for i in range(NUM)
    ]
    before, fixes = profiled(prompts)
    assert [fix.kind for fix in fixes] == ["time of day", "UUID"]
    assert fixes[0].alone.rate < 0.2 < 0.9 < fixes[1].together.rate
    assert before.rate < 0.1


def test_a_field_at_the_very_front_is_told_by_its_place(tokenizer, profiled):
    texts = [f"{UUID(int=draw.getrandbits(128))} {BODY}{USERS[i % 4]}" for i in range(NUM)]
    before, (fix, *_) = profiled([tokenizer.encode(text) for text in texts])
    assert (fix.kind, fix.position, fix.char, fix.where) == ("UUID", 0, 0, "line 1")
    assert fix.together.rate > 0.85 > 0.1 > before.rate


def test_a_value_that_varies_among_few_is_worth_only_what_it_costs(tokenizer, profiled):
    """Two dates make two versions, each computed once: the measure must not promise more than that."""
    prompts = [ids_of(tokenizer, lambda i: f"Today is {28 + i % 2} November 2026.\n{BODY}", i) for i in range(NUM)]
    before, (fix, *_) = profiled(prompts)
    assert fix.kind == "date"
    assert 0 < before.unshared - fix.together.unshared < 1.2 * len(prompts[0])


def test_a_doubled_first_token_is_named(tokenizer, profiled):
    first = tokenizer.encode("<|endoftext|>")
    prompts = [first * (1 + i % 2) + ids_of(tokenizer, lambda i: BODY, i) for i in range(NUM)]
    _, (fix, *_) = profiled(prompts)
    assert fix.kind == "doubled BOS <|endoftext|>"
    assert fix.position <= 1
    assert fix.prompts == NUM // 2
    steady, _ = profiled([first + ids_of(tokenizer, lambda i: BODY, i) for i in range(NUM)])
    assert fix.together == steady


def test_a_hidden_special_token_is_named_with_its_place(tokenizer, profiled):
    texts = [f"Shop rules.{'<|endoftext|>' if i % 2 else ''} {BODY}{USERS[i % 4]}" for i in range(NUM)]
    _, (fix, *_) = profiled([tokenizer.encode(text) for text in texts])
    assert fix.kind == "hidden special token <|endoftext|>"
    assert fix.where == "line 1"
    assert fix.together.rate > 0.85
    assert "<|endoftext|>" in "".join(fix.lines)


def test_another_version_of_the_template_is_named(tokenizer, profiled):
    new = "<|im_start|>system\n{s}<|im_end|>\n<|im_start|>user\n{u}<|im_end|>\n<|im_start|>assistant\n"
    old = "System: {s}\nUser: {u}\nAssistant: "
    texts = [(old if i % 3 == 0 else new).format(s=BODY.strip(), u=USERS[i % 4]) for i in range(NUM)]
    _, (fix, *_) = profiled([tokenizer.encode(text) for text in texts])
    assert fix.kind == "another template version"
    steady, _ = profiled([tokenizer.encode(new.format(s=BODY.strip(), u=USERS[i % 4])) for i in range(NUM)])
    assert fix.together.unshared == pytest.approx(steady.unshared, rel=0.1)


def test_the_same_text_in_other_tokens_is_named(tokenizer, profiled):
    apart = [
        token for word in BODY.split(" ") for token in tokenizer.encode(word[:2]) + tokenizer.encode(word[2:] + " ")
    ]
    whole = tokenizer.encode("".join(b.decode() for b in map(tokenizer.piece, apart)))
    prompts = [(apart if i % 2 else whole) + tokenizer.encode(USERS[i % 4]) for i in range(NUM)]
    _, (fix, *_) = profiled(prompts)
    assert fix.kind == "same text in other tokens"
    steady, _ = profiled([whole + tokenizer.encode(USERS[i % 4]) for i in range(NUM)])
    assert fix.together.unshared == pytest.approx(steady.unshared, rel=0.05)
