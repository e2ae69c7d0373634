"""The command: from a file to a screen, a JSON line and a page, whatever the file holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.browser import Browser, find_browser
from support.conf import CONF

from experiments.profile.page import page
from experiments.profile.profile import walk
from experiments.profile.report import build
from experiments.profile.terminal import show
from experiments.workload.mine import Mine

BODY = "You answer questions about the shop. Be brief and kind. " * 12
WIDE = os.environ | {"COLUMNS": "200"}
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def write(path: Path, rows: list[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def chats(count: int, system: str = "Now: 2026-11-30 08:{m:02}:{s:02}\n" + NASTY) -> list[object]:
    return [
        {"messages": [{"role": "system", "content": system.format(m=i // 60, s=i % 60) + BODY},
                      {"role": "user", "content": f"{'ab'[i % 2]}"}]}
        for i in range(count)
    ]  # fmt: skip


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.token_profile", f"hydra.run.dir={folder}/run", *overrides]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=CONF.parent, env=WIDE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("profile")
    path = write(folder / "prompts.jsonl", chats(70))
    return folder, run(folder, f"path={path}")


def test_the_timestamp_is_named_with_its_place_and_the_rate_without_it(finished):
    _, done = finished
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    (fix, *_) = metrics["fixes"]
    assert (fix["kind"], fix["where"], fix["context"]) == ("timestamp", "system message, line 1", "Now: ")
    assert fix["token_hit_rate_with_those_above"] > 0.85 > 0.5 > metrics["token_hit_rate"]
    for words in ("timestamp", "behind “Now:”", "groups that share", "block size", "▏<|im_start|>▏system▏↵▏Now▏"):
        assert words in done.stderr


class Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_shows_markup_of_prompts_as_text_and_loads_nothing(finished):
    folder, _ = finished
    text = (folder / "run" / "token_profile.html").read_text()
    parser = Markup()
    parser.feed(text)
    assert not [tag for tag, _ in parser.tags if tag in ("script", "img", "iframe", "object")]
    assert not [a for _, a in parser.tags if any(name.startswith("on") or name == "src" for name in a)]
    assert all((a.get("href") or "data:").startswith("data:") for _, a in parser.tags)
    assert "&lt;" in text
    (policy,) = [a["content"] for tag, a in parser.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


@pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")
def test_the_page_opens_without_a_complaint_at_phone_and_desktop_width(finished, tmp_path):
    folder, _ = finished
    browser = Browser(tmp_path)
    try:
        for width in (390, 1280):
            browser.open(folder / "run" / "token_profile.html", width)
            assert browser.complaints() == []
            assert browser.run("document.documentElement.scrollWidth") <= width
    finally:
        browser.close()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], "what to profile must be given: path=FILE.jsonl"),
        (["path=nowhere.jsonl"], "does not exist: check the path"),
        (["workload=shared_prefix", "path=x"], "generates its prompts"),
        (["path=nowhere.jsonl", "block_sizes=[0]"], "block_sizes must be a finite number of 1 or more"),
        (["path=nowhere.jsonl", "memory_mb=0"], "memory_mb must be"),
    ],
    ids=str,
)
def test_what_cannot_be_profiled_is_told_in_one_line(tmp_path, overrides, words):
    done = run(tmp_path, *overrides)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def profiled(rows, tmp_path, pieces, budget=1 << 28):
    mine = Mine(write(tmp_path / "p.jsonl", rows), skip_empty=True)
    walked = walk(mine, [16], budget, 0)
    told = {"show_tokens": 64, "block_size": 16, "num_blocks": "inf", "memory_mb": budget / 2**20,
            "empty_prompts": mine.num_empty, "workload_fingerprint": ""}  # fmt: skip
    return build("p", walked, pieces, [], None, told)


def test_one_prompt_alone_is_shown_and_said_to_be_alone(tmp_path, pieces, capsys):
    profile = profiled([{"token_ids": [1, 2, 3]}, {"token_ids": []}], tmp_path, pieces)
    assert profile.notes[0].startswith("there is only one prompt")
    assert profile.summary["empty_prompts"] == 1
    assert len(profile.positions) == 3
    show(profile)
    assert "only one prompt" in capsys.readouterr().err
    assert "only one prompt" in page(profile)


def test_prompts_of_two_tenants_share_nothing_and_that_is_said(tmp_path, pieces):
    rows = [{"token_ids": [1, 2, 3, 4], "tenant": tenant} for tenant in "aabb"]
    profile = profiled(rows, tmp_path, pieces)
    assert profile.summary["shared_tokens"] == 2 * 3
    assert profile.summary["agreed_tokens"] == 0
    assert any("2 cache keys" in note for note in profile.notes)


def test_bytes_that_are_no_text_and_escape_codes_reach_neither_terminal_nor_page(tmp_path, tokenizer):
    """Half a character in front of a changing number, and a terminal's escape code in its context."""
    half = tokenizer.encode("🙂")[0]
    body = tokenizer.encode(f"\x1b[31m n={{}}\n{BODY}")
    rows = [
        {"token_ids": [half, *tokenizer.encode("\x1b[31m n="), *tokenizer.encode(f"{100 + i}\n{BODY}"), *body]}
        for i in range(30)
    ]
    done = run(tmp_path, f"path={write(tmp_path / 'p.jsonl', rows)}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["fixes"][0]["kind"] == "counter"
    page_text = (tmp_path / "run" / "token_profile.html").read_text()
    assert "\x1b" not in done.stderr + page_text


def test_a_prompt_larger_than_the_sample_is_walked_and_said_to_be_too_large(tmp_path, pieces):
    path = write(tmp_path / "p.jsonl", [{"token_ids": list(range(3000))}] * 2)
    done = run(tmp_path, f"path={path}", "sample_tokens=1000")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    assert metrics["shared_tokens"] == 2999
    assert metrics["token_hit_rate"] is None
    assert "no field was sought" in done.stderr


def test_ids_no_vocabulary_has_are_shown_as_numbers(tmp_path, pieces):
    profile = profiled([{"token_ids": [2**31 - 1, 7]}] * 2, tmp_path, pieces)
    assert profile.positions[0]["text"] == "⟨2147483647⟩"
    page(profile)


def test_a_million_different_prompts_would_fit(tmp_path, pieces):
    """The tree stays within its memory, says what it forgot, and still sees what is common to all."""
    rows = [{"token_ids": [*range(100), i, *range(i, i + 20)]} for i in range(1000, 6000)]
    profile = profiled(rows, tmp_path, pieces, budget=200_000)
    assert profile.summary["prompts"] == 5000
    assert profile.summary["shared_tokens"] == 4999 * 100
    assert profile.summary["forgotten_tokens"] > 0
    assert any("forgot" in note for note in profile.notes)


def test_a_trace_of_hashes_is_profiled_by_blocks(tmp_path):
    from experiments.workload.mooncake import Mooncake

    rows = [{"timestamp": i, "input_length": 1100, "output_length": 1, "hash_ids": [0, i % 3, 9 + i]} for i in range(9)]
    walked = walk(Mooncake(write(tmp_path / "m", rows)), [512, 16], 1 << 28, 10**6)
    assert walked.unit == 512
    assert walked.sample == []
    assert walked.losses.shared_tokens == 2 * 512 + 6 * 1024
    assert walked.losses.rows()[0]["token_hit_rate"] == (2 * 512 + 6 * 1024) / 9900
