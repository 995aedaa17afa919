"""The run: points, and what is skipped with which line."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from helpers.checkpoints import random_internvl, random_qwen3_vl

from mai_plugin.study.profile import profiler
from mai_plugin.study.profile.grid import QUICK, Grid
from mai_plugin.study.profile.models import resolve
from mai_plugin.study.profile.parts import Parts
from mai_plugin.study.profile.profiler import pick_device, run
from mai_plugin.study.profile.result import DECODING, PREPROCESSING, TTFT, VISION, Profile

TINY = Grid(
    image_sides=(64, 128), ttft_sides=(64,), query_tokens=(8, 16), decode_sides=(64,), decode_query_tokens=(8,),
    output_tokens=(2, 6), batch_sizes=(1, 2), warmup=1, repeats=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_qwen3_vl(tmp_path_factory.mktemp("profiler") / "random")


def profiled(folder: Path, grid: Grid = TINY, progress: Callable[[str], None] = lambda _: None) -> Profile:
    return run(resolve([str(folder)]), grid, "cpu", "float32", progress=progress)


def places(profile: Profile, part: str) -> list[tuple[int | None, ...]]:
    return [(row.image_side, row.query_tokens, row.output_tokens, row.batch) for row in profile.of(part)]


def test_every_point_is_measured_once_and_told(folder: Path):
    told: list[str] = []
    profile = profiled(folder, progress=told.append)
    assert places(profile, PREPROCESSING) == places(profile, VISION) == [(64, None, None, 1), (128, None, None, 1)]
    assert places(profile, TTFT) == [(64, 8, None, 1), (64, 16, None, 1), (64, 8, None, 2)]
    assert places(profile, DECODING) == [(64, 8, 2, 1), (64, 8, 6, 1), (64, 8, 2, 2), (64, 8, 6, 2)]
    assert all(0 < row.low_ms <= row.median_ms <= row.high_ms and row.repeats == 2 for row in profile.rows)
    assert {(row.image_side, row.image_tokens) for row in profile.rows} == {(64, 4), (128, 16)}
    assert profile.skipped == profile.failed == []
    assert len(told) == TINY.points() + 1  # and the loading
    assert profile.environment["dtype"] == "float32"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weights", ["checkpoint", "random"])
def test_qwen_in_the_dtype_of_a_gpu(folder: Path, dtype: str, weights: str):
    profile = run(resolve([str(folder)], weights), TINY, "cpu", dtype)
    assert len(profile.rows) == 11
    assert profile.environment["dtype"] == dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_internvl(tmp_path: Path, dtype: str):
    source = resolve([str(random_internvl(tmp_path / "internvl"))])
    profile = run(source, TINY, "cpu", dtype)
    assert {row.part for row in profile.rows} == {PREPROCESSING, VISION, TTFT, DECODING}
    # 4 tokens a tile; 128 pixels are 2 x 2 tiles and the whole
    assert {(row.image_side, row.image_tokens) for row in profile.rows} == {(64, 4), (128, 20)}


def test_a_configuration_at_full_width_runs_cut():
    grid = Grid(
        image_sides=(64,), ttft_sides=(64,), query_tokens=(8,), decode_sides=(64,), decode_query_tokens=(8,),
        output_tokens=(2,), batch_sizes=(1,), warmup=0, repeats=1,
    )  # fmt: skip
    profile = run(resolve(["Qwen3-VL-2B"], "random", 1, 1), grid, "cpu", "float32")
    assert [row.part for row in profile.rows] == [PREPROCESSING, VISION, TTFT, DECODING]
    assert (profile.models[0].layers, profile.models[0].all_layers) == (1, 28)
    assert profile.models[0].parameters > 300_000_000  # its embedding alone


def test_a_size_that_takes_too_long_is_skipped_by_prediction(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Parts, "vision_work", lambda self, pixels: float(pixels.patches) ** 9)
    profile = profiled(folder, Grid.of(False, **{**vars(TINY), "max_seconds": 1.0}))
    assert places(profile, VISION) == [(64, None, None, 1)]
    (line,) = [line for line in profile.skipped if "vision encoder" in line]
    assert line.startswith("random: vision encoder, 128 px: skipped, it would take about ")
    assert line.endswith("more than --max-seconds 1")


def test_long_generations_are_skipped_by_prediction_and_short_ones_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A clock that says 1 s to the first token and 4 s at the fourth: a step takes a second."""

    class Slow:
        def start(self) -> None:
            self.marks = 0

        def mark(self) -> None:
            self.marks += 1

        def read(self) -> list[float]:
            return [1000.0, 4000.0][: self.marks]

    monkeypatch.setattr(profiler, "device_clock", lambda device: Slow())
    profile = profiled(folder, Grid.of(False, **{**vars(TINY), "max_seconds": 5.5, "batch_sizes": (1,)}))
    assert places(profile, DECODING) == [(64, 8, 2, 1)]
    assert profile.skipped == [
        "random: decoding, 64 px, 8 query tokens, 6 output tokens: skipped, it would take about 6 s: more than --max-seconds 5.5"
    ]


