"""From a publisher's file to the one a workload reads: both are whole or not there.

Knows nothing of downloads.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from experiments.errors import UserError


def compress(source: Path, target: Path) -> None:
    """The same content as gzip; equal inputs give equal files."""
    with open(source, "rb") as data, _gzip(target) as file:
        shutil.copyfileobj(data, file, 1 << 20)


class Call(msgspec.Struct):
    """One request of a raw coding-agent trace."""

    t: float
    type: str
    model: str
    num_in: int = msgspec.field(name="in")
    num_out: int = msgspec.field(name="out")
    hash_ids: list[int] = []
    api_time: float | None = None
    think_time: float | None = None


class Trace(msgspec.Struct):
    """One session of the raw coding-agent traces."""

    id: str
    block_size: int
    requests: list[Call]
    tool_tokens: int = 0
    system_tokens: int = 0


def repack_coding_agent(source: Path, target: Path, members: str = "/traces/trace_") -> None:
    """The repository's archive (tar.gz) as one session a line, ids as runs [first, count]; in order of names.

    Raises UserError where the archive holds no trace, or one of another form.
    """
    sessions = 0
    with tarfile.open(source) as archive, _gzip(target) as file:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if members not in member.name or not member.name.endswith(".json"):
                continue
            content = archive.extractfile(member)
            assert content is not None
            try:
                trace = msgspec.json.decode(content.read(), type=Trace)
            except msgspec.DecodeError as error:
                raise UserError(f"{source}, member {member.name}: {error}. The form has changed.") from None
            file.write(msgspec.json.encode(_session(trace)) + b"\n")
            sessions += 1
        if not sessions:
            raise UserError(f"{source} holds no member named *{members}*.json: the publisher has moved the traces.")


def _session(trace: Trace) -> dict[str, Any]:
    calls = [
        [c.t, c.num_in, c.num_out, c.api_time, c.think_time, c.type, c.model, runs(c.hash_ids)] for c in trace.requests
    ]
    told = {key: getattr(trace, key) for key in ("id", "block_size", "tool_tokens", "system_tokens")}
    return told | {"requests": calls}


def runs(ids: list[int]) -> list[list[int]]:
    """Consecutive ids as [first, count]."""
    found: list[list[int]] = []
    for number in ids:
        if found and number == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


@contextmanager
def _gzip(target: Path) -> Iterator[gzip.GzipFile]:
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(part, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
