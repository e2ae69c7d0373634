"""A log of KV cache events, as vLLM and SGLang publish them, as a trace: python -m experiments.kv_events LOG TRACE.

The log is jsonl, one published batch a line, in either form (a subscriber decodes each msgpack payload of the engine's
ZMQ topic and writes it as JSON; further places and fields are ignored):

    [1730000000.5, [["BlockStored", [11, 12], null, [5, 6, 7, 8], 2, null], ["BlockRemoved", [11]]]]
    {"ts": 1730000000.5, "events": [{"type": "BlockStored", "block_hashes": [11, 12], "parent_block_hash": null,
     "token_ids": [5, 6, 7, 8], "block_size": 2, "lora_id": null}]}

Places of a stored event: hashes, hash of the block before them or null, token ids, block size, LoRA id, medium, LoRA
name. The trace is jsonl of `token_ids`, `timestamp` and `lora`, which `workload=mine` and `token_profile` read.

What an engine stores is told, not what it is asked. So a request that found all its blocks leaves nothing, the last
partial block of every prompt is missing, and where a prompt ends and its answer begins is unknown: blocks that follow
the end of a sequence within --gap seconds go on with it, later ones are the next request with the same beginning.

Knows nothing of what the blocks were for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cache.tokens import int32
from experiments.atomic import json_line, write_whole
from experiments.cli import cli
from experiments.errors import UserError
from experiments.workload.files import TraceFile
from experiments.workload.rows import encoding_hint, form_hint

GAP = 2.0
Hash = int | str


class Stored(msgspec.Struct, array_like=True, tag="BlockStored"):
    """Blocks that became findable, front to back."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None


class Removed(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    """Blocks that went."""

    block_hashes: list[Hash]
    medium: str | None = None


class Cleared(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    """All of them went."""


FORM = '[0.5, [["BlockStored", ...]]] or {"ts": 0.5, "events": [{"type": "BlockStored", ...}]}'


class Batch(msgspec.Struct, array_like=True):
    """What was published at once."""

    ts: float
    events: list[Stored | Removed | Cleared]


class StoredObject(msgspec.Struct, tag="BlockStored", tag_field="type"):
    """The same with names."""

    block_hashes: list[Hash]
    token_ids: list[int]
    block_size: int
    parent_block_hash: Hash | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None


class RemovedObject(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    """The same with names."""

    block_hashes: list[Hash]
    medium: str | None = None


class ClearedObject(msgspec.Struct, tag="AllBlocksCleared", tag_field="type"):
    """The same with names."""


class BatchObject(msgspec.Struct):
    """The same with names."""

    ts: float
    events: list[StoredObject | RemovedObject | ClearedObject]


@dataclass(slots=True)
class Block:
    """One block and the one before it."""

    before: Block | None
    tokens: list[int]


@dataclass(slots=True)
class Request:
    """A sequence as far as it was stored."""

    start: float
    last: float
    end: Block
    lora: str | None


@dataclass(slots=True)
class Trace:
    """What a log comes to."""

    requests: list[Request] = field(default_factory=list)
    orphans: int = 0
    """Stored events behind a block from before the log began."""


def read_log(path: Path) -> Iterator[tuple[float, list[Any]]]:
    """(time, events) of every line. Raises UserError naming the line for anything else."""
    file = TraceFile(path, None)
    arrays, objects = msgspec.json.Decoder(Batch), msgspec.json.Decoder(BatchObject)
    for number, line in file.lines():
        try:
            batch = objects.decode(line) if line.lstrip().startswith(b"{") else arrays.decode(line)
        except (ValueError, RecursionError) as error:
            hint = encoding_hint(line, number) or form_hint(line.lstrip().replace(b"{", b"[", 1), FORM)
            raise file.problem(number, f"{error}{hint}") from None
        for event in batch.events:
            if isinstance(event, Stored | StoredObject):
                wanted = len(event.block_hashes) * event.block_size
                if event.block_size < 1 or len(event.token_ids) != wanted:
                    what = f"{len(event.block_hashes)} blocks of {event.block_size} tokens need {wanted} `token_ids`"
                    raise file.problem(number, f"{what}, got {len(event.token_ids)}")
                try:
                    int32(event.token_ids)
                except ValueError as error:
                    raise file.problem(number, error) from None
        yield batch.ts, batch.events


def trace_of(log: Iterator[tuple[float, list[Any]]], gap: float = GAP) -> Trace:
    """Requests in order of their first stored block. Memory: one node per distinct block stored."""
    found, blocks, open_ends = Trace(), dict[tuple[Any, Hash], Block](), dict[int, Request]()
    for time, events in log:
        for event in events:
            if isinstance(event, Cleared | ClearedObject):
                blocks.clear()
                open_ends.clear()
                continue
            where = event.medium or "GPU"
            if isinstance(event, Removed | RemovedObject):
                for key in event.block_hashes:
                    blocks.pop((where, key), None)
                continue
            before: Block | None = None
            if event.parent_block_hash is not None:
                before = blocks.get((where, event.parent_block_hash))
                if before is None:
                    found.orphans += 1
                    continue
            request = open_ends.pop(id(before), None) if before is not None else None
            for i, key in enumerate(event.block_hashes):
                tokens = event.token_ids[i * event.block_size : (i + 1) * event.block_size]
                before = blocks[where, key] = Block(before, tokens)
            if before is None:
                continue
            if request is None or time - request.last > gap:
                name = event.lora_name or (None if event.lora_id is None else str(event.lora_id))
                request = Request(time, time, before, name)
                found.requests.append(request)
            request.last, request.end = time, before
            open_ends[id(before)] = request
    return found


def rows(trace: Trace) -> Iterator[dict[str, Any]]:
    """Rows of `workload=mine`, times counted from the first."""
    for request in trace.requests:
        parts, block = [], request.end
        while True:
            parts.append(block.tokens)
            if block.before is None:
                break
            block = block.before
        row: dict[str, Any] = {
            "token_ids": [token for part in reversed(parts) for token in part],
            "timestamp": round(request.start - trace.requests[0].start, 6),
        }
        yield row if request.lora is None else {**row, "lora": request.lora}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.kv_events", description=__doc__.split("\n\n")[0])
    parser.add_argument("log", type=Path, help="jsonl of event batches, plain or gzip")
    parser.add_argument("trace", type=Path, help="the file to write")
    parser.add_argument(
        "--gap", type=float, default=GAP, help="seconds after which a sequence that grows is asked anew"
    )
    options = parser.parse_args()
    trace = trace_of(read_log(options.log), options.gap)
    if not trace.requests:
        raise UserError(
            f"{options.log} stores no block whose beginning is in the log: record from the start of an engine."
        )
    if trace.orphans:
        print(f"note: {trace.orphans:,} stored events follow blocks from before the log began and are left out",
              file=sys.stderr)  # fmt: skip
    lines = [msgspec.json.encode(row) for row in rows(trace)]
    options.trace.parent.mkdir(parents=True, exist_ok=True)
    write_whole(options.trace, b"\n".join([*lines, b""]))
    print(f"try: python -m experiments.token_profile path={options.trace}", file=sys.stderr, flush=True)
    print(json_line({"requests": len(lines), "orphans": trace.orphans, "trace": str(options.trace)}))


if __name__ == "__main__":
    cli(main)
