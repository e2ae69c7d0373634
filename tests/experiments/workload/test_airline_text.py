from __future__ import annotations

import gzip
import json

import pytest

from experiments.errors import UserError
from experiments.workload.airline_text import AirlineText

CALL = {"id": "x", "type": "function", "function": {"name": "find", "arguments": '{"id":1}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Find me."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "Found.", "name": "find", "tool_call_id": "x"},
    {"role": "assistant", "content": "Done."},
]


def run(task=0, traj=CHAT, **extra):
    return {"task_id": task, "reward": 0.0, "info": {}, "traj": traj, "trial": 0, **extra}


@pytest.fixture(params=["plain", "gzip"])
def runs(request, tmp_path):
    def runs(content):
        data = (content if isinstance(content, str) else json.dumps(content, indent=1)).encode()
        path = tmp_path / "runs"
        path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
        return str(path)

    return runs


def test_every_assistant_message_is_a_request_for_it(runs, cache_dir, smollm2):
    first, second = AirlineText(runs([run()]), cache_dir=cache_dir)
    chat = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nFind me.<|im_end|>\n<|im_start|>assistant\n"
    assert smollm2.decode(first.tokens.tolist()) == chat
    called = chat + '<tool_call>\n{"name": "find", "arguments": {"id":1}}\n</tool_call><|im_end|>\n'
    told = "<|im_start|>tool\nFound.<|im_end|>\n<|im_start|>assistant\n"
    assert smollm2.decode(second.tokens.tolist()) == called + told
    assert second.tokens.packed().startswith(first.tokens.packed())
    assert second.num_output_tokens == len(smollm2.encode("Done.")) + 2  # <|im_end|> and a line feed
    assert (first.session, first.turn, second.turn, second.arrival) == ("0-0", 0, 1, 10.0)


def test_runs_interleave_and_the_limit_cuts(runs, cache_dir):
    path = runs([run(task) for task in range(25)])
    requests = list(AirlineText(path, session_gap=4.0, turn_gap=10.0, cache_dir=cache_dir))
    assert len(requests) == 50
    assert [request.session for request in requests[:4]] == ["0-0", "1-0", "2-0", "0-0"]
    assert [request.arrival for request in requests[:4]] == [0.0, 4.0, 8.0, 10.0]
    limited = list(AirlineText(path, session_gap=4.0, limit=3, cache_dir=cache_dir))
    assert [r.tokens.data for r in limited] == [r.tokens.data for r in requests[:3]]


def test_a_chat_without_system_message_gets_the_models_own(runs, cache_dir, smollm2):
    first, _ = AirlineText(runs([run(traj=CHAT[1:])]), cache_dir=cache_dir)
    assert first.tokens.tolist() == smollm2.chat([("user", "Find me.")])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[{", "as a JSON list of runs"),
        ("{}", "as a JSON list of runs"),
        ([run(), {"task_id": 1}], "run 1 from 0.*traj"),
        ([run(traj=[{"content": "x"}])], "run 0 from 0.*role"),
        ([run(traj=[{"role": "user", "content": 5}])], "content"),
        ([run(task="x")], "task_id"),
        ([], "holds no request"),
        ([run(traj=CHAT[:2])], "holds no request"),
        ("", "as a JSON list of runs"),
    ],
)
def test_a_wrong_file_is_told_with_run_and_field(runs, cache_dir, content, words):
    with pytest.raises(UserError, match=words):
        list(AirlineText(runs(content), cache_dir=cache_dir))
