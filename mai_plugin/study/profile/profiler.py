"""The run: which sizes, in which order, what is skipped and why."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mai_plugin.core.text import first_line
from mai_plugin.study.profile.clock import Clock, CpuClock, Timing, device_clock, repeat
from mai_plugin.study.profile.grid import Grid
from mai_plugin.study.profile.models import GB, Source, check_memory, free_memory, load, release
from mai_plugin.study.profile.parts import Parts, Pixels
from mai_plugin.study.profile.result import DECODING, PART_NAMES, PREPROCESSING, TTFT, VISION, Model, Profile, Row

_log = logging.getLogger(__name__)
BATCH_OUTPUT_TOKENS = 128
"""Longest generation at batch sizes above 1."""
SHORT = 4
"""Output tokens of the generation ahead of a long one: warms up, and tells how long the long one will take."""
DTYPES = ("float32", "bfloat16", "float16")


def run(
    sources: Sequence[Source],
    grid: Grid,
    device: str,
    dtype: str,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Measure some models one after the other; each is freed before the next is loaded.

    Args:
        sources: the models.
        grid: what to measure.
        device: `cpu` or `cuda:N`.
        dtype: one of `DTYPES`.
        seed: of random weights, images and query tokens.
        progress: is told what comes next, once for each of `grid.points()` and each model.

    Returns:
        What was measured, also where a later model fails or the user interrupts (`failed` says so).

    Raises:
        ValueError: the weights of a model do not fit: seen before anything is measured.
    """
    for source in sources:
        check_memory(source, device, dtype)
    profile = Profile(describe(device, dtype, seed))
    began = time.perf_counter()
    for number, source in enumerate(sources):
        now = time.perf_counter()
        end = None if grid.time_limit is None else began + grid.time_limit
        deadline = None if end is None else now + (end - now) / (len(sources) - number)
        try:
            progress(f"{source.label}: loading")
            model, processor = load(source, device, dtype, seed)
            profile.environment["attention"] = model.config._attn_implementation
            profile.models.append(_describe_model(source, model))
            _ModelRun(source.label, Parts(model, processor, seed), grid, profile, deadline, progress).run()
        except ValueError as error:
            profile.failed.append(str(error))
        except KeyboardInterrupt:
            profile.failed.append(f"interrupted while {source.label} was measured")
            break
        except Exception as error:  # of a library, whatever it is: what was measured is kept, and the next model tried
            _log.exception("%s", source.label)
            profile.failed.append(f"{source.label}: {first_line(error)}")
        finally:
            model = processor = None
            release(device)
    return profile


