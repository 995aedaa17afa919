"""Scripted answers that follow the paper's counts: the replay gives its routes, and its times as far as it can.

What the paper prints are mean token counts, routes and a latency table, so that only sums can be checked.  See
docs/replay.md for what follows from table 4 alone, and what does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.replay_stores import SHORT, YES_NO, lengths, record

from mai_plugin.paper.figures import paper
from mai_plugin.replay.command import StoreReplay, replay_store
from mai_plugin.replay.latency import paper_latency
from mai_plugin.replay.replay import Replayed

PAIR = {"small": "Qwen/Qwen3-VL-2B-Instruct", "large": "Qwen/Qwen3-VL-8B-Instruct"}
PROMPT = {"POPE": YES_NO, "ChartQA": SHORT}
ANSWERS = {"POPE": ("yes", "no"), "ChartQA": ("7", "8")}
Stored = tuple[str, Path, dict[str, Replayed]]
TIMES = paper()["table11_total_s"]


def scripts(benchmark: str) -> dict[str, dict[str, Any]]:
    """Answers with table 10's counts, and lengths with table 5's means, the same on every route."""
    counts, tokens = paper()["table10_mai_2b_8b"][benchmark], paper()["table5_output_tokens_qwen3vl"]
    n = counts["n"]
    long = {
        (size, style): lengths(n, tokens[size][benchmark][style])
        for size, style in (("2B", "S"), ("2B", "R"), ("8B", "S"))
    }
    routes = (
        ["agree-simple"] * counts["agree_s"] + ["agree-reason"] * counts["agree_r"] + ["transfer"] * counts["transfer"]
    )
    one, other = ANSWERS[benchmark]
    small, large = {}, {}
    for i in range(n):
        route = routes[i * 7919 % n]  # scattered over the questions: 7919 is prime and divides no n
        reasoned = other if route == "transfer" else one
        id = f"{benchmark.lower()}/{i}"
        small[id] = {
            "S": {"text": one if route == "agree-simple" else other, "output_tokens": long["2B", "S"][i]},
            "R": {"text": f"One looks.\nAnswer: {reasoned}", "output_tokens": long["2B", "R"][i]},
        }
        large[id] = {
            "S": {"text": one, "output_tokens": long["8B", "S"][i]},
            "final": {"text": other, "output_tokens": long["8B", "S"][i]},
        }
    return {"small": small, "large": large}


@pytest.fixture(scope="module", params=["POPE", "ChartQA"])
def papers_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A MAI run and a transfer run (Full RT) on all questions of a benchmark, replayed with table 4 alone."""
    benchmark: str = request.param
    folder = tmp_path_factory.mktemp(benchmark)
    answers = scripts(benchmark)
    prompts = dict.fromkeys(answers["small"], PROMPT[benchmark])
    record(folder / "calls.sqlite", "MAI", "mutual_verification", PAIR, answers, prompts)
    record(folder / "calls.sqlite", "full RT", "transfer", PAIR, answers, prompts, style="R")
    return benchmark, folder, rows(replay_store(folder, latency="paper", agreements=["exact"]))


def rows(found: StoreReplay) -> dict[str, Replayed]:
    return {row.policy: row for row in found.tasks[0].policies}


def overhead_s() -> float:
    """Seconds per call that table 4 lacks, from table 11's Full RT column alone: least squares over both benchmarks."""
    above = below = 0.0
    for benchmark in ("POPE", "ChartQA"):
        tokens, n = paper()["table5_output_tokens_qwen3vl"], paper()["benchmarks"][benchmark]["n"]
        fit = paper()["derived"]["decode_ms"]
        modelled = n * sum(
            (fit[size]["fixed"] + fit[size]["per_token"] * tokens[size][benchmark][style]) / 1000
            for size, style in (("2B", "R"), ("8B", "S"))
        )
        above += 2 * n * (TIMES[benchmark]["full_transfer"] - modelled)
        below += (2 * n) ** 2
    return above / below


def test_routes_and_tokens_are_the_papers(papers_runs: Stored) -> None:
    benchmark, _, found = papers_runs
    counts, tokens = paper()["table10_mai_2b_8b"][benchmark], paper()["table5_output_tokens_qwen3vl"]
    routes = {"agree-simple": counts["agree_s"], "agree-reason": counts["agree_r"], "transfer": counts["transfer"]}
    assert dict(found["MAI"].routes) == routes
    assert found["MAI"].escalated == pytest.approx(1 - counts["agree_s"] / counts["n"])
    for policy, size, style in (("small-S", "2B", "S"), ("small-R", "2B", "R"), ("large-S", "8B", "S")):
        role = policy.partition("-")[0]
        mean = found[policy].usage[role].output_tokens / counts["n"]
        assert mean == pytest.approx(tokens[size][benchmark][style], abs=0.001)


# What table 4 alone makes of table 11, in seconds: documented in docs/replay.md.
ALONE = {"POPE": (38226, 2761), "ChartQA": (10361, 3295)}


def test_table_4_alone_gives_full_transfer_but_not_mai(papers_runs: Stored) -> None:
    benchmark, _, found = papers_runs
    full, mai = found["transfer"].seconds, found["MAI"].seconds
    assert (round(full), round(mai)) == pytest.approx(ALONE[benchmark], abs=2)
    assert full == pytest.approx(TIMES[benchmark]["full_transfer"], rel=0.1)
    assert mai < 0.9 * TIMES[benchmark]["mai"]


def test_table_11_within_ten_per_cent(papers_runs: Stored) -> None:
    """With the overhead per call that Full RT takes beyond table 4, the column MAI follows: it was not fitted to."""
    benchmark, folder, _ = papers_runs
    assert overhead_s() == pytest.approx(0.0908, abs=0.0002)
    found = rows(replay_store(folder, latency="paper", overhead_s=overhead_s(), agreements=["exact"]))
    assert found["MAI"].seconds == pytest.approx(TIMES[benchmark]["mai"], rel=0.1)
    assert found["transfer"].seconds == pytest.approx(TIMES[benchmark]["full_transfer"], rel=0.1)


@pytest.mark.parametrize("benchmark", ["POPE", "ChartQA", "InfoVQA", "MMBench"])
def test_the_documented_accounting_is_what_the_figures_make(benchmark: str) -> None:
    """The table in docs/replay.md, from the paper's means: nothing in it is typed by hand unchecked."""
    counts, tokens = paper()["table10_mai_2b_8b"][benchmark], paper()["table5_output_tokens_qwen3vl"]
    fit = paper_latency(PAIR)
    small, reasons, large = (
        fit[role].fixed_s + fit[role].per_token_s * tokens[size][benchmark][style]
        for role, size, style in (("small", "2B", "S"), ("small", "2B", "R"), ("large", "8B", "S"))
    )
    n, escalated = counts["n"], counts["agree_r"] + counts["transfer"]
    sums = {
        "Full RT": ("full_transfer", n * (reasons + large), 2 * n),
        "MAI": ("mai", n * (small + large) + escalated * reasons + counts["transfer"] * large, 2 * n + escalated + counts["transfer"]),
    }  # fmt: skip
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
    for name, (key, alone, calls) in sums.items():
        printed = TIMES[benchmark][key]
        with_overhead = alone + calls * overhead_s()
        cells = (
            f"{seconds:,.0f} | {seconds / printed - 1:+.1%}".replace("%", " %") for seconds in (alone, with_overhead)
        )
        assert f"| {benchmark}, {name} | {printed:,} | {' | '.join(cells)} |" in page
