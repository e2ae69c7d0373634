from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from experiments.workload.interleave import interleave

times = st.lists(st.integers(0, 300).map(float), max_size=6).map(sorted)


@given(st.lists(times, max_size=6), st.sampled_from([0.0, 10.0, 60.0]))
def test_merging_equals_sorting_by_time_session_and_place(sessions, gap):
    events = [[(time, (i, k)) for k, time in enumerate(session)] for i, session in enumerate(sessions)]
    expected = sorted((gap * i + time, (i, k)) for i, session in enumerate(events) for time, (_, k) in session)
    assert list(interleave(events, gap)) == expected


def test_a_session_is_opened_only_when_its_time_has_come():
    opened = []

    def sessions():
        for index in range(3):
            opened.append(index)
            yield [(0.0, "first"), (70.0, "second")]

    merged = interleave(sessions(), 60.0)
    assert next(merged) == (0.0, "first")
    assert opened == [0]
    assert next(merged) == (60.0, "first")
    assert opened == [0, 1]
