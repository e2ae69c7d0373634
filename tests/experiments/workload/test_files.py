"""What can go wrong with a file ends as one paragraph that says where and what to do. Mooncake stands for all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from experiments.errors import UserError
from experiments.workload.mooncake import Mooncake

ROW = {"timestamp": 0, "input_length": 513, "output_length": 3, "hash_ids": [0, 1]}


def complaint(path: str | Path, **arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        list(Mooncake(str(path), **arguments))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_file_is_told_with_its_place_its_settings_and_its_source(tmp_path):
    message = complaint(tmp_path / "absent.jsonl")
    for word in (str(tmp_path), "PAGELAB_DATA", "data_dir", "workload.path", "github.com/kvcache-ai/Mooncake"):
        assert word in message


def test_a_missing_file_is_no_error_until_somebody_reads_it(tmp_path):
    workload = Mooncake(str(tmp_path / "absent"))
    with pytest.raises(UserError, match="does not exist"):
        workload.fingerprint()


def test_a_directory_is_not_a_file(tmp_path):
    assert "is a directory" in complaint(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_told(tmp_path):
    path = tmp_path / "secret"
    path.write_text("{}")
    path.chmod(0)
    assert "permissions" in complaint(path)


def test_a_path_through_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "cannot be read" in complaint(tmp_path / "file" / "trace")


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"")], ids=["empty", "blank", "gzip of nothing"])
def test_a_file_without_requests_is_an_error_not_an_empty_result(tmp_path, content):
    (tmp_path / "trace").write_bytes(content)
    assert "holds no request" in complaint(tmp_path / "trace")


def test_a_truncated_gzip_is_told(tmp_path):
    whole = gzip.compress(b"".join(json.dumps({**ROW, "noise": str(k**9)}).encode() + b"\n" for k in range(500)))
    (tmp_path / "trace").write_bytes(whole[: len(whole) // 2])
    assert "damaged or cut short" in complaint(tmp_path / "trace")


@pytest.mark.parametrize("damaged_byte", [3, 20, -6], ids=["header", "body", "checksum"])
def test_a_damaged_gzip_is_told(tmp_path, damaged_byte):
    data = bytearray(gzip.compress(b"".join(json.dumps(ROW).encode() + b"\n" for _ in range(50))))
    data[damaged_byte] ^= 0xFF
    (tmp_path / "trace").write_bytes(data)
    complaint(tmp_path / "trace")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": "0"}, "timestamp"),
        ({"timestamp": None}, "timestamp"),
        ({"timestamp": float("nan")}, "malformed"),
        ({"timestamp": float("inf")}, "malformed"),
        ({"input_length": 0}, "input_length"),
        ({"input_length": -5}, "input_length"),
        ({"input_length": 513.5}, "input_length"),
        ({"input_length": True}, "input_length"),
        ({"output_length": -1}, "output_length"),
        ({"hash_ids": [0]}, "hash_ids"),
        ({"hash_ids": [0, 1, 2]}, "hash_ids"),
        ({"hash_ids": []}, "hash_ids"),
        ({"hash_ids": [0, "1"]}, "hash_ids"),
        ({"hash_ids": [0, -1]}, "hash_ids"),
        ({"hash_ids": [0, 2**22]}, "int32"),
        ({"hash_ids": [0, 2**70]}, "int32"),
    ],
    ids=str,
)
def test_a_wrong_field_is_told_with_its_line_and_name(write, change, words):
    message = complaint(write(ROW, {**ROW, **change}))
    assert "line 2" in message
    assert words in message


def test_plain_text_is_answered_with_the_form_of_a_line(tmp_path):
    (tmp_path / "trace").write_text("not a trace\n")
    form = '{"timestamp": ..., "input_length": ..., "output_length": ..., "hash_ids": ...}'
    assert f"; a line here looks like {form}" in complaint(tmp_path / "trace")


def test_the_last_id_whose_tokens_fit_int32_is_accepted(write):
    (request,) = Mooncake(write({**ROW, "input_length": 512, "hash_ids": [2**22 - 1]}))
    assert request.tokens.tolist()[-1] == 2**31 - 1


@pytest.mark.parametrize("field", list(ROW))
def test_a_missing_field_is_told_by_name(write, field):
    message = complaint(write(ROW, ROW, {key: value for key, value in ROW.items() if key != field}))
    assert "line 3" in message
    assert field in message


@pytest.mark.parametrize("line", ["{", "[]", "null", '{"timestamp": 1e999}', "\x00", '{"a": 1} {"b": 2}', '"\ud800"'])
def test_a_line_that_is_no_row_is_told_with_its_number(tmp_path, line):
    data = (json.dumps(ROW) + "\n").encode() + line.encode("utf-8", "surrogatepass") + b"\n"
    (tmp_path / "trace").write_bytes(data)
    assert "line 2" in complaint(tmp_path / "trace")


def test_blank_lines_do_not_shift_line_numbers(write):
    assert "line 4" in complaint(write("", ROW, "  ", "broken"))


def test_a_limited_walk_reads_no_further_than_it_must(write):
    path = write(ROW, "broken")
    assert len(list(Mooncake(path, limit=1))) == 1
    assert list(Mooncake(path, limit=0)) == []
    assert "line 2" in complaint(path, limit=2)


def test_the_fingerprint_is_of_content_and_options_not_of_paths(tmp_path):
    (tmp_path / "one").write_text(json.dumps(ROW))
    (tmp_path / "two").write_text(json.dumps(ROW))
    (tmp_path / "three").write_text(json.dumps({**ROW, "timestamp": 1}))
    one = Mooncake(str(tmp_path / "one"))
    assert one.fingerprint() == Mooncake(str(tmp_path / "two")).fingerprint()
    assert one.fingerprint() == Mooncake(str(tmp_path / "one"), time_scale=2.0).fingerprint()
    others = [
        Mooncake(str(tmp_path / "three")),
        Mooncake(str(tmp_path / "one"), limit=1),
        Mooncake(str(tmp_path / "one"), seed=1),
        Mooncake(str(tmp_path / "one"), unit=256),
    ]
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 5


def test_the_files_hash_is_the_one_sha256sum_prints(write):
    path = write(ROW)
    assert Mooncake(path).file.sha256() == hashlib.sha256(Path(path).read_bytes()).hexdigest()
