"""Collecting garbage seldom is over when the run is, however that ends."""

from __future__ import annotations

import gc

import pytest

from experiments.collector import seldom_collected


def test_the_collector_is_as_it_was_after_a_run_that_failed() -> None:
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(KeyError), seldom_collected():
        assert gc.get_threshold()[0] > usual[0]
        assert gc.get_freeze_count() > frozen
        raise KeyError
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == frozen
