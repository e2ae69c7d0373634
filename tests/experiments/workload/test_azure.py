"""The release itself is not at hand: its schema is tested on hand-made rows only."""

from __future__ import annotations

import pytest

from experiments.errors import UserError
from experiments.workload.azure import Azure

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_rows_give_lengths_and_arrivals(write):
    path = write(HEADER, "2023-11-16 18:17:03.9799600,374,44", "2023-11-16 18:17:05.4799600,396,109")
    first, second = Azure(path)
    assert (len(first.tokens), len(second.tokens), second.num_output_tokens) == (374, 396, 109)
    assert second.arrival == pytest.approx(1.5)


def test_no_token_id_is_ever_shared(write):
    path = write(HEADER, *[f"2023-11-16 18:17:0{k},{length},1" for k, length in enumerate([1, 16, 17, 40])])
    ids = [i for request in Azure(path) for i in request.tokens.tolist()]
    assert len(set(ids)) == len(ids) == 74


def test_a_mark_at_the_beginning_other_columns_zones_and_windows_line_ends_are_read(write):
    header = "\ufeffx,ContextTokens,GeneratedTokens,TIMESTAMP\r"
    path = write(header, "9,5,1,2024-05-10 00:00:00.009930+00:00\r", "9,5,1,2024-05-10 02:00:01.009930+02:00\r")
    assert [round(request.arrival, 6) for request in Azure(path)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("nan,3,1", "TIMESTAMP"),
        (",3,1", "TIMESTAMP"),
        ("2023-11-16 18:17:03,-3,1", "ContextTokens"),
        ("2023-11-16 18:17:03,0,1", "ContextTokens"),
        ("2023-11-16 18:17:03,3.5,1", "ContextTokens"),
        ("2023-11-16 18:17:03,nan,1", "ContextTokens"),
        ("2023-11-16 18:17:03,3,-1", "GeneratedTokens"),
        ("2023-11-16 18:17:03,3", "GeneratedTokens"),
    ],
)
def test_a_wrong_field_is_told_with_its_line_and_name(write, line, field):
    with pytest.raises(UserError, match=rf"line 3: .*{field}"):
        list(Azure(write(HEADER, "2023-11-16 18:17:03,3,1", line)))


def test_a_missing_column_is_told(write):
    with pytest.raises(UserError, match="ContextTokens"):
        list(Azure(write("TIMESTAMP,context,GeneratedTokens", "2023-11-16 18:17:03,3,1")))


def test_a_header_alone_holds_no_request(write):
    with pytest.raises(UserError, match="holds no request"):
        list(Azure(write(HEADER)))


def test_the_walk_stops_before_ids_wrap(write):
    path = write(HEADER, "2023-11-16 18:17:03,16,1", f"2023-11-16 18:17:03,{2**31},1")
    with pytest.raises(UserError, match="int32"):
        list(Azure(path))


def test_a_limited_walk_reads_no_further_than_it_must(write):
    assert len(list(Azure(write(HEADER, "2023-11-16 18:17:03,3,1", "broken"), limit=1))) == 1
