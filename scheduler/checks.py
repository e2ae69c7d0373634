"""Requests that can never run are refused when they come, with a sentence that says why; the others go on.

Knows nothing of queues.
"""

from __future__ import annotations

from cache.manager import CacheManager
from scheduler.request import Request


class Limits:
    """What the model can take. None: unknown, not checked."""

    def __init__(self, max_model_len: int | None = None, vocab_size: int | None = None, has_text: bool = True) -> None:
        """`has_text`: whether there is a tokenizer, without which stop strings mean nothing."""
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.has_text = has_text

    def refusal(self, request: Request, manager: CacheManager, max_num_seqs: int) -> str | None:
        """Why the request cannot be served, or None."""
        num_tokens, params = len(request.prompt), request.params
        if num_tokens == 0:
            return "the prompt is empty: a model needs at least one token"
        if self.max_model_len is not None and num_tokens >= self.max_model_len:
            return (
                f"the prompt has {num_tokens} tokens; the model takes {self.max_model_len}, and one of them must be "
                f"left for the answer"
            )
        if self.vocab_size is not None and (worst := max(request.prompt.tolist())) >= self.vocab_size:
            return f"token id {worst} is out of range: the model's vocabulary has {self.vocab_size} tokens"
        if manager.num_blocks_for(num_tokens) > manager.allocator.num_blocks:
            return (
                f"the prompt of {num_tokens} tokens needs {manager.num_blocks_for(num_tokens)} blocks of "
                f"{manager.block_size}; the whole pool has {manager.allocator.num_blocks}"
            )
        if request.width > max_num_seqs:
            return f"{request.width} branches are asked for, at most {max_num_seqs} may run at once"
        if params.beam_width and params.n > params.beam_width:
            return f"n={params.n} answers are asked of {params.beam_width} beams"
        if not all(params.stop):
            return "a stop string is empty: it would stop everything at once"
        if params.stop and not self.has_text:
            return "stop strings need a tokenizer, and this engine has none; use stop_token_ids"
        return None
