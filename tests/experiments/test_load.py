"""An overloaded simulation says so; a busy one, a burst and a batch that arrives at once do not."""

from __future__ import annotations

import pytest
from support.conf import composed

from experiments.latency import Row
from experiments.load import arrival_rate, overload
from experiments.simulate import simulate_job

STDLIB = ("workload=stdlib_agent", "gpu=l4", "model=smollm2", "max_requests=60")


def queue(arrivals: list[float], service: float) -> tuple[list[Row], float]:
    """One server, first come first served: the rows, and how many are served per second."""
    free, rows = 0.0, list[Row]()
    for arrival in arrivals:
        free = max(free, arrival)
        rows.append({"arrival": arrival, "queued": free - arrival})
        free += service
    return rows, len(rows) / (free - arrivals[0])


@pytest.mark.parametrize("slower", [1.3, 2.0, 10.0])
def test_a_queue_that_only_grows_is_named_with_both_rates_and_what_to_change(slower: float) -> None:
    rows, served = queue([float(i) for i in range(200)], slower)
    note = overload(rows, served)
    assert note is not None
    assert "1 requests arrive per second" in note
    assert f"{served:.3g} are served" in note
    assert "rate=" in note


@pytest.mark.parametrize("service", [0.1, 0.8, 0.99])
def test_a_system_that_keeps_up_is_not_called_overloaded(service: float) -> None:
    assert overload(*queue([float(i) for i in range(200)], service)) is None


def test_a_burst_that_is_worked_off_before_the_end_is_no_overload() -> None:
    assert overload(*queue([0.0] * 50 + [100.0 + i for i in range(100)], 0.9)) is None


def test_a_batch_that_arrives_at_once_has_no_rate_and_no_overload() -> None:
    rows, served = queue([5.0] * 40, 1.0)
    assert arrival_rate(rows) is None
    assert overload(rows, served) is None


def test_a_request_that_was_never_admitted_is_not_counted_as_waiting() -> None:
    rows = [{"arrival": float(i), "queued": None} for i in range(50)]
    assert overload(rows, 0.1) is None


@pytest.mark.parametrize(("rate", "said"), [(10_000, True), (0.2, False)])
def test_a_simulation_tells_the_arrival_rate_and_notes_an_overload_on_stderr(
    rate: float, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = composed(*STDLIB, f"rate={rate}", config_name="simulate")
    metrics = simulate_job(cfg, lambda row: None).metrics
    assert metrics["arrivals_per_simulated_second"] == pytest.approx(rate)
    assert ("overloaded" in capsys.readouterr().err) is said
