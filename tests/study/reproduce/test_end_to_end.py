"""The real lmms-eval with the tiny pair in the place of the 2B and the 8B: killed, resumed, and as `mai report` has it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mai_plugin.harness.lmms_eval.results import ratio
from mai_plugin.harness.scores import score
from mai_plugin.run.stored import Run, load_runs
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

LIMIT = 12
TASKS = ("pope", "chartqa")
RUNS = ["2B-S", "2B-R-S2", "8B-S", "2B+8B-transfer-R", "2B+8B-MAI"]
COMMAND = (
    sys.executable, "-m", "mai_plugin.cli", "reproduce", "--tables", "15", "--benchmarks", "pope,chartqa",
    "--models", "2B=mai-tiny-small,8B=mai-tiny-large", "--limit", str(LIMIT), "--batch-size", "2",
    "--engine-args", '{"num_threads":1}', "--max-reasoning-tokens", "64", "--out", "out", "--json", "r.json",
)  # fmt: skip
STORE = Path("out/mai_runs/calls.sqlite")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def calls(file: Path) -> int:
    """How many calls are stored; none may be there twice."""
    if not file.is_file():
        return 0
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'calls'").fetchone():
            return 0
        keys = [key for (key,) in connection.execute("SELECT key FROM calls")]
    assert len(keys) == len(set(keys))
    return len(keys)


def running_in(folder: Path) -> Iterator[int]:
    """Processes of lmms-eval whose working directory is the folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = (process / "cwd").resolve() == folder.resolve()
            if here and b"lmms-eval" in (process / "cmdline").read_bytes():
                yield int(process.name)
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The command killed (-9) in the middle of its second run, and given again."""
    folder = tmp_path_factory.mktemp("reproduce")
    write_benchmark("pope", folder, chart_questions(60, 77, {"taller": 1.0}))
    write_benchmark("chartqa", folder, chart_questions(60, 2026))
    first = subprocess.Popen(
        COMMAND, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + 300
    while first.poll() is None and calls(folder / STORE) < 2 * LIMIT + 5 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    while list(running_in(folder)) and time.monotonic() < until:  # the kernel ends it with its parent
        time.sleep(0.05)
    left = list(running_in(folder))
    kept = calls(folder / STORE)
    states = [run.finished for run in load_runs(folder / STORE)]
    again = subprocess.run(COMMAND, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert first.stdout is not None
    return {
        "folder": folder, "first": first.stdout.read(), "left": left, "kept": kept, "states": states, "again": again,
    }  # fmt: skip


@pytest.fixture(scope="module")
def figures(resumed: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((resumed["folder"] / "r.json").read_text())["figures"]
    return found


def test_it_was_killed_in_the_middle_of_a_run(resumed: dict[str, Any]) -> None:
    assert resumed["states"] == [True, False]
    assert 2 * LIMIT < resumed["kept"] < 3 * 2 * LIMIT
    assert "[1/5] 2B-S: finished in" in resumed["first"]
    assert "[2/5] 2B-R-S2: running" in resumed["first"]
    assert resumed["left"] == []


def test_given_again_it_goes_on(resumed: dict[str, Any]) -> None:
    done = resumed["again"]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "[1/5] 2B-S: finished before" in done.stdout
    for number, run in enumerate(RUNS[1:], 2):
        assert f"[{number}/5] {run}: running" in done.stdout
        assert f"[{number}/5] {run}: finished in" in done.stdout


def test_no_call_is_made_twice(resumed: dict[str, Any]) -> None:
    """Made are: S of both models, the small one's R, and an answer of each model after reading that."""
    file, questions = resumed["folder"] / STORE, len(TASKS) * LIMIT
    assert calls(file) == 5 * questions
    counts = {}
    for run in load_runs(file):  # of two of a name the later counts
        reused = run.reused_calls
        counts[run.name] = (sum(len(sample.calls) for sample in run.samples.values()) - reused, reused)
    kept = resumed["kept"] - questions  # of the run that was killed
    assert counts["mai-tiny-small-R-S2"] == (2 * questions - kept, kept)
    assert counts["mai-tiny-large-S"] == (questions, 0)
    assert counts["mai-tiny-small+mai-tiny-large-transfer-R"] == (questions, questions)
    assert counts["mai-tiny-small+mai-tiny-large-MAI"][0] == 0


