from __future__ import annotations

from collections.abc import Iterator

import pytest
from omegaconf import OmegaConf

from experiments.workload import kept
from experiments.workload.base import Request
from experiments.workload.kept import Kept, kept_workload
from experiments.workload.shared_prefix import SharedPrefix

SHAPE = {"num_requests": 5, "num_prefixes": 2, "prefix_tokens": 8, "suffix_tokens": 3}


class Counted(SharedPrefix):
    walks = 0

    def requests(self) -> Iterator[Request]:
        self.walks += 1
        return super().requests()


def cfg(**options: object):
    return OmegaConf.create({"_target_": "experiments.workload.shared_prefix.SharedPrefix", **SHAPE, **options})


def test_the_second_walk_gives_the_same_requests_without_making_them_again():
    source = Counted(**SHAPE)
    workload = Kept(source)
    first = list(workload)
    assert [r is other for r, other in zip(workload, first, strict=True)] == [True] * 5
    assert source.walks == 1
    assert workload.fingerprint() == source.fingerprint()


def test_a_walk_that_was_not_finished_keeps_nothing():
    source = Counted(**SHAPE)
    workload = Kept(source)
    next(iter(workload))
    assert len(list(workload)) == 5
    assert source.walks == 2


def test_limit_and_time_scale_are_applied_once():
    workload = Kept(SharedPrefix(**SHAPE, limit=3, time_scale=2.0))
    plain = list(SharedPrefix(**SHAPE, limit=3, time_scale=2.0))
    for _ in range(2):
        assert [r.arrival for r in workload] == [r.arrival for r in plain]


def test_the_same_yaml_gives_the_same_object_and_any_change_another_one():
    workload = kept_workload(cfg())
    assert kept_workload(cfg()) is workload
    for change in ({"seed": 1}, {"time_scale": 2.0}, {"request_rate": 9.0}):
        assert kept_workload(cfg(**change)) is not workload


def test_a_workload_of_too_many_tokens_is_walked_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "MOST_TOKENS", 30)
    source = Counted(**SHAPE)
    workload = Kept(source)
    assert list(workload)[4].tokens.packed() == list(workload)[4].tokens.packed()
    assert source.walks == 2
