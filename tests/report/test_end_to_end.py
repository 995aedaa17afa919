"""The real lmms-eval on all six benchmarks, then `mai report` on the store that it left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.offline import LIMIT, Offline, wrong_answer
from helpers.offline import cascade as cascade
from helpers.offline import offline as offline

from mai_plugin.tiny.datasets import BENCHMARKS

ROOT = Path(__file__).parent.parent.parent
VARIANTS = {
    task: f"{task.removesuffix('_static')}_mai_{style}" for task, style in zip(BENCHMARKS, "serser", strict=True)
}


def lmms_eval(offline: Offline, model: str, args: str, tasks: str) -> None:
    done = offline.lmms_eval(
        "--model", model, "--model_args", f"engine=scripted,store=cascade.sqlite,{args}", "--tasks", tasks, "--limit", str(LIMIT),
        "--output_path", "results", "--log_samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def mai_report(offline: Offline, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mai_plugin.cli", "report", "--store", "cascade.sqlite", *args]
    return subprocess.run(command, cwd=offline.folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def evaluated(cascade: Offline) -> Offline:
    """A cascade on all six, the large model's S on the same, and an R variant of each task for one model."""
    script = {
        f"{VARIANTS[task]}/{number}": {"S": f"So it is.\nAnswer: {chart.answer if number % 2 else wrong_answer(chart)}"}
        for task in BENCHMARKS
        for number, chart in enumerate(cascade.questions[task][:LIMIT])
    }
    (cascade.folder / "variants.json").write_text(json.dumps(script))
    lmms_eval(cascade, "mai_single", "model=large.json,prompt=S", ",".join(BENCHMARKS))
    lmms_eval(cascade, "mai_single", "model=variants.json", ",".join(VARIANTS.values()))
    return cascade


@pytest.fixture(scope="module")
def report(evaluated: Offline) -> dict[str, Any]:
    done = mai_report(
        evaluated, "small+large-MAI", "large-S", "variants-S", "--baseline", "large-S", "--json", "r.json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((evaluated.folder / "r.json").read_text())
    return {
        "runs": {run["name"]: run for run in found["runs"]},
        **{key: found[key] for key in ("comparisons", "tables")},
    }


@pytest.mark.parametrize("task", BENCHMARKS)
def test_scores_are_the_harness_own(report: dict[str, Any], evaluated: Offline, task: str) -> None:
    """Of every four documents one is wrong, see `offline`; each document's score is known too."""
    found = report["runs"]["small+large-MAI"]["tasks"][task]
    assert found["score"] == pytest.approx(75)
    assert found["routes"] == {"agree-simple": LIMIT / 2, "agree-reason": LIMIT / 4, "transfer": LIMIT / 4}
    (file,) = (evaluated.folder / "cascade" / "small+large-MAI").glob("*_results.json")
    written = json.loads(file.read_text())["results"][task][f"{found['metric']},none"]
    assert found["score"] == pytest.approx(written * (1 if task.startswith("mmbench") else 100))
    assert found["tokens_per_correct"] == pytest.approx(sum(found["output_tokens"].values()) / (0.75 * LIMIT))


@pytest.mark.parametrize("task", BENCHMARKS)
def test_variants_of_the_tasks_are_scored_too(report: dict[str, Any], task: str) -> None:
    found = report["runs"]["variants-S"]["tasks"][VARIANTS[task]]
    assert found["unscored"] is None
    if task not in ("pope", "infovqa_val"):  # F1; and ANLS gives something for a number that is half right
        assert found["score"] == pytest.approx(50)


def test_the_cascade_is_compared_with_large_s(report: dict[str, Any]) -> None:
    """It puts documents 2 and 6 right, which the large model alone has wrong."""
    compared = {found["task"]: found for found in report["comparisons"]}
    assert set(compared) == set(BENCHMARKS)
    assert compared["chartqa"]["difference"] == 25
    assert compared["chartqa"]["p"] == 0.5
    table = next(table for table in report["tables"] if table["key"] == "cascade")
    column = table["columns"].index("large-S")
    assert {row[1]: row[column] for row in table["rows"]}["chartqa"] == 50


def test_a_run_whose_calls_were_reused_has_no_speed_up(report: dict[str, Any]) -> None:
    """After the cascade the large model's S costs no call, so its seconds mean nothing."""
    assert report["runs"]["large-S"]["reused_calls"] == LIMIT * len(BENCHMARKS)
    table = next(table for table in report["tables"] if table["key"] == "time")
    (row,) = table["rows"]
    assert row[table["columns"].index("large-S")] == f"n/a (there {LIMIT * len(BENCHMARKS)} calls reused)"


def test_a_changed_sample_is_an_error(evaluated: Offline) -> None:
    (file,) = (evaluated.folder / "results" / "large-S").glob("*_samples_realworldqa.jsonl")
    before = file.read_text()
    lines = [json.loads(line) for line in before.splitlines()]
    lines[5]["filtered_resps"] = "changed"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        done = mai_report(evaluated, "large-S")
    finally:
        file.write_text(before)
    assert done.returncode == 1
    assert f"document {lines[5]['doc_id']} of realworldqa: the harness has 'changed', the run returned" in done.stderr
