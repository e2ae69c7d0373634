"""The timer's arithmetic on a made-up device that runs what is enqueued in order, behind a host that takes its time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.ablation.ceilings import Ceilings, measure_ceilings
from experiments.ablation.timing import DeviceTimer, HostTimer, Quantiles, quantiles

FLUSH = 100e-6


@dataclass
class Device:
    """Host and device time in seconds; the device begins a task when it is enqueued and its predecessor has ended."""

    host: float = 0.0
    free: float = 0.0
    calls: int = 0
    flushed_before: list[int] = field(default_factory=list)
    flushes: int = 0

    def enqueue(self, host_seconds: float, device_seconds: float) -> None:
        self.host += host_seconds
        self.free = max(self.free, self.host) + device_seconds

    def flush(self) -> None:
        self.flushes += 1
        self.enqueue(2e-6, FLUSH)

    def call(self, host_seconds: float, device_seconds: float) -> None:
        self.calls += 1
        self.flushed_before.append(self.flushes)
        self.flushes = 0
        self.enqueue(host_seconds, device_seconds)

    def synchronize(self) -> None:
        self.host = max(self.host, self.free)

    def timer(self, **limits) -> DeviceTimer:
        return DeviceTimer(lambda: Event(self), self.flush, self.synchronize, lambda: self.host, **limits)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        self.at = max(self.device.free, self.device.host)

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


@pytest.mark.parametrize("host", [5e-6, 90e-6, 3e-3], ids=["quick host", "slow host", "very slow host"])
@pytest.mark.parametrize("device", [3e-6, 250e-6, 20e-3], ids=["short", "medium", "long"])
def test_the_time_of_the_host_is_no_part_of_a_measurement(host, device):
    machine = Device()
    found = machine.timer().measure(lambda: machine.call(host, device))
    assert found.p20 == pytest.approx(device, rel=1e-6)
    assert found.p80 == pytest.approx(device, rel=1e-6)
    timed = machine.flushed_before[-found.samples :]
    assert min(timed) * FLUSH >= host, "the device is kept busy for as long as the host takes to enqueue"


def test_the_first_calls_compile_and_are_not_timed():
    machine = Device()

    def call() -> None:
        machine.call(1e-6, 5.0 if machine.calls < 2 else 1e-3)

    assert machine.timer().measure(call).p80 == pytest.approx(1e-3)


def test_a_measurement_takes_about_the_seconds_it_is_given_and_some_samples_in_any_case():
    short, long = Device(), Device()
    assert short.timer(seconds=0.1).measure(lambda: short.call(1e-6, 1e-3)).samples == pytest.approx(90, abs=12)
    assert long.timer(seconds=0.1, least=7).measure(lambda: long.call(1e-6, 1.0)).samples == 7


def test_back_to_back_a_call_costs_what_the_slower_of_host_and_device_takes():
    for host, device in ((50e-6, 4e-6), (5e-6, 400e-6)):
        machine = Device()
        found = machine.timer().host_seconds(lambda m=machine, h=host, d=device: m.call(h, d))
        assert found == pytest.approx(max(host, device), rel=0.05)


def test_the_host_timer_times_by_its_clock_after_a_warm_up():
    ticks = iter(range(100))
    found = HostTimer(clock=lambda: next(ticks), seconds=0.0, least=4).measure(lambda: None)
    assert (found.p50, found.samples) == (1.0, 4)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=50))
def test_quantiles_are_those_of_numpy(samples):
    found = quantiles(samples)
    expected = np.quantile(samples, [0.2, 0.5, 0.8])
    assert [found.p20, found.p50, found.p80] == pytest.approx(list(expected), rel=1e-9, abs=1e-9)


def test_ceilings_count_bytes_both_ways_and_two_operations_per_multiply_and_add():
    class Fixed(HostTimer):
        def measure(self, call):
            call()
            return Quantiles(0.5, 0.5, 0.5, 1)

    found = measure_ceilings(torch.device("cpu"), Fixed(), "fp32", copy_bytes=4096, size=16)
    assert found.copy == 2 * 4096 / 0.5
    assert found.product == 2 * 16**3 / 0.5


def test_the_floor_is_the_slower_of_the_two_ceilings():
    ceilings = Ceilings(copy=100.0, product=1000.0, dtype="bf16")
    assert ceilings.floor_seconds(200, 1000) == (2.0, "bytes")
    assert ceilings.floor_seconds(10, 1000) == (1.0, "flops")
