from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workload.few_shot import FewShot
from experiments.workload.multi_turn import MultiTurn
from experiments.workload.shared_prefix import SharedPrefix
from experiments.workload.zipf_system_prompts import ZipfSystemPrompts

SMALL = {
    SharedPrefix: {"num_requests": 30, "num_prefixes": 4, "prefix_tokens": 32, "suffix_tokens": 5},
    ZipfSystemPrompts: {"num_requests": 30, "num_prefixes": 4, "prefix_tokens": 32, "suffix_tokens": 5},
    MultiTurn: {"num_sessions": 5, "turns": 3, "system_tokens": 8, "user_tokens": 6, "reply_tokens": 10},
    FewShot: {"num_requests": 20, "bank_size": 6, "num_shots": 3, "example_tokens": 8, "instruction_tokens": 4},
}
generators = pytest.mark.parametrize("kind", list(SMALL), ids=lambda kind: kind.__name__)


def walked(workload):
    return [(r.tokens.packed(), r.arrival, r.num_output_tokens, r.session, r.turn, r.category) for r in workload]


@generators
def test_walking_twice_and_building_twice_give_the_same(kind):
    workload = kind(**SMALL[kind])
    assert walked(workload) == walked(workload) == walked(kind(**SMALL[kind]))
    assert workload.fingerprint() == kind(**SMALL[kind]).fingerprint()


@generators
def test_another_seed_gives_other_ids_and_another_fingerprint(kind):
    one, other = kind(**SMALL[kind]), kind(**SMALL[kind], seed=1)
    assert not {r.tokens.packed() for r in one} & {r.tokens.packed() for r in other}
    assert one.fingerprint() != other.fingerprint()


@generators
def test_another_process_makes_the_same_ids(kind):
    digest = hashlib.sha256(b"".join(r.tokens.packed() for r in kind(**SMALL[kind], seed=3))).hexdigest()
    code = (
        f"import hashlib; from {kind.__module__} import {kind.__name__} as kind\n"
        f"w = kind(**{SMALL[kind]!r}, seed=3)\n"
        "print(hashlib.sha256(b''.join(r.tokens.packed() for r in w)).hexdigest())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == digest


@generators
def test_a_limit_cuts_the_same_stream_short(kind):
    assert walked(kind(**SMALL[kind], limit=4)) == walked(kind(**SMALL[kind]))[:4]


@generators
def test_arrivals_start_at_zero_and_never_go_back(kind):
    arrivals = [request.arrival for request in kind(**SMALL[kind])]
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)


@generators
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_an_argument_out_of_range_is_refused_by_name(kind, value):
    with pytest.raises(ValueError, match=r"workload\.vocab_size"):
        kind(**SMALL[kind], vocab_size=value)


@generators
def test_a_negative_seed_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=r"workload\.seed"):
        list(kind(**SMALL[kind], seed=-1))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 40), st.integers(1, 20), st.integers(0, 2**32))
def test_shared_prefix_has_as_many_prefixes_as_asked_and_unique_ends(num_prefixes, prefix, suffix, seed):
    shape = {"num_prefixes": num_prefixes, "prefix_tokens": prefix, "suffix_tokens": suffix}
    requests = list(SharedPrefix(num_requests=15, **shape, seed=seed))
    assert {len(request.tokens) for request in requests} == {prefix + suffix}
    by_category = {(request.category, request.tokens.packed(0, prefix)) for request in requests}
    assert len(by_category) == len({category for category, _ in by_category}) <= num_prefixes
    if suffix > 3:
        assert len({request.tokens.packed(prefix) for request in requests}) == 15


def test_shared_prefix_popularity_follows_zipf_or_nothing():
    shape = {"num_requests": 2000, "num_prefixes": 10, "prefix_tokens": 1, "suffix_tokens": 1}
    skewed = Counter(request.category for request in SharedPrefix(**shape, zipf_exponent=1.0))
    even = Counter(request.category for request in SharedPrefix(**shape, zipf_exponent=0.0))
    assert skewed["prefix-0"] == pytest.approx(2 * skewed["prefix-1"], rel=0.25)
    assert min(even.values()) > 150


def test_multi_turn_histories_grow_and_sessions_interleave():
    requests = list(MultiTurn(num_sessions=6, turns=4, system_tokens=8, user_tokens=6, reply_tokens=10))
    assert len(requests) == 24
    assert len({request.tokens.packed(0, 8) for request in requests}) == 1
    last: dict[str, bytes] = {}
    for request in requests:
        before = last.get(request.session, b"")
        assert request.tokens.packed().startswith(before)
        assert len(request.tokens.packed()) > len(before)
        last[request.session] = request.tokens.packed()
    order = [request.session for request in requests]
    assert order != sorted(order, key=lambda name: order.index(name))


def test_few_shot_draws_different_examples_and_fixed_order_shares_more():
    def distinct_blocks(order):
        prefixes = set()
        for request in FewShot(200, 8, 3, 16, 16, 16, order=order):
            data = request.tokens.packed()
            prefixes |= {data[:end] for end in range(64, len(data) + 1, 64)}
        return len(prefixes)

    request = next(iter(FewShot(5, 8, 8, 16, 16, 16)))
    examples = [request.tokens.packed(start, start + 16) for start in range(16, 144, 16)]
    assert len(set(examples)) == 8
    assert distinct_blocks("fixed") < distinct_blocks("shuffled")


def test_few_shot_refuses_more_shots_than_examples_and_unknown_orders():
    with pytest.raises(ValueError, match=r"workload\.num_shots"):
        FewShot(bank_size=2, num_shots=3)
    with pytest.raises(ValueError, match=r"workload\.order"):
        FewShot(order="random")
