"""Collecting garbage seldom is over when the run is, however that ends."""

from __future__ import annotations

import gc

import pytest

from experiments.collector import seldom_collected


def test_the_collector_is_as_it_was_after_a_run_that_failed() -> None:
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    seen = {}

    def run() -> None:
        with seldom_collected():
            seen["threshold"], seen["frozen"] = gc.get_threshold()[0], gc.get_freeze_count()
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert seen["threshold"] > usual[0]
    assert seen["frozen"] > frozen
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == frozen
