"""A model made of hashes, over a store of plain integers: it reads what it predicts from through tables and slots.

What a slot holds is a hash of the token and of everything before it *as found in the store*; logits are a hash of every
slot that a row can see. A wrong slot, a block written while shared, a stale hit or a lost copy changes the tokens, and
a slot nobody has written raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from model.batch import Batch

UNWRITTEN = np.uint64(0)
ODD = np.uint64(0x9E3779B97F4A7C15)


class FakeStore:
    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.device = np.zeros((num_blocks, block_size), np.uint64)
        self.host = np.zeros((num_host_blocks, block_size), np.uint64)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._move(self.device, self.device, pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._move(self.device, self.host, pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._move(self.host, self.device, pairs)

    @staticmethod
    def _move(source: Any, destination: Any, pairs: Sequence[tuple[int, int]]) -> None:
        targets = [to for _, to in pairs]
        assert len(set(targets)) == len(targets), "two moves into one block at once"
        destination[targets] = source[[of for of, _ in pairs]]  # reads all before it writes any, as a kernel may


class FakeRunner:
    def __init__(self, store: FakeStore, vocab_size: int = 40, max_model_len: int = 512, weights: int = 1) -> None:
        self.store = store
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self.weights = weights
        self.num_rows = 0

    def run(self, batch: Batch) -> torch.Tensor:
        num_blocks, block_size = self.store.device.shape
        batch.check(self.vocab_size, self.max_model_len, block_size, num_blocks)
        self.num_rows += batch.num_tokens
        flat = self.store.device.reshape(-1)
        wanted = set(batch.logit_rows)
        seen: dict[int, np.uint64] = {}
        written: set[int] = set()
        with np.errstate(over="ignore"):
            for i, length in enumerate(batch.seq_lens):
                table = np.asarray(batch.block_tables[i], np.int64)
                slots = table[np.arange(length) // block_size] * block_size + np.arange(length) % block_size
                first = batch.query_start_loc[i]
                start = length - (batch.query_start_loc[i + 1] - first)
                assert (flat[slots[:start]] != UNWRITTEN).all(), "a slot is read that nobody wrote"
                for position in range(start, length):
                    row = first + position - start
                    assert batch.slot_mapping[row] == slots[position], "written to one slot, read from another"
                    assert slots[position] not in written, "two rows write one slot"
                    written.add(int(slots[position]))
                    before = flat[slots[position - 1]] if position else np.uint64(self.weights)
                    token = np.uint64(batch.token_ids[row])
                    flat[slots[position]] = _mix(before * ODD + token + np.uint64(position)) | np.uint64(1)
                    if row in wanted:
                        visible = flat[slots[: position + 1]]
                        seen[row] = (visible * _odd_numbers(position + 1)).sum(dtype=np.uint64)
            rows = [
                _mix(seen[row] + np.arange(1, self.vocab_size + 1, dtype=np.uint64) * ODD) for row in batch.logit_rows
            ]
        logits = np.array(rows, np.uint64).reshape(-1, self.vocab_size) >> np.uint64(44)
        return torch.from_numpy(logits.astype(np.float32) / 2**18)


def _odd_numbers(count: int) -> Any:
    return np.arange(1, 2 * count, 2, dtype=np.uint64)


def _mix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(33))
