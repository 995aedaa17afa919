"""Clocks, warm-up, repeats, median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Clock(Protocol):
    """Takes times since a start; a run calls `mark` where something is done."""

    def start(self) -> None:
        """Wait for the device to be idle and start again from 0."""

    def mark(self) -> None:
        """Note this moment, without waiting for the device."""

    def read(self) -> list[float]:
        """Milliseconds from the start to each mark, in order."""


class CpuClock:
    """`time.perf_counter`, for work that is done when the call returns."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._moments: list[float] = []

    def start(self) -> None:
        self._moments = [self._now()]

    def mark(self) -> None:
        self._moments.append(self._now())

    def read(self) -> list[float]:
        return [1000 * (moment - self._moments[0]) for moment in self._moments[1:]]


class CudaClock:
    """CUDA events on the current stream of a GPU: a mark is reached when all work that was queued before it is done."""

    def __init__(self, device: str) -> None:
        import torch

        self._cuda, self._device = torch.cuda, device
        self._events: list[Any] = []

    def start(self) -> None:
        self._cuda.synchronize(self._device)
        self._events = []
        self.mark()

    def mark(self) -> None:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        self._events.append(event)

    def read(self) -> list[float]:
        self._cuda.synchronize(self._device)
        first = self._events[0]
        return [float(first.elapsed_time(event)) for event in self._events[1:]]


def device_clock(device: str) -> Clock:
    """The clock for work on a device: CUDA events on a GPU, `perf_counter` on a CPU."""
    return CudaClock(device) if device.startswith("cuda") else CpuClock()


@dataclass(frozen=True)
class Timing:
    """Milliseconds of some repeats.

    Attributes:
        median_ms: their median.
        low_ms, high_ms: their quartiles; with less than four repeats the least and the most.
        repeats: how many there were.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    repeats: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """Median and spread of at least one time."""
        low, high = min(milliseconds), max(milliseconds)
        if len(milliseconds) >= 4:
            low, _, high = statistics.quantiles(milliseconds, n=4, method="inclusive")
        return cls(statistics.median(milliseconds), low, high, len(milliseconds))


def repeat(
    run: Callable[[Clock], None],
    clock: Clock,
    *,
    warmup: int,
    repeats: int,
    seconds: float,
    now: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Run something some times, and give a timing for each of its marks.

    Args:
        run: marks the clock that it is handed at least once, as often each time.
        clock: what to time it with.
        warmup: runs that do not count.  Only one is made where a run takes more than a tenth of `seconds`.
        repeats: runs that count.
        seconds: no further repeat is started when the runs that count have taken this long; the first always is.
        now: wall clock in seconds.
    """
    for _ in range(warmup):
        began = now()
        clock.start()
        run(clock)
        clock.read()
        if now() - began > seconds / 10:
            break
    times = []
    began = now()
    for _ in range(repeats):
        clock.start()
        run(clock)
        times.append(clock.read())
        if now() - began >= seconds:
            break
    return [Timing.of(of_mark) for of_mark in zip(*times, strict=True)]
