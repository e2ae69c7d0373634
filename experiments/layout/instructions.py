"""Instructions of an exact length in tokens: whole words, then a rule of dashes up to the length.

    <|im_start|>system\n  instructions … - - -  <|im_end|>\n<|im_start|>user\n   question …
    |──────────────────────── num_tokens: what all prompts begin with ────────|

The dashes are what padding is in practice: text that says nothing and makes the common part end where a block ends.

Knows nothing of block sizes; a caller says how long.
"""

from __future__ import annotations

import re
from itertools import accumulate

from cache.tokens import TOKEN_BYTES
from experiments.workload import stdlib_prompt as words
from experiments.workload.tokenised import Piece, TextEncoder

FILL = " -"
"""One token, however often it is repeated."""
SHORTEST = 32


def instructions_of(num_tokens: int, encoder: TextEncoder) -> str:
    """A system message with which a prompt's first `num_tokens` tokens, up to the question, are always the same.

    Raises ValueError where that is shorter than the template's own tokens, or longer than the built-in text.
    """
    chunks = re.findall(r"\s*\S+", words.SYSTEM)
    frame: list[Piece] = [("system", ""), ("user", None), (None, FILL * 2)]
    sizes = [len(ids) // TOKEN_BYTES for ids in encoder.encode([*frame, *((None, chunk) for chunk in chunks)])]
    ends = list(accumulate(sizes[3:], initial=0))
    room = num_tokens - sizes[0] - sizes[1]
    if num_tokens < SHORTEST or room > ends[-1]:
        most = sizes[0] + sizes[1] + ends[-1]
        raise ValueError(f"common_tokens must lie in {SHORTEST}..{most} (the built-in instructions), got {num_tokens}")
    assert sizes[2] == 2, "the filler is one token each"
    count = max(i for i, end in enumerate(ends) if end <= room)
    return "".join(chunks[:count]) + FILL * (room - ends[count])


def padded(num_tokens: int, block_size: int) -> int:
    """The next multiple of the block size."""
    return -(-num_tokens // block_size) * block_size
