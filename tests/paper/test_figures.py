"""The shipped figures: complete, and consistent as far as the paper is."""

from __future__ import annotations

import pytest

from mai_plugin.harness.benchmarks import BENCHMARKS, PAPER, TASKS, find_task
from mai_plugin.paper.figures import model_size, paper, reported
from mai_plugin.report.published import paper_figures, reported_figures

CONFLICTS = {(entry["benchmark"], entry["what"]) for entry in paper()["conflicts"]}


def test_every_table_is_there() -> None:
    tables = {int(key.removeprefix("table").partition("_")[0]) for key in paper() if key.startswith("table")}
    assert tables == set(range(1, 17))


def test_routes_sum_to_n() -> None:
    for benchmark, row in paper()["table10_mai_2b_8b"].items():
        total = row["agree_s"] + row["agree_r"] + row["transfer"]
        off = -1 if (benchmark, "agree_s") in CONFLICTS and benchmark == "MMBench" else 0
        assert total - row["n"] == off, benchmark
        assert row["n"] == paper()["benchmarks"][benchmark]["n"]


def test_tables_10_and_15_agree_but_for_the_known_conflicts() -> None:
    for benchmark, row in paper()["table15_r_vs_r_s2"].items():
        tens = paper()["table10_mai_2b_8b"][benchmark]
        agree_s = {row["n"] - row[way]["agree_r"] - row[way]["transfer"] for way in ("r", "r_s2")}
        assert len(agree_s) == 1, f"{benchmark}: step 2 does not change step 1"
        differing = {
            "agree_s": agree_s.pop() != tens["agree_s"],
            "agree_r": row["r"]["agree_r"] != tens["agree_r"],
            "transfer": row["r"]["transfer"] != tens["transfer"],
            "final": abs(row["r"]["final"] - tens["final"]) >= 0.05,  # table 10 rounds
        }
        known = {what for name, what in CONFLICTS if name == benchmark}
        assert {what for what, differs in differing.items() if differs} <= known, benchmark


def test_conflicts_are_conflicts() -> None:
    for entry in paper()["conflicts"]:
        values = [value for key, value in entry.items() if key.startswith("table")]
        assert len(values) == 2
        assert values[0] != values[1]
        assert values[0] == paper()["table10_mai_2b_8b"][entry["benchmark"]][entry["what"]]


def test_speedups_of_table_11_are_against_full_transfer() -> None:
    for benchmark, row in paper()["table11_total_s"].items():
        assert row["full_transfer"] / row["mai"] == pytest.approx(row["speedup"], abs=0.011), benchmark


def test_rows_that_repeat_another_table_repeat_it() -> None:
    tables = paper()
    for size in ("4B", "8B"):
        for benchmark, value in tables["table8_transfer"][f"{size}-R"].items():
            if benchmark == "POPE":
                first = tables["table6_pope_f1"][size]["R(S2)"]
            else:
                first = tables["table7_scores_qwen3vl"][size][benchmark]["R"]
            assert value == pytest.approx(first, abs=0.051), (size, benchmark)
    for benchmark, value in tables["table8_transfer"]["2B-R"].items():
        if benchmark in tables["table10_mai_2b_8b"]:
            assert tables["table10_mai_2b_8b"][benchmark]["2B-R"] == value


def test_figures_cover_every_benchmark_and_stay_in_range() -> None:
    figures = paper_figures()
    assert {figure.benchmark for figure in figures} == set(BENCHMARKS)
    assert all(0 < figure.value <= 100 for figure in figures)
    keys = [(figure.system, figure.benchmark, figure.source, figure.remarks) for figure in figures]
    assert len(keys) == len(set(keys))
    pope = {
        str(figure.system.way): figure.value
        for figure in figures
        if figure.benchmark == "POPE" and figure.system.sizes == ("8B",) and "table 6" in figure.source
    }
    assert pope == {"S": 87.1, "E": 87.3, "E-S2": 87.8, "R": 88.2, "R-S2": 89.5}
    chartqa = {
        (str(figure.system.way), figure.value)
        for figure in figures
        if figure.benchmark == "ChartQA" and figure.system.sizes == ("2B",) and figure.system.family == "Qwen3-VL"
    }
    assert chartqa == {("S", 77.8), ("E-S2", 82.72), ("R-S2", 83.72), ("R", 72.2)}


def test_reported_figures() -> None:
    figures = {(figure.system.sizes[0], figure.benchmark, figure.source): figure for figure in reported_figures()}
    assert figures["8B", "InfoVQA", "Qwen3-VL report"].split == "test"
    assert figures["8B", "InfoVQA", "Qwen3-VL report"].value == 83.1
    assert figures["4B", "POPE", "independent rerun"].value == 89.3
    assert len(figures) == sum(len(row) for part in reported().values() for row in part["scores"].values())


def test_tasks_have_the_papers_n_in_lmms_eval() -> None:
    for name in ("pope", "mmmu_val", "mmbench_en_dev", "chartqa", "infovqa_val", "realworldqa"):
        task = TASKS[name]
        assert (task.split, task.n) == (PAPER[task.benchmark][0], PAPER[task.benchmark][2])
        assert task.n == paper()["benchmarks"][task.benchmark]["n"]


@pytest.mark.parametrize(
    ("name", "benchmark", "harness", "scorer"),
    [
        ("chartqa_mai_r", "ChartQA", "lmms-eval", "rules"),
        ("mmbench_en_dev", "MMBench", "lmms-eval", "rules or judge"),
        ("mmbench_en_dev_mai_s", "MMBench", "lmms-eval", "rules"),
        ("ChartQA_TEST", "ChartQA", "VLMEvalKit", "rules"),
    ],
)
def test_find_task(name: str, benchmark: str, harness: str, scorer: str) -> None:
    task = find_task(name)
    assert task is not None
    assert (task.benchmark, task.harness, task.scorer) == (benchmark, harness, scorer)


def test_other_tasks_are_none_of_them() -> None:
    assert find_task("docvqa_val") is None


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", ("Qwen3-VL", "8B")),
        ("/models/Qwen3VL-2B/", ("Qwen3-VL", "2B")),
        ("OpenGVLab/InternVL3_5-14B-HF", ("InternVL3.5", "14B")),
        ("mai-tiny-small", None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", None),
        ("Qwen/Qwen3-8B", None),
    ],
)
def test_model_size(name: str, size: tuple[str, str] | None) -> None:
    assert model_size(name) == size
