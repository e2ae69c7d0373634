"""Policies of the literature once more, in plain lists searched from end to end: slow, short, and sharing no machinery.

Each is written from its source's description with the one change the cache asks for: only candidates may go, so "the
head" is the first candidate. Victims must be those of the fast ones, in the same order. A model takes the parameters of
its policy by the same names.
"""

from __future__ import annotations

from support.slow_policies.base import Slow
from support.slow_policies.hints import Session, TtlPriority, WorkloadAware
from support.slow_policies.lirs import Lirs
from support.slow_policies.queues import Arc, S3Fifo, Sieve, Slru, TwoQ
from support.slow_policies.ranks import Gdsf, LengthAware, LruK, Marconi, Mru, TailLatency
from support.slow_policies.tinylfu import WTinyLfu

SLOW: dict[str, type[Slow]] = {
    "slru": Slru,
    "two_q": TwoQ,
    "arc": Arc,
    "s3fifo": S3Fifo,
    "sieve": Sieve,
    "lirs": Lirs,
    "w_tinylfu": WTinyLfu,
    "lru_k": LruK,
    "gdsf": Gdsf,
    "mru": Mru,
    "length_aware": LengthAware,
    "marconi": Marconi,
    "tail_latency": TailLatency,
    "ttl_priority": TtlPriority,
    "workload_aware": WorkloadAware,
    "session": Session,
}
