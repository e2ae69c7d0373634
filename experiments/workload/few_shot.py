"""Generator: an instruction, a few worked examples picked from a bank, and a question.

Models few-shot prompting, where the same examples recur but a prefix cache profits only while they recur in the same
order. With `order: fixed` the picked examples stand in the order of the bank, so that popular ones come first and
prompts share long prefixes; with `order: shuffled` they stand as drawn. The gap between both is what laying out a
prompt for the cache is worth. Popularity follows Zipf's law, arrivals are Poisson, tokens are uniform random ids.

Knows nothing of sessions: every request stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cache.tokens import PackedTokens
from experiments.workload.base import Request
from experiments.workload.checks import check_at_least
from experiments.workload.generator import Generator
from experiments.workload.randomness import random_tokens, stream, zipf


@dataclass(eq=False)
class FewShot(Generator):
    """`num_requests` prompts with `num_shots` different examples out of `bank_size`.

    `order`: "fixed" or "shuffled"; `zipf_exponent`: 0 makes all examples equally popular.
    """

    num_requests: int = 1000
    bank_size: int = 32
    num_shots: int = 5
    instruction_tokens: int = 256
    example_tokens: int = 192
    question_tokens: int = 64
    order: str = "fixed"
    zipf_exponent: float = 1.0
    output_tokens: int = 64
    request_rate: float = 4.0
    vocab_size: int = 49152

    def check(self) -> None:
        check_at_least(1, num_requests=self.num_requests, bank_size=self.bank_size, vocab_size=self.vocab_size)
        check_at_least(0, num_shots=self.num_shots, instruction_tokens=self.instruction_tokens)
        check_at_least(0.0, zipf_exponent=self.zipf_exponent)
        check_at_least(1, example_tokens=self.example_tokens, question_tokens=self.question_tokens)
        check_at_least(0, output_tokens=self.output_tokens)
        check_at_least(1e-9, request_rate=self.request_rate)
        if self.num_shots > self.bank_size:
            raise ValueError(
                f"workload.num_shots must not exceed workload.bank_size ({self.bank_size}), got {self.num_shots}"
            )
        if self.order not in ("fixed", "shuffled"):
            raise ValueError(f"workload.order must be fixed or shuffled, got {self.order}")

    def requests(self) -> Iterator[Request]:
        popularity = zipf(self.bank_size, self.zipf_exponent)
        choose, gaps = stream(self.seed, 0), stream(self.seed, 1)
        instruction = random_tokens(stream(self.seed, 2), self.instruction_tokens, self.vocab_size)
        bank = [
            random_tokens(stream(self.seed, 3, index), self.example_tokens, self.vocab_size)
            for index in range(self.bank_size)
        ]
        arrival = 0.0
        for index in range(self.num_requests):
            shots = choose.choice(self.bank_size, size=self.num_shots, replace=False, p=popularity).tolist()
            if self.order == "fixed":
                shots.sort()
            question = random_tokens(stream(self.seed, 4, index), self.question_tokens, self.vocab_size)
            tokens = PackedTokens(b"".join([instruction, *(bank[shot] for shot in shots), question]))
            yield Request(tokens, arrival, self.output_tokens, category="few_shot")
            arrival += float(gaps.exponential(1 / self.request_rate))

    def expected_requests(self) -> int:
        return self.num_requests
