"""Generator: prompts that begin with one of a few long prefixes and end in something of their own.

Models an application with several system prompts, or questions about a set of documents: which prefix comes next
follows Zipf's law, as popularity tends to. Arrivals are Poisson. All tokens are uniform random ids.

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
class SharedPrefix(Generator):
    """`num_requests` prompts of `prefix_tokens` shared and `suffix_tokens` unique tokens each.

    `zipf_exponent`: 0 makes all prefixes equally popular; `request_rate`: mean requests per second.
    """

    num_requests: int = 1000
    num_prefixes: int = 20
    prefix_tokens: int = 1024
    suffix_tokens: int = 128
    zipf_exponent: float = 1.0
    output_tokens: int = 128
    request_rate: float = 2.0
    vocab_size: int = 49152

    def check(self) -> None:
        check_at_least(1, num_requests=self.num_requests, num_prefixes=self.num_prefixes, vocab_size=self.vocab_size)
        check_at_least(0, prefix_tokens=self.prefix_tokens, output_tokens=self.output_tokens)
        check_at_least(0.0, zipf_exponent=self.zipf_exponent)
        check_at_least(1, suffix_tokens=self.suffix_tokens)
        check_at_least(1e-9, request_rate=self.request_rate)

    def requests(self) -> Iterator[Request]:
        prefixes: dict[int, bytes] = {}
        popularity = zipf(self.num_prefixes, self.zipf_exponent)
        choose, gaps = stream(self.seed, 0), stream(self.seed, 1)
        arrival = 0.0
        for index in range(self.num_requests):
            which = int(choose.choice(self.num_prefixes, p=popularity))
            if which not in prefixes:
                prefixes[which] = random_tokens(stream(self.seed, 2, which), self.prefix_tokens, self.vocab_size)
            suffix = random_tokens(stream(self.seed, 3, index), self.suffix_tokens, self.vocab_size)
            tokens = PackedTokens(prefixes[which] + suffix)
            yield Request(tokens, arrival, self.output_tokens, category=f"prefix-{which}")
            arrival += float(gaps.exponential(1 / self.request_rate))

    def expected_requests(self) -> int:
        return self.num_requests
