"""Time per call, by a clock that can be swapped: CUDA events on a GPU, the host's clock elsewhere.

    flush ... flush | begin | call | end        the flushes empty the L2, and keep the GPU busy for as long as the host
                                                takes to enqueue the call, so the host's time is no part of the result

A call is warmed up first, which compiles and tunes whatever it compiles and tunes. `host_seconds` is what one call
costs in a loop that never waits for the device until its end: launch overhead included, caches warm.

Knows nothing of what is called.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds."""

    p20: float
    p50: float
    p80: float
    samples: int


def quantiles(samples: Sequence[float]) -> Quantiles:
    """Of at least one sample, by linear interpolation."""
    ordered = sorted(samples)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Quantiles(at(0.2), at(0.5), at(0.8), len(ordered))


class Timer(ABC):
    """`seconds`: about how long one measurement may take; `least`: samples taken in any case."""

    def __init__(self, seconds: float = 0.15, least: int = 10, most: int = 200) -> None:
        self.seconds, self.least, self.most = seconds, least, most

    @abstractmethod
    def measure(self, call: Call) -> Quantiles:
        """Seconds on the device, L2 flushed before each call. Whatever `call` raises is passed on."""

    @abstractmethod
    def host_seconds(self, call: Call) -> float:
        """Seconds per call, back to back."""

    def enough(self, first: float) -> int:
        """How many samples of `first` seconds fit."""
        return max(self.least, min(self.most, int(self.seconds / max(first, 1e-9))))


class HostTimer(Timer):
    """For a CPU: what the interpreter or plain torch takes. Says nothing about a GPU."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, **limits: Any) -> None:
        super().__init__(**limits)
        self._clock = clock

    def measure(self, call: Call) -> Quantiles:
        call()
        samples = [self._once(call)]
        samples += [self._once(call) for _ in range(self.enough(samples[0]) - 1)]
        return quantiles(samples)

    def host_seconds(self, call: Call) -> float:
        call()
        return min(self._once(call) for _ in range(self.least))

    def _once(self, call: Call) -> float:
        begin = self._clock()
        call()
        return self._clock() - begin


class DeviceTimer(Timer):
    """By events on a stream. The device is handed in as functions, so that the arithmetic can be tested without one.

    `event()` makes something with `record()` and `elapsed_time(other)` in milliseconds; `flush()` enqueues a write
    larger than the L2; `synchronize()` waits for all that is enqueued; `clock()` is the host's, in seconds.
    """

    WARM_UP = 3
    MARGIN = 1.5
    MOST_FLUSHES = 100

    def __init__(
        self,
        event: Callable[[], Any],
        flush: Callable[[], Any],
        synchronize: Callable[[], Any],
        clock: Callable[[], float] = time.perf_counter,
        **limits: Any,
    ) -> None:
        super().__init__(**limits)
        self._event, self._flush, self._synchronize, self._clock = event, flush, synchronize, clock

    def measure(self, call: Call) -> Quantiles:
        for _ in range(self.WARM_UP):
            call()
        self._synchronize()
        enqueue = self._enqueue_seconds(call)
        flush = self._device_seconds(self._flush, flushes=1)
        flushes = min(self.MOST_FLUSHES, 1 + int(self.MARGIN * enqueue / max(flush, 1e-9)))
        first = self._device_seconds(call, flushes)
        count = self.enough(first + flushes * flush + enqueue)
        pairs = [self._enqueue(call, flushes) for _ in range(count)]
        self._synchronize()
        return quantiles([begin.elapsed_time(end) / 1e3 for begin, end in pairs])

    def host_seconds(self, call: Call) -> float:
        for _ in range(self.WARM_UP):
            call()
        self._synchronize()
        count = max(5, min(50, self.enough(3 * self._run(call, 1))))
        return min(self._run(call, count) for _ in range(3)) / count

    def _run(self, call: Call, count: int) -> float:
        begin = self._clock()
        for _ in range(count):
            call()
        self._synchronize()
        return self._clock() - begin

    def _enqueue(self, call: Call, flushes: int) -> tuple[Any, Any]:
        begin, end = self._event(), self._event()
        for _ in range(flushes):
            self._flush()
        begin.record()
        call()
        end.record()
        return begin, end

    def _device_seconds(self, call: Call, flushes: int) -> float:
        begin, end = self._enqueue(call, flushes)
        self._synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _enqueue_seconds(self, call: Call) -> float:
        """Host time to enqueue one call on an idle device; the smallest of three."""
        best = float("inf")
        for _ in range(3):
            begin = self._clock()
            call()
            best = min(best, self._clock() - begin)
            self._synchronize()
        return best


def cuda_timer(device: Any, **limits: Any) -> DeviceTimer:
    """A `DeviceTimer` on a CUDA (or ROCm) device; the flush writes four times its L2, at least 256 MiB."""
    import torch

    size = max(256 << 20, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
    scratch = torch.empty(size // 4, dtype=torch.int32, device=device)
    return DeviceTimer(
        lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call]  # torch gives it no types
        scratch.zero_,
        lambda: torch.cuda.synchronize(device),
        **limits,
    )
