"""Latency fits: least squares, from stored calls and from the paper's table 4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mai_plugin.core.records import Call, Completion
from mai_plugin.paper.figures import paper
from mai_plugin.replay.latency import fit, measured_latency, paper_latency

PAIR = {"small": "Qwen/Qwen3-VL-2B-Instruct", "large": "Qwen/Qwen3-VL-8B-Instruct"}


def call(role: str, tokens: int, seconds: float, id: int | None = None) -> Call:
    return Call(role, "S", Completion("x", output_tokens=tokens, e2e_s=seconds, call_id=id), "x")


@given(
    st.floats(0, 1),
    st.floats(1e-3, 1),
    st.lists(st.integers(1, 2000), min_size=2, max_size=30, unique=True),
)
def test_a_line_is_found_again(fixed: float, per_token: float, tokens: list[int]) -> None:
    found = fit(tokens, [fixed + per_token * n for n in tokens], "test")
    assert found.per_token_s == pytest.approx(per_token, rel=1e-6)
    assert found.seconds(100) == pytest.approx(fixed + 100 * per_token, rel=1e-6, abs=1e-6)


def test_a_poor_fit_shows() -> None:
    assert fit([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], "test").r2 == pytest.approx(1)
    assert fit([1, 1, 9, 9], [1.0, 9.0, 1.1, 9.1], "test").r2 < 0.1


def test_no_call_takes_less_than_nothing() -> None:
    found = fit([1, 10, 100], [0.0, 0.1, 2.0], "test")  # least squares alone would put -0.06 s before the first token
    assert found.fixed_s == 0
    assert found.seconds(1) > 0


@pytest.mark.parametrize(
    ("tokens", "seconds", "trouble"),
    [
        ([], [], "two different lengths"),
        ([3, 3], [1.0, 2.0], "two different lengths"),
        ([1, 9], [1.0, 0.5], "do not grow"),
        ([1, 9], [0.0, 0.0], "do not grow"),
    ],
)
def test_no_fit(tokens: list[int], seconds: list[float], trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        fit(tokens, seconds, "test")


def test_a_stored_call_counts_once() -> None:
    calls = [call("small", 1, 1.0, 1), call("small", 3, 3.0, 2), call("large", 1, 1.0, 3), call("large", 2, 1.5, 4)]
    found = measured_latency((one.role, one.completion) for one in [*calls, *calls[:1] * 50])
    assert found["small"].source == "2 measured calls"
    assert found["large"].per_token_s == pytest.approx(0.5)
    assert found["large"].fixed_s == pytest.approx(0.5)


def test_a_model_whose_calls_allow_no_fit_is_named() -> None:
    calls = [call("small", 1, 1.0), call("small", 2, 2.0), call("large", 1, 1.0)]
    with pytest.raises(ValueError, match=r"large model.*--latency paper"):
        measured_latency((one.role, one.completion) for one in calls)


def test_paper_equals_the_derived_figures() -> None:
    derived = paper()["derived"]["decode_ms"]
    for size in ("2B", "4B", "8B"):
        found = paper_latency({"small": f"Qwen/Qwen3-VL-{size}-Instruct"})["small"]
        assert 1000 * found.fixed_s == pytest.approx(derived[size]["fixed"], abs=0.05)
        assert 1000 * found.per_token_s == pytest.approx(derived[size]["per_token"], abs=0.0005)


def test_paper_stands_in_for_unknown_models_and_says_so() -> None:
    named, unnamed = (
        paper_latency(PAIR),
        paper_latency({"small": "mai-tiny-small", "large": "OpenGVLab/InternVL3_5-8B"}),
    )
    assert unnamed["small"].per_token_s == named["small"].per_token_s
    assert "in place of mai-tiny-small" in unnamed["small"].source
    assert "in place of InternVL3_5-8B" in unnamed["large"].source
    assert "in place" not in named["large"].source


def test_overhead_is_added_to_each_call() -> None:
    assert paper_latency(PAIR, 0.1)["large"].seconds(7) == pytest.approx(paper_latency(PAIR)["large"].seconds(7) + 0.1)
