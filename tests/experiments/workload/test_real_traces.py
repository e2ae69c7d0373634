"""Known numbers of the public traces, where PAGELAB_DATA points at them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.workload.agent_text import AgentText
from experiments.workload.airline_text import AirlineText
from experiments.workload.coding_agent import CodingAgent
from experiments.workload.mooncake import Mooncake

DATA = Path(os.environ.get("PAGELAB_DATA", "data"))


def trace(name):
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in PAGELAB_DATA")
    return str(DATA / name)


def totals(workload):
    lengths = [len(request.tokens) for request in workload]
    return len(lengths), sum(lengths)


def test_mooncake_conversation_has_its_known_size_and_one_first_block():
    requests = list(Mooncake(trace("mooncake_conversation_trace.jsonl.gz")))
    assert len(requests) == 12_031
    assert sum(len(request.tokens) for request in requests) == 144_793_823
    assert {request.tokens.ids[0] for request in requests} == {0}


def test_mooncake_synthetic_has_its_known_size():
    assert totals(Mooncake(trace("mooncake_synthetic_trace.jsonl.gz"))) == (3_993, 61_194_628)


def test_the_coding_agent_has_its_known_size():
    requests = list(CodingAgent(trace("kvct64.jsonl.gz")))
    assert len(requests) == 4_205
    assert sum(len(request.tokens) for request in requests) == 513_814_402
    assert sum(len(request.tokens) // 64 for request in requests) == 8_026_281
    assert len({request.session for request in requests}) == 64
    arrivals = [request.arrival for request in requests]
    assert arrivals == sorted(arrivals)


def test_the_airline_text_begins_with_one_system_prompt(cache_dir):
    requests = list(AirlineText(trace("taubench_gpt4o_airline.json.gz"), limit=60, cache_dir=cache_dir))
    assert len({request.tokens.packed(0, 1000) for request in requests}) == 1


def longest_common_prefix(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other)) // 4
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[: middle * 4] == other[: middle * 4] else (low, middle - 1)
    return low


@pytest.mark.parametrize(
    ("members", "published"),
    [("miniswe/af281d03*", 0.928), ("miniswe/ba443702*", 0.944), ("magagent/46e404f0*", 0.877)],
)
def test_single_sessions_reach_their_published_hit_rates(members, published, cache_dir):
    # Published with Llama-3's tokenizer; ours cuts text elsewhere, so 1.5 points of difference would be no error.
    earlier: list[bytes] = []
    num_hits = num_tokens = 0
    for request in AgentText(trace("lmcache_agent_traces.tar.gz"), members=members, cache_dir=cache_dir):
        tokens = request.tokens.packed()
        num_hits += max((longest_common_prefix(tokens, other) for other in earlier), default=0)
        num_tokens += len(request.tokens)
        earlier.append(tokens)
    assert num_hits / num_tokens == pytest.approx(published, abs=0.015)
