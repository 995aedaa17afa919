"""Fits and break-even against values worked out by hand; JSON."""

import json

import pytest
from helpers.profiles import linear, model, pair, row

from mai_plugin.replay.latency import Latency
from mai_plugin.study.profile.result import DECODING, TTFT, Profile, break_even, break_evens, fits, paper_break_evens


def test_fits():
    found = {(line.model, line.batch): line for line in fits(pair())}
    assert found.keys() == {("Qwen3-VL-8B", 1), ("Qwen3-VL-2B", 1), ("Qwen3-VL-2B", 4)}
    line = found["Qwen3-VL-8B", 1]
    assert (line.fixed_ms, line.per_token_ms, line.r2) == pytest.approx((20, 25, 1))
    assert line.lengths == (8, 128, 256, 512)


def test_the_first_token_is_the_second_point_of_a_single_length():
    rows = [
        row("a", TTFT, 30.0, query=64),
        row("a", TTFT, 99.0, query=256),
        row("a", DECODING, 65.0, query=64, output=8),
    ]
    (line,) = fits(Profile({}, [model("a")], rows))
    assert (line.fixed_ms, line.per_token_ms, line.lengths) == (25.0, 5.0, (1, 8))


def test_no_line_through_one_length_or_through_times_that_do_not_grow():
    one = Profile({}, [model("a")], [row("a", DECODING, 5.0, query=64, output=8)])
    flat = Profile({}, [model("a")], [row("a", DECODING, 5.0, query=64, output=n) for n in (8, 16)])
    assert fits(one) == fits(flat) == []


@pytest.mark.parametrize(
    ("small", "large", "m", "expected"),
    [
        ((10, 10), (20, 25), 4, 11.0),  # (20 + 100 - 10) / 10
        ((10, 10), (20, 25), 1, 3.5),
        ((10, 10), (10, 10), 7, 7.0),  # the same model: as many as the other
        ((100, 10), (20, 10), 4, -4.0),  # the large one is cheaper at once
    ],
)
def test_break_even(small: tuple[float, float], large: tuple[float, float], m: int, expected: float):
    assert break_even(Latency(*small, "", 1), Latency(*large, "", 1), m) == pytest.approx(expected)


def test_break_even_of_a_profile_puts_the_model_with_fewer_parameters_first():
    measured = [found for found in break_evens(pair(), 4) if found.source.startswith("measured")]
    assert [(found.small, found.large, found.tokens) for found in measured] == [
        ("Qwen3-VL-2B", "Qwen3-VL-8B", pytest.approx(11))
    ]


def test_break_even_needs_a_shape_that_both_have():
    profile = Profile({}, [model("a"), model("b")], [*linear("a", 1, 1, query=64), *linear("b", 1, 1, query=256)])
    assert all(not found.source.startswith("measured") for found in break_evens(profile, 4))


def test_the_papers_break_even():
    """From the fits of table 4: (22.4 + 4 x 20.51 - 15.7) / 15.74."""
    found = {(each.small, each.large): each.tokens for each in paper_break_evens(4)}
    assert found.keys() == {
        ("Qwen3-VL-2B", "Qwen3-VL-4B"),
        ("Qwen3-VL-2B", "Qwen3-VL-8B"),
        ("Qwen3-VL-4B", "Qwen3-VL-8B"),
    }
    assert found["Qwen3-VL-2B", "Qwen3-VL-8B"] == pytest.approx(5.64, abs=0.01)


def test_json_has_the_documented_keys():
    content = json.loads(json.dumps(pair().as_json()))
    assert content.keys() == {"environment", "models", "rows", "fits", "break_even", "skipped", "failed"}
    assert content["rows"][0].keys() == {
        "model", "part", "image_side", "image_tokens", "query_tokens", "output_tokens", "batch", "median_ms", "low_ms",
        "high_ms", "repeats",
    }  # fmt: skip
    assert len(content["rows"]) == len(pair().rows)
