"""Clocks, repeats, medians: with a clock that is told what to say."""

from collections.abc import Iterator

import pytest

from mai_plugin.study.profile.clock import Clock, CpuClock, CudaClock, Timing, device_clock, repeat


def moments(*seconds: float):
    left: Iterator[float] = iter(seconds)
    return lambda: next(left)


def test_marks_are_milliseconds_from_the_start():
    clock = CpuClock(moments(10.0, 10.5, 12.0, 100.0, 100.25))
    clock.start()
    clock.mark()
    clock.mark()
    assert clock.read() == [500.0, 2000.0]
    clock.start()  # from 0 again
    clock.mark()
    assert clock.read() == [250.0]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([7.0], Timing(7.0, 7.0, 7.0, 1)),
        ([3.0, 1.0, 100.0], Timing(3.0, 1.0, 100.0, 3)),  # least and most
        ([1.0, 2.0, 3.0, 4.0, 100.0], Timing(3.0, 2.0, 4.0, 5)),  # quartiles: the outlier does not show
    ],
)
def test_median_and_spread(times: list[float], expected: Timing):
    assert Timing.of(times) == expected


def test_on_a_gpu_marks_are_events_and_only_start_and_read_wait(monkeypatch: pytest.MonkeyPatch):
    import torch

    happened: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: str) -> None:
            happened.append(f"event on {stream}")
            self.ms = float(len(happened))

        def elapsed_time(self, later: "Event") -> float:
            return later.ms - self.ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: happened.append(f"wait for {device}"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    clock = device_clock("cuda:1")
    assert isinstance(clock, CudaClock)
    clock.start()
    clock.mark()
    clock.mark()
    assert clock.read() == [1.0, 2.0]
    event = "event on stream of cuda:1"
    assert happened == ["wait for cuda:1", event, event, event, "wait for cuda:1"]


class Told(CpuClock):
    """Each run takes the next of some times, its second mark twice as long."""

    def __init__(self, *ms: float) -> None:
        self.left = list(ms)
        self.marks: list[float] = []
        self.started = 0

    def start(self) -> None:
        self.marks = []
        self.started += 1

    def mark(self) -> None:
        self.marks.append(self.left[0] * (len(self.marks) + 1))

    def read(self) -> list[float]:
        self.left.pop(0)
        return self.marks


def twice(clock: Clock) -> None:
    clock.mark()
    clock.mark()


def test_warm_up_does_not_count():
    clock = Told(1000.0, 1.0, 3.0, 2.0)
    still = moments(*[0.0] * 20)
    assert repeat(twice, clock, warmup=1, repeats=3, seconds=60, now=still) == [
        Timing(2.0, 1.0, 3.0, 3),
        Timing(4.0, 2.0, 6.0, 3),
    ]
    assert clock.started == 4


def test_repeats_end_when_their_time_is_used_up():
    clock = Told(1.0, 2.0, 3.0)
    # began, then after each repeat: 4, 9 and 12 seconds
    (first, _) = repeat(twice, clock, warmup=0, repeats=10, seconds=10, now=moments(0.0, 4.0, 9.0, 12.0))
    assert first == Timing(2.0, 1.0, 3.0, 3)


def test_the_first_repeat_is_always_made_and_a_slow_run_warms_up_once():
    clock = Told(1.0, 5.0)
    # warm-up from 0 to 7: more than a tenth of 2; the repeat from 7 to 14
    assert repeat(twice, clock, warmup=5, repeats=5, seconds=2, now=moments(0, 7, 7, 14))[0].repeats == 1
    assert clock.started == 2
