"""Calls and GPU time against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.pretended import plan_of

from mai_plugin.study.reproduce.estimate import estimate, shares

OUT = Path("out")
# Table 4's lines in milliseconds, as docs/replay.md has them, and table 5's lengths on ChartQA.
A = {"2B": 15.7, "8B": 22.4}
B = {"2B": 15.742, "8B": 20.509}
S, R_2B, R_8B = 3.5, 256.3, 294.3


def seconds(size: str, tokens: float) -> float:
    return (A[size] + B[size] * tokens) / 1000


def test_a_two_stage_run_is_a_reasoning_and_a_short_answer() -> None:
    plan = plan_of(OUT, tables="7", benchmarks="chartqa", models="8B=x")
    found = estimate(plan)
    assert found["8B-S"].calls == 2500
    assert found["8B-S"].gpu_s == pytest.approx(2500 * seconds("8B", S), rel=1e-3)
    assert found["8B-R-S2"].calls == 5000
    assert found["8B-R-S2"].gpu_s == pytest.approx(2500 * (seconds("8B", R_8B) + seconds("8B", S)), rel=1e-3)


def test_calls_that_an_earlier_run_made_cost_nothing() -> None:
    plan = plan_of(OUT, tables="10", benchmarks="chartqa")
    found = estimate(plan)
    assert {key: one.calls for key, one in found.items()} == {
        "2B-S": 2500, "2B-R": 2500, "8B-S": 2500, "2B+8B-transfer-R": 2500, "2B+8B-MAI": 0,
    }  # fmt: skip
    assert found["2B+8B-transfer-R"].gpu_s == pytest.approx(2500 * seconds("8B", S), rel=1e-3)
    assert found["2B+8B-MAI"].gpu_s == 0


def test_timed_runs_make_theirs_anew() -> None:
    """MAI on ChartQA by table 10: 2,500 short answers of each, 195 + 505 reason, 505 are transferred."""
    plan = plan_of(OUT, tables="11,10", benchmarks="chartqa")
    found = estimate(plan)
    assert found["2B+8B-transfer-R-timed-chartqa"].calls == 5000
    mai = found["2B+8B-MAI-timed-chartqa"]
    assert mai.calls == 2500 + 2500 + 700 + 505
    wanted = 2500 * (seconds("2B", S) + seconds("8B", S)) + 700 * seconds("2B", R_2B) + 505 * seconds("8B", S)
    assert mai.gpu_s == pytest.approx(wanted, rel=1e-3)
    assert found["2B-S"].calls == found["2B-R"].calls == 0


def test_a_limit_scales_it_and_finished_runs_cost_nothing() -> None:
    whole = estimate(plan_of(OUT, tables="10", benchmarks="chartqa"))
    plan = plan_of(OUT, tables="10", benchmarks="chartqa", limit=25)
    found = estimate(plan)
    assert found["2B-R"].calls == 25
    assert found["2B-R"].gpu_s == pytest.approx(whole["2B-R"].gpu_s / 100)
    resumed = estimate(plan, {"2B-R"})
    assert resumed["2B-R"].calls == 0
    assert resumed["2B+8B-transfer-R"] == found["2B+8B-transfer-R"]
    assert estimate(plan_of(OUT, tables="10", benchmarks="chartqa", limit=10**6)) == whole


def test_realworldqa_takes_the_shares_of_the_others() -> None:
    """Table 10: 46+142+262+195+271 agree after reasoning, 447+260+330+505+802 are transferred, of 19,530."""
    n = 9000 + 900 + 4329 + 2500 + 2801
    assert shares("RealWorldQA") == pytest.approx(((916 + 2344) / n, 2344 / n))
    assert shares("ChartQA") == (700 / 2500, 505 / 2500)


def test_internvl_is_counted_with_the_nearest_size() -> None:
    """Table 13: 14B's S on ChartQA has 3.6 tokens; table 4 ends at the 8B."""
    found = estimate(plan_of(OUT, family="internvl3.5", tables="13", benchmarks="chartqa"))
    assert found["14B-S"].gpu_s == pytest.approx(2500 * seconds("8B", 3.6), rel=1e-3)