def pick_device(device: str | None, dtype: str | None) -> tuple[str, str]:
    """The device and dtype to use: a GPU in bfloat16 if there is one, else the CPU in float32.

    Raises:
        ValueError: there is no such one.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    chosen = device or ("cuda" if gpus else "cpu")
    chosen = "cuda:0" if chosen == "cuda" else chosen
    known = ["cpu", *(f"cuda:{number}" for number in range(gpus))]
    if chosen not in known:
        raise ValueError(f"--device {device}: expected {' or '.join(known)} here")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"--dtype {dtype}: expected {', '.join(DTYPES)}")
    return chosen, dtype or ("float32" if chosen == "cpu" else "bfloat16")


def describe(device: str, dtype: str, seed: int) -> dict[str, Any]:
    """Where and how it is measured."""
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for name in ("torchvision", "mai-plugin"):
        with suppress(PackageNotFoundError):  # run from its source, without being installed
            versions[name] = version(name)
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "seed": seed,
        "python": platform.python_version(),
        "versions": versions,
    }


def _describe_model(source: Source, model: Any) -> Model:
    parameters = sum(weight.numel() for weight in model.parameters())
    return Model(source.label, source.name, source.weights, parameters, *source.layers, *source.vision_layers)


class _ModelRun:
    """One loaded model on its way through the grid."""

    def __init__(
        self, label: str, parts: Parts, grid: Grid, profile: Profile, deadline: float | None,
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._label, self._parts, self._grid, self._profile = label, parts, grid, profile
        self._deadline, self._progress = deadline, progress
        self._device = str(parts.device)
        self._clock = device_clock(self._device)
        self._pixels: dict[int, Pixels] = {}
        self._full = False  # whether the last size was too large for the device
        self._last: dict[str, tuple[float, float]] = {}  # part -> work and seconds of the last size

    def run(self) -> None:
        grid = self._grid
        for side in sorted({*grid.image_sides, *grid.ttft_sides, *grid.decode_sides}):
            self._preprocess(side, side in grid.image_sides)
            if side in grid.image_sides:
                self._encode(side)
            if side not in (*grid.ttft_sides, *grid.decode_sides):
                self._pixels.pop(side, None)  # 400 MB at 4096 pixels
        for side in grid.ttft_sides:
            for query in grid.query_tokens:
                self._first_token(side, query, 1)
        for side in grid.decode_sides:
            for query in grid.decode_query_tokens:
                self._decode(side, query, grid.output_tokens, 1)
        side, query = grid.decode_sides[0], grid.decode_query_tokens[0]
        lengths = [n for n in grid.output_tokens if n <= BATCH_OUTPUT_TOKENS] or [grid.output_tokens[0]]
        for batch in grid.batch_sizes:
            if batch > 1:
                self._first_token(side, query, batch)
                self._decode(side, query, lengths, batch)

    def _preprocess(self, side: int, wanted: bool) -> None:
        with self._size(f"{PART_NAMES[PREPROCESSING]}, {side} px", wanted):
            self._check_memory(self._parts.preprocess_memory(side), "cpu")
            seconds = self._check_time(PREPROCESSING, side**2)
            image = self._parts.image(side)
            timings = (
                self._repeat(_marked(lambda: self._parts.preprocess(image)), CpuClock(), seconds) if wanted else []
            )
            self._pixels[side] = self._parts.pixels(self._parts.preprocess(image))
            for timing in timings:
                self._add(PREPROCESSING, side, timing, side**2)

    def _encode(self, side: int) -> None:
        with self._size(f"{PART_NAMES[VISION]}, {side} px"):
            pixels = self._image(side)
            work = self._parts.vision_work(pixels)
            self._check_memory(self._parts.vision_memory(pixels), self._device)
            seconds = self._check_time(VISION, work)
            tensors = self._parts.on_device(pixels)
            (timing,) = self._repeat(_marked(lambda: self._parts.encode_image(tensors)), self._clock, seconds)
            self._add(VISION, side, timing, work)

    def _first_token(self, side: int, query: int, batch: int) -> None:
        with self._size(f"{PART_NAMES[TTFT]}, {_shape(side, query, batch)}"):
            pixels = self._image(side)
            seconds = self._check_prompt(pixels, query, 1, batch)
            inputs = self._parts.prompt(pixels, query, batch)
            (timing,) = self._repeat(lambda clock: self._parts.generate(inputs, [1], clock), self._clock, seconds)
            self._add(TTFT, side, timing, self._parts.prompt_work(pixels, query, batch), query=query, batch=batch)

    def _decode(self, side: int, query: int, lengths: Sequence[int], batch: int) -> None:
        with self._size(f"{PART_NAMES[DECODING]}, {_shape(side, query, batch)}"):
            pixels = self._image(side)
            seconds = self._check_prompt(pixels, query, lengths[0], batch)
            inputs = self._parts.prompt(pixels, query, batch)
            # Long generations are not repeated to warm up: short ones, of which the last tells what a step takes.
            for _ in range(max(1, self._grid.warmup)):
                self._clock.start()
                self._parts.generate(inputs, [1, SHORT], self._clock)
                first, short = (ms / 1000 for ms in self._clock.read())
            step = (short - first) / (SHORT - 1)
            fitting = []
            for n in lengths:
                try:
                    self._check_context(pixels, query, n)
                    self._check_seconds(first + (n - 1) * step)
                    self._check_memory(self._parts.prompt_memory(pixels, query, n, batch), self._device)
                    fitting.append(n)
                except _SkipSize as reason:
                    self._skip(f"{PART_NAMES[DECODING]}, {_shape(side, query, batch)}, {n} output tokens", str(reason))
            if not fitting:
                return
            timings = self._repeat(lambda clock: self._parts.generate(inputs, fitting, clock), self._clock, seconds, 0)
            for n, timing in zip(fitting, timings, strict=True):
                self._add(DECODING, side, timing, query=query, output=n, batch=batch)

    def _repeat(
        self, once: Callable[[Clock], Any], clock: Clock, seconds: float, warmup: int | None = None
    ) -> list[Timing]:
        warmup = self._grid.warmup if warmup is None else warmup
        return repeat(once, clock, warmup=warmup, repeats=self._grid.repeats, seconds=seconds)

    def _add(
        self, part: str, side: int, timing: Timing, work: float | None = None, *, query: int | None = None,
        output: int | None = None, batch: int = 1,
    ) -> None:  # fmt: skip
        if work is not None:
            self._last[part] = work, timing.median_ms / 1000
        self._profile.rows.append(
            Row(
                self._label, part, side, self._pixels[side].image_tokens, query, output, batch,
                timing.median_ms, timing.low_ms, timing.high_ms, timing.repeats,
            )
        )  # fmt: skip

    @contextmanager
    def _size(self, what: str, counted: bool = True) -> Iterator[None]:
        """One size: what does not fit is skipped with a line."""
        import torch

        if counted:
            self._progress(f"{self._label}: {what}")
        if self._full:  # now, when the error of the last size and what it refers to are gone
            release(self._device)
            self._full = False
        reason = ""
        try:
            yield
        except _SkipSize as error:
            reason = str(error)
        except (torch.cuda.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if type(error) is RuntimeError and "can't allocate memory" not in str(error):  # torch's words on a CPU
                raise
            reason, self._full = f"it does not fit the memory of {self._device}", True
        if reason:
            self._skip(what, reason)

    def _skip(self, what: str, reason: str) -> None:
        self._profile.skipped.append(f"{self._label}: {what}: skipped, {reason}")

    def _image(self, side: int) -> Pixels:
        if side not in self._pixels:
            raise _SkipSize("its image was not preprocessed")
        return self._pixels[side]

    def _check_prompt(self, pixels: Pixels, query: int, output: int, batch: int) -> float:
        self._check_context(pixels, query, output)
        self._check_memory(self._parts.prompt_memory(pixels, query, output, batch), self._device)
        return self._check_time(TTFT, self._parts.prompt_work(pixels, query, batch))

    def _check_context(self, pixels: Pixels, query: int, output: int) -> None:
        tokens = pixels.image_tokens + 2 + query + output
        if tokens > self._parts.context:
            raise _SkipSize(f"its {tokens:,} tokens do not fit the context of {self._parts.context:,} tokens")

    def _check_memory(self, needed: float, device: str) -> None:
        """On a CPU, where too much memory ends the process; a GPU reports it itself."""
        if device == "cpu" and needed > (free := free_memory(device)):
            raise _SkipSize(f"it needs about {needed / GB:.1f} GB and {free / GB:.1f} GB are free")

    def _check_time(self, part: str, work: float) -> float:
        """Predict a size's time from the last one of its part, in proportion to the work.

        Returns:
            Seconds for its repeats.
        """
        last_work, last_seconds = self._last.get(part, (1.0, 0.0))
        return self._check_seconds(last_seconds * work / last_work)

    def _check_seconds(self, predicted: float) -> float:
        most = self._grid.max_seconds
        if predicted > most:
            raise _SkipSize(f"it would take about {predicted:,.0f} s: more than --max-seconds {most:g}")
        if self._deadline is not None:
            left = self._deadline - time.perf_counter()
            if left <= max(0.0, predicted):
                raise _SkipSize(f"its model's share of --time-limit {self._grid.time_limit:g} is used up")
            return min(most, left)
        return most


class _SkipSize(Exception):
    """Why a size is left out."""


def _marked(work: Callable[[], Any]) -> Callable[[Clock], None]:
    """Some work with a mark at its end."""

    def once(clock: Clock) -> None:
        work()
        clock.mark()

    return once


def _shape(side: int, query: int, batch: int) -> str:
    return f"{side} px, {query} query tokens" + (f", batch {batch}" if batch > 1 else "")