def test_memory_is_estimated_on_a_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Parts, "preprocess_memory", lambda self, side: 1e15 if side == 128 else 0)
    profile = profiled(folder)
    assert places(profile, VISION) == [(64, None, None, 1)]
    assert profile.skipped[0].startswith("random: image preprocessing, 128 px: skipped, it needs about 1000000.0 GB")
    assert profile.skipped[1] == "random: vision encoder, 128 px: skipped, its image was not preprocessed"


@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_out_of_memory_skips_a_size_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception):
    generate = Parts.generate

    def tight(self: Parts, inputs: dict[str, torch.Tensor], lengths: Sequence[int], clock: object) -> torch.Tensor:
        if inputs["input_ids"].shape[0] > 1:
            raise error
        return generate(self, inputs, lengths, clock)

    monkeypatch.setattr(Parts, "generate", tight)
    profile = profiled(folder)
    assert [line for line in profile.skipped if "does not fit the memory of cpu" in line] == profile.skipped
    assert len(profile.skipped) == 2  # TTFT and decoding of the batch of two
    assert len(profile.of(DECODING)) == 2


def test_another_error_is_a_failure_and_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*args: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied\nand more")

    monkeypatch.setattr(Parts, "encode_image", broken)
    profile = profiled(folder)
    assert places(profile, PREPROCESSING) == [(64, None, None, 1)]
    assert profile.failed == ["random: RuntimeError: mat1 and mat2 shapes cannot be multiplied"]
    assert "in broken" in caplog.text  # where, for whoever looks into it


def test_a_context_that_is_too_short(folder: Path):
    profile = profiled(folder, Grid.of(False, **{**vars(TINY), "output_tokens": (2, 10**6)}))
    context = "its 1,000,014 tokens do not fit the context of 4,096 tokens"
    assert profile.skipped[0] == f"random: decoding, 64 px, 8 query tokens, 1000000 output tokens: skipped, {context}"
    assert {row.output_tokens for row in profile.of(DECODING)} == {2}


def test_when_the_time_is_up_the_rest_is_skipped(folder: Path):
    profile = profiled(folder, Grid.of(False, **{**vars(TINY), "time_limit": 1e-6}))
    assert profile.rows == []
    assert (
        profile.skipped[0]
        == "random: image preprocessing, 64 px: skipped, its model's share of --time-limit 1e-06 is used up"
    )


def test_a_model_that_cannot_be_loaded_loses_nothing(folder: Path, tmp_path: Path):
    damaged = random_qwen3_vl(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nonsense")
    profile = run(resolve([str(folder), str(damaged)]), TINY, "cpu", "float32")
    assert [model.label for model in profile.models] == ["random"]
    assert len(profile.rows) == 11
    (line,) = profile.failed
    assert "damaged' could not be loaded" in line


def test_an_interrupt_keeps_what_was_measured(folder: Path):
    def stop(what: str) -> None:
        if "time to first token" in what:
            raise KeyboardInterrupt

    profile = profiled(folder, progress=stop)
    assert {row.part for row in profile.rows} == {PREPROCESSING, VISION}
    assert profile.failed == ["interrupted while random was measured"]


def test_the_default_grid_is_the_papers():
    from mai_plugin.paper.figures import paper

    grid = Grid()
    assert [f"{side}x{side}" for side in grid.image_sides] == list(paper()["table2_vision_encoder_ms"]["2B"])
    assert {f"{side}+{query}" for side in grid.ttft_sides for query in grid.query_tokens} == set(
        paper()["table3_ttft_ms"]["2B"]
    )
    shapes = {f"{side}/{(side // 32) ** 2 + query}" for side in grid.decode_sides for query in grid.decode_query_tokens}
    assert shapes == set(paper()["table4_decode_ms"]["2B"])
    assert set(grid.output_tokens) == set(paper()["table4_decode_ms"]["2B"]["256/128"])


def test_a_gpu_is_used_if_there_is_one(monkeypatch: pytest.MonkeyPatch):
    assert pick_device("cpu", None) == ("cpu", "float32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device(None, None) == pick_device("cuda", None) == ("cuda:0", "bfloat16")
    assert pick_device("cuda:1", "float16") == ("cuda:1", "float16")
    with pytest.raises(ValueError, match="--device cuda:2: expected cpu or cuda:0 or cuda:1 here"):
        pick_device("cuda:2", None)


def test_sizes_are_sorted_and_what_is_given_wins_over_quick():
    grid = Grid.of(True, image_sides=(512, 256, 512), repeats=None)
    assert grid.image_sides == (256, 512)
    assert grid.repeats == QUICK.repeats
