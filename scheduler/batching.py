"""A step as the integers a model takes.

Knows nothing of requests beyond their tokens and tables.
"""

from __future__ import annotations

from model.batch import Batch
from scheduler.step import Step


def build_batch(step: Step, block_size: int) -> Batch:
    """Chunks first, then decodes; rows that need logits in the same order. All lists, one pass, nothing per block.

    A decoding branch's newest token may lie beyond what its sequence holds, but never beyond its block table.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts = [0]
    seq_lens: list[int] = []
    tables: list[list[int]] = []
    logit_rows: list[int] = []
    for chunk in step.chunks:
        seq = chunk.branch.seq
        table, start, stop = seq.block_table, chunk.start, chunk.stop
        token_ids += seq.token_ids_between(start, stop)
        positions += range(start, stop)
        for i in range(start // block_size, -(-stop // block_size)):
            first = table[i] * block_size
            low, high = max(start - i * block_size, 0), min(stop - i * block_size, block_size)
            slots += range(first + low, first + high)
        row = starts[-1]
        if chunk.scores_prompt:
            logit_rows += range(row, row + stop - start)
        elif chunk.samples:
            logit_rows.append(row + stop - start - 1)
        starts.append(row + stop - start)
        seq_lens.append(stop)
        tables.append(table)
    row = starts[-1]
    for branch in step.decodes:
        seq = branch.seq
        length, table = branch.num_tokens, seq.block_table
        position = length - 1
        token_ids.append(branch.outputs[-1])
        positions.append(position)
        slots.append(table[position // block_size] * block_size + position % block_size)
        seq_lens.append(length)
        tables.append(table)
    decode_rows = range(row, row + len(step.decodes))
    logit_rows += decode_rows
    starts += [at + 1 for at in decode_rows]
    return Batch(token_ids, positions, slots, starts, seq_lens, tables, logit_rows)
