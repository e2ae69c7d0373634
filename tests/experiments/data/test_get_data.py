"""Public data over HTTP, from a server of our own that breaks off, changes its files and says no."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.conf import CONF, composed, options

from experiments.data import download as module
from experiments.data.catalog import catalog, find
from experiments.data.convert import repack_coding_agent, runs
from experiments.data.download import download
from experiments.errors import UserError
from experiments.get_data import get
from experiments.workload.coding_agent import CodingAgent
from experiments.workload.mooncake import Mooncake

CONTENT = bytes(range(256)) * 4000
ROW = b'{"timestamp": 0, "input_length": 513, "output_length": 3, "hash_ids": [0, 1]}\n'


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cut, self.ranges, self.status, self.asked = CONTENT, None, True, 200, []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        if start >= len(server.content) and start:
            self.send_error(416)
            return
        data = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        cut, server.cut = server.cut, None
        self.wfile.write(data[:cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(module, "TIMEOUT", 5.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


SHA = hashlib.sha256(CONTENT).hexdigest()


def test_a_file_arrives_whole_and_checked(server, tmp_path):
    assert download(f"{server.url}/x", tmp_path / "x", SHA) == SHA
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    server.cut = 300_000
    download(f"{server.url}/x", tmp_path / "x", SHA)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-"]


def test_a_later_command_goes_on_with_what_an_earlier_one_got(server, tmp_path):
    (tmp_path / "x.part").write_bytes(CONTENT[:1000])
    download(f"{server.url}/x", tmp_path / "x", SHA)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert server.asked[0][1] == "bytes=1000-"


@pytest.mark.parametrize("part", [b"other bytes", CONTENT + b"more"], ids=["of another version", "too long"])
def test_a_rest_that_does_not_fit_is_thrown_away_and_all_is_fetched(server, tmp_path, part):
    (tmp_path / "x.part").write_bytes(part)
    download(f"{server.url}/x", tmp_path / "x", SHA)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    (tmp_path / "x.part").write_bytes(CONTENT[:1000])
    download(f"{server.url}/x", tmp_path / "x", SHA)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_another_content_is_refused_and_nothing_stays(server, tmp_path):
    with pytest.raises(UserError, match=r"is not the file it should be: its SHA-256 is .* --accept"):
        download(f"{server.url}/x", tmp_path / "x", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_told_with_the_place_to_put_it(server, tmp_path):
    server.status = 404
    with pytest.raises(UserError, match=r"the server says 404 .* put it at .*x"):
        download(f"{server.url}/x", tmp_path / "x", None)


def test_no_connection_is_told_in_one_sentence_and_keeps_what_came(server, tmp_path):
    (tmp_path / "x.part").write_bytes(b"half")
    server.status = 503
    with pytest.raises(UserError, match="503"):
        download(f"{server.url}/x", tmp_path / "x", None)
    with pytest.raises(UserError, match=r"cannot be reached .*on another machine and put it at"):
        download("http://127.0.0.1:9/x", tmp_path / "x", None)
    assert (tmp_path / "x.part").read_bytes() == b"half"


def test_a_fetched_trace_is_what_its_workload_reads(server, tmp_path):
    (data,) = find(["mooncake"])
    server.content = ROW * 3
    with pytest.raises(UserError, match="is not the file it should be"):
        get(data, tmp_path, server.url, accept=False, again=False)
    get(data, tmp_path, server.url, accept=True, again=False)
    assert server.asked[-1][0].endswith("FAST25-release/traces/conversation_trace.jsonl")
    assert gzip.decompress((tmp_path / data.save_as).read_bytes()) == ROW * 3
    assert len(list(Mooncake(str(tmp_path / data.save_as)))) == 3
    asked = len(server.asked)
    get(data, tmp_path, server.url, accept=False, again=False)
    assert len(server.asked) == asked, "what is there is left alone"


def test_raw_coding_sessions_become_one_a_line(tmp_path):
    call = {"t": 0.5, "type": "s", "model": "m", "in": 130, "out": 9, "hash_ids": [1, 2], "input_types": ["text"]}
    later = {**call, "t": 2.0, "in": 200, "hash_ids": [1, 2, 9], "api_time": 1.5}
    with tarfile.open(tmp_path / "raw", "w:gz") as archive:
        for name, calls in (
            ("r/traces/trace_2.json", [call]),
            ("r/traces/trace_1.json", [call, later]),
            ("r/x.json", 1),
        ):
            text = json.dumps({"id": name, "block_size": 64, "requests": calls}).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    repack_coding_agent(tmp_path / "raw", tmp_path / "x.gz")
    requests = list(CodingAgent(str(tmp_path / "x.gz")))
    assert [len(request.tokens) for request in requests] == [130, 200, 130]
    assert runs([1, 2, 3, 7, 8, 5]) == [[1, 3], [7, 2], [5, 1]]


@pytest.mark.parametrize("data", catalog(), ids=lambda data: data.name)
def test_every_data_set_lands_where_its_workload_looks(data):
    assert data.name in options("workload")
    node = OmegaConf.to_container(composed(f"workload={data.name}", "data_dir=here").workload, resolve=True)
    assert node["path"] == f"here/{data.save_as}"
    assert data.url.startswith("https://")
    assert data.sha256 is None or len(data.sha256) == 64


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="Did you mean mooncake_toolagent"):
        find(["mooncake_toolagents"])


def test_the_command_lists_and_refuses_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "experiments.get_data", "--folder", str(tmp_path)]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=CONF.parent, timeout=60)
    assert json.loads(listed.stdout)["names"] == [data.name for data in catalog()]
    offline = [*command, "azure", "--mirror", "http://127.0.0.1:9"]
    done = subprocess.run(offline, capture_output=True, text=True, cwd=CONF.parent, timeout=60)
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(islice(Path(tmp_path).iterdir(), 1)) == []
