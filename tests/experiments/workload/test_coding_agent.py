from __future__ import annotations

import pytest

from experiments.errors import UserError
from experiments.workload.coding_agent import CodingAgent


def call(t, length, runs, kind="n"):
    return [t, length, 9, None, 0.0, kind, "some-model", runs]


def session(name, *calls, block_size=64):
    return {"id": name, "block_size": block_size, "tool_tokens": 1, "system_tokens": 1, "requests": list(calls)}


TWO = (
    session("a", call(0.0, 130, [[1, 2]]), call(70.0, 200, [[1, 1], [5, 2]], "s"), call(30.0, 64, [[1, 1]])),
    session("b", call(0.0, 64, [[1, 1]]), call(10.0, 100, [[1, 1]])),
)


def test_sessions_start_a_minute_apart_and_merge_by_time(write):
    requests = list(CodingAgent(write(*TWO)))
    told = [(request.session, request.turn, request.arrival) for request in requests]
    assert told == [("a", 0, 0.0), ("a", 2, 30.0), ("b", 0, 60.0), ("a", 1, 70.0), ("b", 1, 70.0)]
    assert requests[3].category == "s"


def test_ids_belong_to_their_session_and_tails_to_their_request(write):
    requests = list(CodingAgent(write(*TWO)))
    tokens = {(request.session, request.turn): request.tokens for request in requests}
    assert [len(value) for value in tokens.values()] == [130, 64, 64, 200, 100]
    heads = {key: value.contents(64) for key, value in tokens.items()}
    assert heads["a", 0][0] == heads["a", 1][0] == heads["a", 2][0]
    assert heads["b", 0] == heads["b", 1]
    assert not set(heads["a", 0]) & set(heads["b", 0])
    tails = [ids.ids[-1] for ids in tokens.values() if len(ids) % 64]
    full = {i for ids in tokens.values() for i in ids.contents(64)}
    assert len(set(tails)) == len(tails) == 3
    assert not set(tails) & full


def test_a_count_of_blocks_that_contradicts_the_length_is_told(write):
    with pytest.raises(UserError, match=r"line 2: `requests`, number 1 from 0.*`in` against `ids`"):
        list(CodingAgent(write(TWO[0], session("b", call(0, 64, [[1, 1]]), call(1, 128, [[1, 1]])))))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (session("a", call(-1.0, 64, [[1, 1]])), r"requests\[0\]\[0\].*0 t"),
        (session("a", call(0.0, -64, [[1, 1]])), r"requests\[0\]\[1\].*1 in"),
        (session("a", call(0.0, 64, [[-1, 1]])), r"requests"),
        (session("a", call(0.0, 64, [[1, 1]])[:-1]), r"requests"),
        (session("a", call(0.0, 64, [[1, 1]]), block_size=32), "block_size"),
        (session("a", call(0.0, 64, [[2**25, 1]])), "int32"),
        (session("a", call(0.0, 64 * 10**12, [[1, 10**12]])), "int32"),
        ('{"id": "a", "block_size": 64}', "requests"),
        (session("a", call(float("nan"), 64, [[1, 1]])), "malformed"),
    ],
)
def test_a_wrong_field_is_told_with_its_line_and_place(write, broken, words):
    with pytest.raises(UserError, match=words) as caught:
        list(CodingAgent(write(broken)))
    assert "line 1" in str(caught.value)


def test_a_limited_walk_reads_no_session_before_its_time(write):
    path = write(session("a", call(0.0, 64, [[1, 1]]), call(59.0, 64, [[1, 1]])), "broken")
    assert len(list(CodingAgent(path, limit=2))) == 2
    with pytest.raises(UserError, match="line 2"):
        list(CodingAgent(path, limit=3))


def test_sessions_without_requests_hold_no_request(write):
    with pytest.raises(UserError, match="holds no request"):
        list(CodingAgent(write(session("a"))))