def test_a_third_time_there_is_nothing_to_do(resumed: dict[str, Any]) -> None:
    folder = resumed["folder"]
    before = calls(folder / STORE)
    done = subprocess.run(COMMAND, cwd=folder, env=environment(folder), capture_output=True, text=True, check=True)
    assert done.stdout.count("finished before") == len(RUNS)
    assert calls(folder / STORE) == before
    dry = subprocess.run(
        [*COMMAND[:-2], "--dry-run"], cwd=folder, env=environment(folder), capture_output=True, text=True, check=True
    )
    assert dry.stdout.count("(finished)") == len(RUNS)


def test_figures_are_those_of_mai_report(resumed: dict[str, Any], figures: list[dict[str, Any]]) -> None:
    folder = resumed["folder"]
    command = [sys.executable, "-m", "mai_plugin.cli", "report", "--store", str(STORE), "--json", "report.json"]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = {run["name"]: run for run in json.loads((folder / "report.json").read_text())["runs"]}
    tasks = {"POPE": "pope", "ChartQA": "chartqa"}
    mai = [one for one in figures if one["way"] == "MAI"]
    assert len(mai) == 2 * 3
    for one in mai:
        reported = report["mai-tiny-small+mai-tiny-large-MAI"]["tasks"][tasks[one["benchmark"]]]
        assert one["n"] == reported["n"] == LIMIT
        if one["figure"] == "score":
            assert (one["measured"], one["ci95"]) == (reported["score"], reported["ci95"])
        else:
            assert one["measured"] == pytest.approx(100 * reported["routes"].get(one["figure"], 0) / LIMIT)


def test_the_second_step_with_s2_is_what_its_calls_come_to(
    resumed: dict[str, Any], figures: list[dict[str, Any]]
) -> None:
    """The policy once more, question by question, with the scores that the harness gave each answer."""
    runs = {run.name: score(run) for run in load_runs(resumed["folder"] / STORE) if run.finished}
    large, small = runs["mai-tiny-large-S"], runs["mai-tiny-small-S"]
    two_stage, transfer = runs["mai-tiny-small-R-S2"], runs["mai-tiny-small+mai-tiny-large-transfer-R"]

    def answer(run: Run, question: str) -> str | None:
        return run.samples[question].answer

    for benchmark, task in {"POPE": "pope", "ChartQA": "chartqa"}.items():
        units, routes = [], []
        for question in [name for name in large.run.samples if name.startswith(task)]:
            short = answer(large.run, question)
            route = (
                "agree-simple" if short == answer(small.run, question)
                else "agree-reason" if short == answer(two_stage.run, question) else "transfer"
            )  # fmt: skip
            scored = transfer if route == "transfer" else large
            units.append(scored.scores[task].units[question.rpartition("/")[2]])
            routes.append(route)
        found = {one["figure"]: one for one in figures if (one["way"], one["benchmark"]) == ("MAI-R-S2", benchmark)}
        assert found["score"]["measured"] == pytest.approx(ratio(dict(enumerate(map(tuple, units)))))  # type: ignore[arg-type]
        for route in ("agree-reason", "transfer"):
            assert found[route]["measured"] == pytest.approx(100 * routes.count(route) / LIMIT)


def test_toys_are_called_toys(resumed: dict[str, Any], figures: list[dict[str, Any]]) -> None:
    assert "TOY SCORES" in resumed["again"].stdout
    assert all(one["difference"] is None for one in figures)
    assert all("toy model on toy data" in one["not_comparable"] for one in figures)
