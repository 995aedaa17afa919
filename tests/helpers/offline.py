"""Generated data under the official names, and scripts that answer it with known scores."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mai_plugin.tiny.charts import ChartQuestion, chart_questions
from mai_plugin.tiny.datasets import BENCHMARKS, write_benchmark

LIMIT = 8
LMMS_EVAL = str(Path(sysconfig.get_path("scripts")) / "lmms-eval")
SCRIPTED = "engine=scripted,small=small.json,large=large.json"
SCORES = {
    "chartqa": ("relaxed_overall,none", 1.0),
    "pope": ("pope_accuracy,none", 1.0),
    "mmmu_val": ("mmmu_acc,none", 1.0),
    "mmbench_en_dev_static": ("gpt_eval_score,none", 100.0),
    "infovqa_val": ("anls,none", 1.0),
    "realworldqa": ("exact_match,none", 1.0),
}
"""The metric that counts, and full marks in it, for each task."""


@dataclass(frozen=True)
class Offline:
    """A folder to run lmms-eval in.

    Attributes:
        folder: holds `lmms-lab-encoder/...` and the scripts `small.json` and `large.json`.
        questions: task name to its questions, in the order of its documents.
    """

    folder: Path
    questions: dict[str, list[ChartQuestion]]

    def lmms_eval(
        self, *args: str, launcher: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the real command line in the folder."""
        return subprocess.run(
            [*(launcher or (LMMS_EVAL,)), *args], cwd=self.folder, env={**self._environment(), **environment},
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start the real command line, without waiting for it."""
        return subprocess.Popen(
            [LMMS_EVAL, *args], cwd=self.folder, env=self._environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        # A cache of its own: `datasets` would else serve another folder's data, which has the same relative path.
        cache = str(self.folder / "cache")
        return {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": cache, "OMP_NUM_THREADS": "1"}

    def results(self, output: str) -> dict[str, Any]:
        """The results file that a run wrote: lmms-eval exits with 0 on failure, so this is what counts."""
        (found,) = (self.folder / output).rglob("[0-9]*_results.json")
        return json.loads(found.read_text())  # type: ignore[no-any-return]

    def samples(self, output: str, task: str) -> list[dict[str, Any]]:
        (found,) = (self.folder / output).rglob(f"*_samples_{task}.jsonl")
        return [json.loads(line) for line in found.read_text().splitlines()]


def wrong_answer(question: ChartQuestion) -> str:
    others = {"yes": "no", "no": "yes", "A": "B", "B": "C", "C": "D", "D": "A"}
    return others.get(question.answer, "42")


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    """All six benchmarks, and scripts: of every four documents the cascade takes each route once, and errs once.

    Document 0 agrees at once; 1 agrees after reasoning; 2 is transferred and put right; 3 agrees on a wrong answer.
    """
    folder = tmp_path_factory.mktemp("offline")
    charts = chart_questions(100, 5, {"choice": 0.4, "value": 0.2, "taller": 0.2, "sum": 0.2})
    questions = {task: write_benchmark(task, folder, charts) for task in BENCHMARKS}
    small: dict[str, Any] = {}
    large: dict[str, Any] = {}
    for task, asked in questions.items():
        for number, question in enumerate(asked):
            right, wrong, name = question.answer, wrong_answer(question), f"{task}/{number}"
            reasoned = f"Looking at the bars.\nAnswer: {right}"
            small[name], large[name] = {
                0: ({"S": right}, {"S": right}),
                1: ({"S": wrong, "R": reasoned}, {"S": right}),
                2: ({"S": wrong, "R": reasoned}, {"S": "nothing of all that", "final": f"**{right}**"}),
                3: ({"S": f"{wrong}.", "R": reasoned}, {"S": wrong, "final": right}),
            }[number % 4]
    (folder / "small.json").write_text(json.dumps(small))
    (folder / "large.json").write_text(json.dumps(large))
    return Offline(folder, questions)


@pytest.fixture(scope="session")
def cascade(offline: Offline) -> Offline:
    """One run of `mai_cascade` over all six tasks."""
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", f"{SCRIPTED},store=cascade.sqlite", "--tasks", ",".join(BENCHMARKS),
        "--limit", str(LIMIT), "--output_path", "cascade", "--log_samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"mai: calls are stored in {offline.folder / 'cascade.sqlite'}; stored calls are reused" in done.stdout
    return offline
