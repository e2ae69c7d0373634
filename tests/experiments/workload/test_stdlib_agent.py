from __future__ import annotations

import pytest

from experiments.errors import UserError
from experiments.workload import stdlib_prompt as words
from experiments.workload.randomness import stream
from experiments.workload.stdlib_agent import StdlibAgent
from experiments.workload.stdlib_sources import Source, pick_sources

SMALL = {"num_sessions": 8, "num_files": 3, "num_tasks": 2, "min_turns": 3, "max_turns": 8, "lines_per_read": 20}


def walked(workload):
    return [(r.tokens.packed(), r.arrival, r.num_output_tokens, r.session, r.turn, r.category) for r in workload]


@pytest.fixture
def workload(cache_dir):
    return StdlibAgent(**SMALL, cache_dir=cache_dir)


def test_walking_twice_and_from_the_cache_give_the_same(workload, cache_dir):
    again = StdlibAgent(**SMALL, cache_dir=cache_dir)
    assert walked(workload) == walked(workload) == walked(again)
    assert workload.fingerprint() == again.fingerprint()


def test_another_seed_tells_another_story(workload, cache_dir):
    other = StdlibAgent(**SMALL, seed=1, cache_dir=cache_dir)
    assert walked(other) != walked(workload)
    assert other.fingerprint() != workload.fingerprint()


def test_every_prompt_is_a_chat_after_the_one_system_prompt(workload, smollm2):
    system = smollm2.message("system", words.SYSTEM)
    for request in workload:
        ids = request.tokens.tolist()
        assert ids[: len(system)] == system
        assert ids[-len(smollm2.header()) :] == smollm2.header()
        assert request.num_output_tokens > 0


def test_a_prompt_has_the_ids_of_its_whole_text(workload, smollm2):
    for request in list(workload)[::7]:
        ids = request.tokens.tolist()
        assert smollm2.encode(smollm2.decode(ids), allow_special=True) == ids


def test_without_branches_a_later_turn_extends_the_former_exactly(cache_dir):
    last: dict[str | None, bytes] = {}
    for request in StdlibAgent(**SMALL, branch_share=0.0, cache_dir=cache_dir):
        assert request.tokens.packed().startswith(last.get(request.session, b""))
        last[request.session] = request.tokens.packed()
    assert len(last) == 8


def test_branches_go_back_in_the_history(cache_dir):
    last: dict[str | None, bytes] = {}
    broken = 0
    for request in StdlibAgent(**{**SMALL, "max_turns": 12}, branch_share=0.6, cache_dir=cache_dir):
        broken += not request.tokens.packed().startswith(last.get(request.session, b""))
        last[request.session] = request.tokens.packed()
    assert broken > 3


def test_prompts_stay_within_the_context_by_removing_old_results(cache_dir, smollm2):
    shape = {**SMALL, "min_turns": 12, "max_turns": 12, "lines_per_read": 60}
    requests = list(StdlibAgent(**shape, max_prompt_tokens=2048, cache_dir=cache_dir))
    assert max(len(request.tokens) for request in requests) <= 2048
    assert any(words.REMOVED in smollm2.decode(request.tokens.tolist()) for request in requests)


def test_sessions_of_one_task_begin_alike_and_interleave(cache_dir):
    requests = list(StdlibAgent(**{**SMALL, "num_tasks": 1}, cache_dir=cache_dir))
    first = [request.tokens.packed() for request in requests if request.turn == 0]
    assert len(first) == 8
    assert len(set(first)) == 1
    order = [request.session for request in requests]
    assert order != sorted(order, key=order.index)
    arrivals = [request.arrival for request in requests]
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)


def test_sources_are_picked_by_seed_and_too_many_are_an_error():
    assert pick_sources(stream(3, 0), 4) == pick_sources(stream(3, 0), 4)
    assert pick_sources(stream(3, 0), 4) != pick_sources(stream(4, 0), 4)
    with pytest.raises(UserError, match=r"workload\.num_files"):
        pick_sources(stream(0, 0), 10_000)


def test_tools_show_what_stands_in_the_file():
    source = Source("x.py", ("class A:", "    # a remark", "    async def go(self):", "        pass", "B = A"))
    assert words.read_result(source, 4, 99).splitlines() == ["x.py, lines 4-5 of 5", "        pass", "B = A"]
    assert words.search_result(source, "A").splitlines() == ["x.py, 2 lines contain A", "1: class A:", "5: B = A"]
    assert words.definitions(source, 2) == [(3, "def", "go")]
    assert "a remark" in words.answer(source, 1, 5)


@pytest.mark.parametrize(
    ("name", "value"), [("num_sessions", 0), ("max_turns", 1), ("branch_share", 1.5), ("max_prompt_tokens", 100)]
)
def test_an_argument_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"workload\.{name}"):
        StdlibAgent(**{name: value})
