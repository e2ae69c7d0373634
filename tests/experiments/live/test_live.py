"""Looking at a run shows what it measures, changes nothing of it, and costs nothing where nobody looks."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from rich.console import Console
from support.conf import composed
from support.engines import fake_engine

from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.tokens import PackedTokens
from experiments.live.dashboard import Dashboard
from experiments.live.lines import Lines, duration
from experiments.live.open import requests_of, watching
from experiments.live.prefixes import SharedPrefixes
from experiments.live.served import watched
from experiments.live.watcher import SHARE, Snapshot, Watcher
from experiments.replay import replay
from experiments.simulate import simulate_job
from experiments.workload.multi_turn import MultiTurn
from experiments.workload.shared_prefix import SharedPrefix
from model.sampling import SamplingParams

ROOT = Path(__file__).parents[3]
PREFIXES = SharedPrefix(num_requests=60, num_prefixes=3, prefix_tokens=40, suffix_tokens=9)


class Kept:
    """A screen that keeps everything."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.seen: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot)

    def close(self) -> None:
        pass


def manager(num_blocks: float = 40, radix: bool = True) -> CacheManager:
    kind = Radix if radix else HashChain
    return CacheManager(kind(num_blocks, 4, BuiltinHash(), Lru()))


@pytest.mark.parametrize("radix", [True, False])
@pytest.mark.parametrize("num_blocks", [40, inf])
def test_the_last_look_at_a_replay_says_what_its_metrics_say(num_blocks: float, radix: bool) -> None:
    screen = Kept()
    watcher = Watcher("run", screen, requests_of(PREFIXES))
    metrics = replay(PREFIXES, manager(num_blocks, radix), watcher=watcher)
    watcher.end()
    last = screen.seen[-1]
    assert last.over
    assert (last.done, last.total, last.evictions) == (60, 60, metrics["evictions"])
    assert (last.prompt_tokens, last.hit_tokens) == (metrics["prompt_tokens"], metrics["hit_tokens"])
    assert last.hit_rate == metrics["token_hit_rate"]
    assert last.in_use + last.cached + last.free == num_blocks
    done = [snapshot.done for snapshot in screen.seen]
    assert done[0] == 0, "there is something to see before the first request"
    assert done == sorted(done)


def test_a_watched_replay_measures_the_same() -> None:
    alone, seen = replay(PREFIXES, manager()), replay(PREFIXES, manager(), watcher=Watcher("run", Kept()))
    timed = ("seconds", "requests_per_second", "blocks_per_second")
    assert {k: v for k, v in alone.items() if k not in timed} == {k: v for k, v in seen.items() if k not in timed}


def test_the_prefixes_shown_are_those_that_saved_most() -> None:
    screen = Kept()
    watcher = Watcher("run", screen)
    replay(PREFIXES, manager(inf), watcher=watcher)
    watcher.end()
    starts = [request.tokens.packed(0, 40) for request in PREFIXES]
    popular = sorted((count - 1 for count in Counter(starts).values()), reverse=True)
    assert [(shared.tokens, shared.requests) for shared in screen.seen[-1].top] == [(40, count) for count in popular]
    assert screen.seen[-1].top[0].tail == max(set(starts), key=starts.count)[-64:]


def test_prefixes_of_one_length_are_told_apart_and_memory_is_bounded() -> None:
    found, draw = SharedPrefixes(4, most=8), random.Random(0)
    often = PackedTokens.of(range(100))
    for i in range(200):
        found.note(often, 25)
        found.note(PackedTokens.of(draw.choices(range(9999), k=100)), 25 - i % 3)
        found.note(often, 0)
    assert found.top(1)[0].requests == 200
    assert len(found.top(1000)) <= 8


def test_where_hits_come_fast_a_sample_stands_for_all() -> None:
    many = SharedPrefix(num_requests=5000, num_prefixes=2, prefix_tokens=8, suffix_tokens=1)
    screen = Kept(pause=inf)
    watcher = Watcher("run", screen)
    metrics = replay(many, manager(inf), watcher=watcher)
    watcher.end()
    shared = screen.seen[-1].top
    assert sum(prefix.saved for prefix in shared) == pytest.approx(metrics["hit_tokens"], rel=0.2)
    assert screen.seen[-1].hit_tokens == metrics["hit_tokens"], "the rate is exact all the same"


