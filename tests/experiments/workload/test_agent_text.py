from __future__ import annotations

import gzip
import io
import json
import tarfile

import pytest

from experiments.errors import UserError
from experiments.workload.agent_text import AgentText


def row(microseconds, text, output="ok", session="s"):
    return json.dumps({"timestamp": microseconds, "input": text, "output": output, "session_id": session})


@pytest.fixture(params=["plain", "gzip"])
def archive(request, tmp_path):
    def archive(**members):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, lines in members.items():
                data = "\n".join(lines).encode()
                entry = tarfile.TarInfo(name.replace("__", "/") + ".jsonl")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        content = buffer.getvalue()
        path = tmp_path / "traces"
        path.write_bytes(gzip.compress(content) if request.param == "gzip" else content)
        return str(path)

    return archive


START = 1_760_428_270_000_000


def test_prompts_are_the_texts_tokenised_and_sessions_start_a_minute_apart(archive, cache_dir, smollm2):
    path = archive(
        mini__a=[row(START + 5_000_000, "Hello world, again", session="a"), row(START, "Hello world", session="a")],
        mag__b=[row(START - 10**9, "", session="b"), row(START - 10**9, "Bonjour", "Salut !", session="b")],
    )
    requests = list(AgentText(path, cache_dir=cache_dir))
    assert [smollm2.decode(request.tokens.tolist()) for request in requests] == [
        "Hello world",
        "Hello world, again",
        "Bonjour",
    ]
    assert [request.arrival for request in requests] == pytest.approx([0.0, 5.0, 60.0])
    assert [(request.session, request.turn, request.category) for request in requests] == [
        ("a", 0, "mini"),
        ("a", 1, "mini"),
        ("b", 0, "mag"),
    ]
    assert requests[2].num_output_tokens == len(smollm2.encode("Salut !"))


def test_a_pattern_picks_members(archive, cache_dir):
    path = archive(mini__a=[row(START, "one", session="a")], mag__b=[row(START, "two", session="b")])
    picked = AgentText(path, members="mag/*", cache_dir=cache_dir)
    assert [request.session for request in picked] == ["b"]
    assert picked.fingerprint() != AgentText(path, cache_dir=cache_dir).fingerprint()
    with pytest.raises(UserError, match="holds no request"):
        list(AgentText(path, members="nobody/*", cache_dir=cache_dir))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (row(-1, "x"), "timestamp"),
        (row(START, 3), "input"),
        ('{"timestamp": NaN, "input": "x", "output": "", "session_id": "s"}', "malformed"),
        ('{"timestamp": 1, "input": "x", "output": ""}', "session_id"),
        ("{", "truncated"),
    ],
)
def test_a_wrong_row_is_told_with_member_line_and_field(archive, cache_dir, line, words):
    with pytest.raises(UserError, match=words) as caught:
        list(AgentText(archive(mini__a=[row(START, "fine"), line]), cache_dir=cache_dir))
    assert "member mini/a.jsonl, line 2" in str(caught.value)


def test_a_limited_walk_reads_no_session_before_its_time(archive, cache_dir):
    path = archive(mini__a=[row(START, "fine")], mini__b=["broken"])
    assert len(list(AgentText(path, limit=1, cache_dir=cache_dir))) == 1


def test_a_file_that_is_no_archive_and_a_cut_archive_are_told(archive, cache_dir, tmp_path):
    (tmp_path / "text").write_bytes(b"not an archive, whatever its name says" * 100)
    with pytest.raises(UserError, match="as a tar archive"):
        list(AgentText(str(tmp_path / "text"), cache_dir=cache_dir))
    path = archive(mini__a=[row(START + k, f"{k} {k**7}") for k in range(900)])
    with open(path, "rb") as whole:
        data = whole.read()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError):
        list(AgentText(str(tmp_path / "cut"), cache_dir=cache_dir))
