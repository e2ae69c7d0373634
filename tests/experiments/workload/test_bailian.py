"""The release itself is not at hand: its schema is tested on hand-made rows only."""

from __future__ import annotations

import pytest

from experiments.errors import UserError
from experiments.workload.bailian import Bailian


def row(chat, parent, time, length, ids, turn=1, kind="text", **extra):
    lengths = {"input_length": length, "output_length": 2}
    chain = {"chat_id": chat, "parent_chat_id": parent}
    return {**chain, "timestamp": time, **lengths, "type": kind, "turn": turn, "hash_ids": ids, **extra}


def test_sessions_follow_the_chain_of_parents(write):
    path = write(
        row(10, -1, 0.5, 16, [1]),
        row(11, -1, 0.6, 16, [2], kind="search"),
        row(12, 10, 3.5, 32, [1, 3], turn=2),
        row(13, 12, 9.0, 48, [1, 3, 4], turn=3),
        row(99, 55, 9.5, 16, [7], turn=4),  # its parent came before the trace began
        row(100, 99, 9.6, 16, [7], turn=5),
    )
    requests = list(Bailian(path))
    assert [request.session for request in requests] == ["10", "11", "10", "10", "55", "55"]
    assert [request.turn for request in requests] == [1, 1, 2, 3, 4, 5]
    assert requests[1].category == "search"
    assert requests[2].arrival == pytest.approx(3.0)


def test_both_ways_to_count_ids_are_read_and_unnamed_tails_are_shared_with_nobody(write):
    path = write(row(1, -1, 0, 20, [5, 6]), row(2, -1, 0, 20, [5]), row(3, -1, 0, 20, [5]))
    first, second, third = (request.tokens.tolist() for request in Bailian(path))
    assert first[:16] == second[:16] == third[:16]
    assert len({first[16], second[16], third[16]}) == 3
    assert max(second) < 2**31


@pytest.mark.parametrize("ids", [[], [1, 2, 3]])
def test_a_count_of_ids_that_fits_neither_way_is_told(write, ids):
    with pytest.raises(UserError, match=r"line 1: `hash_ids` against `input_length`"):
        list(Bailian(write(row(1, -1, 0, 20, ids))))


def test_ids_that_would_wrap_are_refused(write):
    with pytest.raises(UserError, match="int32"):
        list(Bailian(write(row(1, -1, 0, 16, [2**27]))))


@pytest.mark.parametrize("field", ["chat_id", "parent_chat_id", "timestamp", "type", "turn"])
def test_a_missing_field_is_told_by_name(write, field):
    broken = {key: value for key, value in row(1, -1, 0, 16, [1]).items() if key != field}
    with pytest.raises(UserError, match=field):
        list(Bailian(write(broken)))


@pytest.mark.parametrize(
    "rows",
    [
        [row(1, -1, 0, 20, [7]), row(2, -1, 1, 36, [2**27 - 1, 5])],  # an id that a tail was named after
        [row(1, -1, 0, 16, [2**27 - 2]), row(2, -1, 1, 20, [7]), row(3, -1, 2, 20, [7])],  # and the other way round
    ],
)
def test_no_tail_shares_the_id_of_a_block(write, rows):
    with pytest.raises(UserError, match="ids must stay below"):
        list(Bailian(write(*rows)))
