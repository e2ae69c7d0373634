"""Splitting the keys changes who computes, not what."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import naive, split_kv
from kernels.attention.parts import Parts
from kernels.attention.splits import choose_num_splits, num_processors
from kernels.tuning import AttentionConfig


@pytest.mark.parametrize("num_splits", [1, 2, 5, 16, 40], ids=lambda n: f"splits{n}")
def test_the_result_does_not_depend_on_the_split_count(num_splits, make_case, agree, device):
    case = make_case([1, 2], [111, 7], block_size=24)  # with 40 splits, most of them have no token
    actual = split_kv.attention(
        *case.args(device), return_lse=True, num_splits=num_splits, config=AttentionConfig(16, 16), validate=True
    )
    agree(actual, naive.attention(*case.args(), return_lse=True))


def test_a_window_leaves_early_splits_empty_not_wrong(make_case, agree, device):
    case = make_case([2], [111])
    actual = split_kv.attention(*case.args(device), return_lse=True, num_splits=4, window=3)
    agree(actual, naive.attention(*case.args(), return_lse=True, window=3))


def test_workspace_garbage_is_never_read(make_case, agree, device, monkeypatch):
    def poisoned(problem, num_parts):
        return Parts(*(t.fill_(float("nan")) for t in original(problem, num_parts)))

    original = split_kv.new_parts
    monkeypatch.setattr(split_kv, "new_parts", poisoned)
    case = make_case([3, 1], [50, 1], heads=6)
    for invariant in (False, True):
        actual = split_kv.attention(*case.args(device), return_lse=True, num_splits=6, invariant=invariant)
        agree(actual, naive.attention(*case.args(), return_lse=True))


def test_few_sequences_get_many_splits_and_many_get_one():
    assert choose_num_splits(8, 32768, 64, 132) >= 16
    assert choose_num_splits(512, 4096, 64, 132) == 1
    assert choose_num_splits(10_000, 32768, 64, 132) == 1


def test_a_batch_that_would_leave_the_last_wave_idle_is_split():
    assert choose_num_splits(160, 32768, 64, 132) > 1


@pytest.mark.parametrize("length", [0, 1, 64, 65])
def test_there_are_never_more_splits_than_key_tiles(length):
    assert 1 <= choose_num_splits(1, length, 64, 132) <= max(1, -(-length // 64))


def test_on_a_cpu_nothing_is_split(device):
    if device == "cpu":
        assert num_processors(torch.zeros(1)) == 1
