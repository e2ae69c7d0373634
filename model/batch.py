"""One step of the engine in integers: what a scheduler decided and a model computes.

    rows        | 0 … q0−1 | q0 … q1−1 | ...          sequence i owns rows query_start_loc[i] : query_start_loc[i+1]
    sequence 0    its newest q0 tokens, at positions seq_lens[0]−q0 … seq_lens[0]−1

Knows nothing of requests, queues or tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Part = tuple[Sequence[int], int, Sequence[int]]
"""New token ids of one sequence, the position of the first of them, the sequence's block table."""


@dataclass(frozen=True, slots=True)
class Batch:
    """New tokens of several sequences, end to end. Row r is one new token; a sequence's rows are its last tokens."""

    token_ids: Sequence[int]
    """[num_tokens]"""
    positions: Sequence[int]
    """[num_tokens], counted from the start of each sequence"""
    slot_mapping: Sequence[int]
    """[num_tokens], block id × block_size + offset; −1 writes nothing"""
    query_start_loc: Sequence[int]
    """[num_seqs + 1], from 0 to num_tokens"""
    seq_lens: Sequence[int]
    """[num_seqs], tokens that have K and V once this step is done"""
    block_tables: Sequence[Sequence[int]]
    """[num_seqs][blocks], at least ceil(seq_len / block_size) each"""
    logit_rows: Sequence[int]
    """Rows whose logits are wanted: the last of a finished prefill, every decode, all for prompt log-probabilities."""

    @classmethod
    def of(cls, parts: Sequence[Part], block_size: int, every_logit: bool = False) -> Batch:
        """The batch of these parts, for callers without a scheduler; logits of each part's last token, or of all."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for new, first, table in parts:
            ids += new
            positions += range(first, first + len(new))
            slots += [table[p // block_size] * block_size + p % block_size for p in range(first, first + len(new))]
            starts.append(len(ids))
        rows = range(len(ids)) if every_logit else [stop - 1 for stop in starts[1:]]
        lens = [first + len(new) for new, first, _ in parts]
        return cls(ids, positions, slots, starts, lens, [table for *_, table in parts], rows)

    @property
    def num_tokens(self) -> int:
        """New tokens of this step."""
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        """Sequences with new tokens."""
        return len(self.seq_lens)

    def check(self, vocab_size: int, max_model_len: int, block_size: int, num_blocks: int) -> None:
        """Raises ValueError that names the field and the sequence or row where the step contradicts itself."""
        starts, n = self.query_start_loc, self.num_tokens
        for name in ("positions", "slot_mapping"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries for {n} tokens")
        if len(starts) != self.num_seqs + 1 or starts[0] != 0 or starts[-1] != n:
            raise ValueError(f"query_start_loc must run from 0 to {n} over {self.num_seqs} sequences")
        if len(self.block_tables) != self.num_seqs:
            raise ValueError(f"block_tables has {len(self.block_tables)} rows for {self.num_seqs} sequences")
        check_token_ids(self.token_ids, vocab_size)
        if n and max(self.slot_mapping) >= num_blocks * block_size:
            end = num_blocks * block_size
            raise ValueError(f"slot_mapping names slot {max(self.slot_mapping)}, the pool ends at {end}")
        if self.logit_rows and not 0 <= min(self.logit_rows) <= max(self.logit_rows) < n:
            raise ValueError(f"logit_rows must lie in 0..{n - 1}, got {min(self.logit_rows)}..{max(self.logit_rows)}")
        for i, (length, table) in enumerate(zip(self.seq_lens, self.block_tables, strict=True)):
            first, last = starts[i], starts[i + 1]
            if not 0 < last - first <= length <= max_model_len:
                new = last - first
                raise ValueError(f"seq_lens[{i}] is {length} with {new} new tokens; the model takes {max_model_len}")
            if self.positions[first] != length - (last - first) or self.positions[last - 1] != length - 1:
                raise ValueError(f"positions of sequence {i} must be its last {last - first} of {length}")
            used = table[: -(-length // block_size)]
            if len(used) * block_size < length or not 0 <= min(used) <= max(used) < num_blocks:
                raise ValueError(f"block_tables[{i}] does not hold {length} tokens in blocks 0..{num_blocks - 1}")


def check_token_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises ValueError that names the first id outside 0..vocab_size−1 and where it stands."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        at = next(i for i, token in enumerate(token_ids) if not 0 <= token < vocab_size)
        raise ValueError(f"token id {token_ids[at]} at index {at} is outside the vocabulary 0..{vocab_size - 1}")