def test_looks_take_at_most_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, spent = [0.0], [0.0]
    monkeypatch.setattr("experiments.live.watcher.perf_counter", lambda: now[0])

    class Slow(Kept):
        def show(self, snapshot: Snapshot) -> None:
            now[0] += 0.01
            spent[0] += 0.01

    watcher = Watcher("run", Slow())
    watcher.begin(manager())
    for _ in range(10_000):
        watcher.finished()
        now[0] += 0.001
    assert spent[0] <= (SHARE + 0.002) * now[0]
    assert spent[0] >= 0.5 * SHARE * now[0]


@pytest.mark.parametrize("radix", ["radix", "hash_chain"])
def test_a_watched_simulation_counts_every_request_once(monkeypatch: pytest.MonkeyPatch, radix: str) -> None:
    screen = Kept()
    monkeypatch.setattr("experiments.live.open.Lines", lambda stream: screen)
    small = ("workload=shared_prefix", "workload.num_requests=40", "workload.request_rate=500", "num_blocks=60")
    small += ("workload.prefix_tokens=96", "workload.output_tokens=20", f"allocator={radix}", "watch=true")
    result = simulate_job(composed(*small, config_name="simulate"), lambda row: None)
    last = screen.seen[-1]
    assert result.metrics["preemptions"] > 0
    assert (last.done, last.total, last.hit_tokens) == (40, 40, result.metrics["hit_tokens"])
    assert last.prompt_tokens == result.metrics["prompt_tokens"]
    assert "0 running" in last.more["scheduler"]


def test_a_watched_engine_counts_requests_before_anybody_takes_them() -> None:
    engine, screen = fake_engine(), Kept()
    watcher = Watcher("run", screen, 3)
    engine.loop.watch = watched(lambda *step: None, engine.scheduler, watcher)
    engine.generate([list(range(20))] * 3, SamplingParams(max_tokens=4, temperature=0, ignore_eos=True))
    assert watcher.done == 3
    assert watcher.hit_tokens == 2 * 16
    same = lambda *step: None  # noqa: E731 (identity is the point)
    assert watched(same, engine.scheduler, None) is same


def test_the_dashboard_shows_everything_at_any_size_of_pool() -> None:
    for num_blocks, total in ((40, 60), (inf, None)):
        console = Console(record=True, width=100, force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
        screen = Dashboard(console, lambda ids: f"<{len(ids)} ids>", pause=0.0)
        watcher = Watcher("a run", screen, total)
        replay(PREFIXES, manager(num_blocks), watcher=watcher)
        watcher.end()
        screen.close()
        text = console.export_text()
        for word in ("a run", "progress", "hit rate", "cached", "evictions", "shared prefix", "40 tokens", "<10 ids>"):
            assert word in text or word == "<10 ids>", word
        assert f"60{'/60' if total else ''} requests" in text


def test_no_watcher_is_made_where_nobody_asked() -> None:
    def never() -> int:
        raise AssertionError("counting requests costs time")

    with watching(composed("watch=false"), "run", never) as watcher:
        assert watcher is None


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")])
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_how_many_requests_there_are_is_known_where_it_is_cheap() -> None:
    assert requests_of(MultiTurn(num_sessions=3, turns=4)) == len(list(MultiTurn(num_sessions=3, turns=4))) == 12
    assert requests_of(MultiTurn(num_sessions=3, turns=4, limit=5)) == 5


def test_where_there_is_no_terminal_the_command_writes_plain_lines_and_its_record_is_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.replay", "workload=shared_prefix", "workload.num_requests=50"]
    command += ["tracker=none", "record.plots=false", f"hydra.run.dir={tmp_path}/run", "watch=true"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if "50/50 requests" in line)
    assert "hit rate" in line
    assert "evictions" in line
    assert "\x1b" not in done.stderr
    assert "watch" not in (tmp_path / "run" / "config.yaml").read_text()


def test_lines_end_with_the_prefixes_shared_most(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher("run", Lines(sys.stdout))
    replay(PREFIXES, manager(inf), watcher=watcher)
    watcher.end()
    assert "shared: 40 tokens by" in capsys.readouterr().out
