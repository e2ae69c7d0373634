from __future__ import annotations

import pytest

from experiments.workload.mooncake import Mooncake


def row(timestamp, length, ids, **extra):
    return {"timestamp": timestamp, "input_length": length, "output_length": 7, "hash_ids": ids, **extra}


def test_a_row_becomes_a_request_with_seconds_and_made_up_tokens(write):
    first, second = Mooncake(write(row(0, 600, [0, 5]), row(2500, 1024, [0, 9], later_field=1)))
    assert (first.arrival, second.arrival) == (0.0, 2.5)
    assert (len(first.tokens), first.num_output_tokens, first.session) == (600, 7, None)
    assert first.tokens.tolist()[:3] == [0, 1, 2]
    assert first.tokens.tolist()[512:514] == [5 * 512, 5 * 512 + 1]
    assert first.tokens.contents(256)[:2] == second.tokens.contents(256)[:2]


def test_arrivals_count_from_the_first_request_and_never_go_back(write):
    path = write(row(5000, 1, [0]), row(9000, 1, [1]), row(4000, 1, [2]), row(9500, 1, [3]))
    requests = list(Mooncake(path))
    assert [request.arrival for request in requests] == [0.0, 4.0, 4.0, 4.5]
    assert [request.tokens.ids[0] for request in requests] == [0, 1, 2, 3]  # file order is kept


def test_time_scale_stretches_arrivals(write):
    path = write(row(0, 1, [0]), row(3000, 1, [1]))
    assert [request.arrival for request in Mooncake(path, time_scale=0.5)] == [0.0, 1.5]


def test_another_unit_reads_traces_of_other_blocks(write):
    (request,) = Mooncake(write(row(0, 33, [4, 5, 6])), unit=16)
    assert request.tokens.tolist()[:2] == [64, 65]


@pytest.mark.parametrize("unit", [0, -1])
def test_a_unit_below_one_is_refused(unit):
    with pytest.raises(ValueError, match=r"workload\.unit"):
        Mooncake("trace", unit=unit)
