"""A log of an engine's cache becomes the requests that filled it."""

from __future__ import annotations

import json
import random
import sys

import pytest

from experiments import kv_events
from experiments.errors import UserError
from experiments.kv_events import read_log, rows, trace_of
from experiments.workload.mine import Mine

SIZE = 4


def stored(hashes, parent, tokens, **more):
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
            "block_size": SIZE, "lora_id": None, "medium": "GPU", **more}  # fmt: skip


def as_array(event):
    kind = event["type"]
    return [kind, *(value for key, value in event.items() if key != "type")]


def write(path, batches, arrays=False):
    lines = [
        json.dumps([ts, [as_array(e) for e in events], 0] if arrays else {"ts": ts, "events": events, "rank": 0})
        for ts, events in batches
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


HEAD, ONE, TWO = list(range(8)), [10, 11, 12, 13], [20, 21, 22, 23]
LOG = [
    (100.0, [stored([1, 2], None, HEAD)]),
    (100.5, [stored([3], 2, ONE)]),  # goes on with the first
    (101.0, [stored([4], 2, TWO)]),  # another one with the same beginning
    (130.0, [stored([5], 3, TWO)]),  # a later turn of the first
    (131.0, [{"type": "BlockRemoved", "block_hashes": [3], "medium": "GPU"}]),
    (132.0, [stored([6], 3, ONE)]),  # behind a block that is gone
    (133.0, [{"type": "AllBlocksCleared"}]),
    (134.0, [stored([1], None, ONE, lora_name="style")]),
]


@pytest.mark.parametrize("arrays", [False, True], ids=["objects", "arrays"])
def test_stored_blocks_become_requests_with_their_whole_prefix(tmp_path, arrays):
    trace = trace_of(read_log(write(tmp_path / "log", LOG, arrays)))
    assert trace.orphans == 1
    assert list(rows(trace)) == [
        {"token_ids": [*HEAD, *ONE], "timestamp": 0.0},
        {"token_ids": [*HEAD, *TWO], "timestamp": 1.0},
        {"token_ids": [*HEAD, *ONE, *TWO], "timestamp": 30.0},
        {"token_ids": ONE, "timestamp": 34.0, "lora": "style"},
    ]


def test_the_trace_is_a_workload_of_ones_own(tmp_path, monkeypatch, capsys):
    log = write(tmp_path / "log.jsonl", LOG)
    monkeypatch.setattr(sys, "argv", ["kv_events", str(log), str(tmp_path / "out" / "trace.jsonl")])
    kv_events.main()
    assert json.loads(capsys.readouterr().out) == {
        "requests": 4, "orphans": 1, "trace": str(tmp_path / "out" / "trace.jsonl")}  # fmt: skip
    requests = list(Mine(str(tmp_path / "out" / "trace.jsonl")))
    assert [request.arrival for request in requests] == [0.0, 1.0, 30.0, 34.0]
    assert requests[3].extra_keys.lora == "style"


def test_prompts_played_through_a_cache_that_logs_come_back_from_the_log(tmp_path):
    """Prompts of whole blocks, each told once as a server with an unbounded cache would tell them."""
    draw, known, batches, prompts = random.Random(3), {}, [], []
    for i in range(60):
        base = draw.choice(prompts)[: SIZE * draw.randrange(1, 4)] if prompts and draw.random() < 0.7 else []
        prompt = base + [draw.randrange(1000) for _ in range(SIZE * draw.randrange(1, 4))]
        prompts.append(prompt)
        keys = [tuple(prompt[:end]) for end in range(SIZE, len(prompt) + 1, SIZE)]
        hits = sum(key in known for key in keys)
        new = [known.setdefault(key, len(known) + 1) for key in keys[hits:]]
        batches.append((i * 10.0, [stored(new, known[keys[hits - 1]] if hits else None, prompt[hits * SIZE :])]))
    trace = trace_of(read_log(write(tmp_path / "log", batches)))
    assert [row["token_ids"] for row in rows(trace)] == prompts


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1.0]", "line 1"),
        ('{"ts": 1, "events": [{"type": "Odd"}]}', "Odd"),
        ('{"events": []}', "ts"),
        (
            json.dumps({"ts": 1, "events": [stored([1], None, [1, 2])]}),
            "1 blocks of 4 tokens need 4 `token_ids`, got 2",
        ),
        (json.dumps({"ts": 1, "events": [stored([1], None, [1, 2, 3, -4])]}), "int32"),
        ("\x93\x00", "line 1"),
    ],
    ids=range(6),
)
def test_a_line_that_is_no_batch_is_told(tmp_path, line, words):
    (tmp_path / "log").write_text(line + "\n", encoding="latin-1")
    with pytest.raises(UserError, match=r"line 1") as caught:
        list(read_log(tmp_path / "log"))
    assert words in str(caught.value)


def test_a_log_without_a_beginning_is_refused(tmp_path, monkeypatch):
    log = write(tmp_path / "log", [(1.0, [stored([2], 1, ONE)])])
    monkeypatch.setattr(sys, "argv", ["kv_events", str(log), str(tmp_path / "trace")])
    with pytest.raises(UserError, match="record from the start of an engine"):
        kv_events.main()
    assert not (tmp_path / "trace").exists()
