"""From logits to tokens: greedy or drawn, each row by its own parameters, its own history and its own random numbers.

The number drawn for token t of a request with seed s is a function of (s, t) alone (Philox, Salmon et al. 2011, is a
counter-based generator), so a request says the same alone, in any batch, preempted or not. Order of the steps, as
most systems have it: repetition penalty (Keskar et al. 2019), temperature, top-k (Fan et al. 2018), top-p (Holtzman
et al. 2020), min-p (Nguyen et al. 2024). Log-probabilities are the model's own, before any of them.

Knows nothing of requests, stop rules or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PREFIX = 1024
"""Best candidates looked at first for top-p; the whole vocabulary is sorted only where they are too few."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request is continued. Raises ValueError that names the field out of its range.

    `temperature` 0 is greedy (lowest id on ties). `top_k` 0, `top_p` 1, `min_p` 0 and `repetition_penalty` 1 are off.
    `seed` None draws from the system's entropy. `n` continuations are wanted, the best of `best_of`. `beam_width` > 0
    searches with beams, scored by log-probability / length ** length_penalty. `logprobs`: so many best tokens beside
    each output token, `prompt_logprobs` the same for the prompt.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    beam_width: int = 0
    length_penalty: float = 1.0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        bounds = {
            "max_tokens": self.max_tokens >= 1,
            "temperature": 0 <= self.temperature < float("inf"),
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": 0 < self.repetition_penalty < float("inf"),
            "seed": self.seed is None or self.seed >= 0,
            "n": self.n >= 1,
            "best_of": self.best_of is None or self.best_of >= self.n,
            "beam_width": self.beam_width >= 0,
            "logprobs": self.logprobs is None or self.logprobs >= 0,
            "prompt_logprobs": self.prompt_logprobs is None or self.prompt_logprobs >= 0,
        }
        for name, holds in bounds.items():
            if not holds:
                raise ValueError(f"{name}={getattr(self, name)} is out of its range")

    @property
    def num_top(self) -> int:
        """Best tokens to report with each sampled one: beams need two candidates per beam (one of them may end)."""
        return max(self.logprobs or 0, 2 * self.beam_width)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token, its log-probability under the model, and the best (token id, log-probability), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def sample(
    logits: Tensor, params: Sequence[SamplingParams], histories: Sequence[Sequence[int]], draws: Sequence[int]
) -> list[Sampled]:
    """One token for each row of `logits [rows, vocab]`.

    `histories[r]`: prompt and output so far (read by the repetition penalty only); `draws[r]`: how many tokens that
    request has drawn before. Raises ValueError where a row holds NaN: something read what nobody had written.
    """
    logits = logits.float().cpu()
    greedy, norms = torch.argmax(logits, -1).tolist(), _log_norms(logits)
    out = []
    for r, p in enumerate(params):
        row = logits[r]
        if p.repetition_penalty != 1 and len(histories[r]):
            row = penalised(row, histories[r], p.repetition_penalty)
            greedy[r] = int(torch.argmax(row))
        token = greedy[r] if p.temperature == 0 else _drawn(row, p, uniform(p.seed, draws[r]))
        out.append(_scored(logits[r], norms[r], token, p.num_top))
    return out


def score(logits: Tensor, token_ids: Sequence[int], num_top: int = 0) -> list[Sampled]:
    """The given token for each row of `logits [rows, vocab]`: how likely the model finds a prompt's own tokens."""
    logits = logits.float().cpu()
    norms = _log_norms(logits)
    return [_scored(logits[r], norms[r], token, num_top) for r, token in enumerate(token_ids)]


def uniform(seed: int | None, draw: int) -> float:
    """The number in [0, 1) that draw `draw` of a request with this seed gets."""
    if seed is None:
        return float(np.random.default_rng().random())
    return float(np.random.Generator(np.random.Philox(key=seed % 2**128, counter=draw)).random())


def penalised(row: Tensor, history: Sequence[int], penalty: float) -> Tensor:
    """`row [vocab]` with every token of `history` less likely (for penalty > 1): divided if > 0, else multiplied."""
    seen = torch.tensor(sorted(set(history)))
    row, values = row.clone(), row[seen]
    row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    return row


def best(row: Tensor, count: int) -> Tensor:
    """Ids of the `count` largest of `row [vocab]`, largest first, lower ids first on ties."""
    count = min(count, row.shape[0])
    least = torch.topk(row, count).values[-1]
    ids = (row >= least).nonzero()[:, 0]
    return ids[torch.sort(row[ids], descending=True, stable=True).indices][:count]


def _drawn(row: Tensor, p: SamplingParams, u: float) -> int:
    row = row.double() / p.temperature
    ids = None
    if p.top_k and p.top_k < row.shape[0]:
        ids = best(row, p.top_k)
        row = row[ids]
    weights = torch.exp(row - row.max())
    if p.top_p < 1:
        order = _nucleus(weights, p.top_p)
        ids = order if ids is None else ids[order]
        weights = weights[order]
    if p.min_p:
        keep = (weights >= p.min_p * weights.max()).nonzero()[:, 0]
        ids = keep if ids is None else ids[keep]
        weights = weights[keep]
    ends = torch.cumsum(weights, 0)
    # The weight that u falls into; u < 1 keeps it within, save for rounding at the very end.
    at = min(int(torch.searchsorted(ends, u * float(ends[-1]), right=True)), int(weights.nonzero()[-1, 0]))
    return at if ids is None else int(ids[at])


def _nucleus(weights: Tensor, top_p: float) -> Tensor:
    """Ids of the fewest largest weights whose share reaches `top_p`, largest first."""
    wanted = top_p * float(weights.sum())
    for count in (PREFIX, weights.shape[0]):
        order = best(weights, count)
        ends = torch.cumsum(weights[order], 0)
        if float(ends[-1]) >= wanted or order.shape[0] == weights.shape[0]:
            break
    return order[: int((ends < wanted).sum()) + 1]


def _log_norms(logits: Tensor) -> list[float]:
    # Row by row: how torch cuts a sum among its threads depends on the number of rows, and with it the last bit.
    norms = [float(torch.logsumexp(row, -1)) for row in logits]
    for r, norm in enumerate(norms):
        if norm != norm:
            raise ValueError(f"logits of row {r} hold NaN: the model's weights are broken or it read unwritten K and V")
    return norms


def _scored(row: Tensor, norm: float, token: int, num_top: int) -> Sampled:
    top = best(row, num_top).tolist() if num_top else []
    return Sampled(token, float(row[token]) - norm, tuple((i, float(row[i]) - norm) for i in top))
