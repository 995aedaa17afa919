"""Generated data for VLMEvalKit, scripts that answer it, and the real kit to run with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mai_plugin.run.stored import Run, load_runs
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.kit_datasets import KIT_DATASETS, ROTATION, write_kit_dataset

MIX = {"choice": 0.4, "value": 0.3, "taller": 0.3}
REASONED = "Looking at the bars.\nAnswer: "


@dataclass(frozen=True)
class Kit:
    """A folder to run the kit in.

    Attributes:
        folder: holds `LMUData/` and the scripts `small.json` and `large.json`.
        answers: data set to index to right answer.
    """

    folder: Path
    answers: dict[str, dict[str, str]]

    @property
    def environment(self) -> dict[str, str]:
        return {"LMUData": str(self.folder / "LMUData"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    @property
    def alone(self) -> dict[str, str]:
        """An environment in which lmms-eval is not installed."""
        (self.folder / "alone").mkdir(exist_ok=True)
        (self.folder / "alone" / "lmms_eval.py").write_text("raise ImportError('not installed')\n")
        return {"PYTHONPATH": os.pathsep.join([str(self.folder / "alone"), os.environ.get("PYTHONPATH", "")])}

    def run(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `mai vlmevalkit` in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "mai_plugin.cli", "vlmevalkit", *args], cwd=self.folder,
            env={**os.environ, **self.environment, **self.alone, **environment}, capture_output=True, text=True, check=False,
            timeout=600,
        )  # fmt: skip

    def config(self, name: str, models: Mapping[str, Mapping[str, Any]], datasets: Sequence[str]) -> str:
        """Write a file for `--config`.  The engine is the scripted one unless a model says otherwise."""
        described = {name: {"class": "MaiVLM", "engine": "scripted", **args} for name, args in models.items()}
        data = {name: {"class": KIT_DATASETS[name.removesuffix("_mini")].cls, "dataset": name} for name in datasets}
        (self.folder / name).write_text(json.dumps({"model": described, "data": data}))
        return str(self.folder / name)

    def script(self, name: str, script: Mapping[str, Any]) -> str:
        """Write a script."""
        (self.folder / name).write_text(json.dumps(script))
        return str(self.folder / name)

    def status(self, model: str, work_dir: str = "outputs") -> dict[str, Any]:
        """What the kit says of a model, by data set."""
        file = self.folder / work_dir / model / "status.json"
        return json.loads(file.read_text())["datasets"]  # type: ignore[no-any-return]

    def predictions(self, model: str, dataset: str, work_dir: str = "outputs") -> dict[str, str]:
        """Index to what was handed over, as it is in the kit's file."""
        import pandas

        file = self.folder / work_dir / model / f"{model}_{dataset}.tsv"
        table = pandas.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
        return dict(zip(table["index"], table["prediction"], strict=True))

    def runs(self, *names: str) -> list[Run]:
        return load_runs(self.folder / "mai_runs", names)


def make_kit(folder: Path, count: int = 24) -> Kit:
    """Write all data sets, and scripts that take each route in turn.

    By the number of the question: 0 agrees at once; 1 agrees after reasoning; 2 is transferred and put right; 3 agrees
    on a wrong answer; and so on.  All rotations of a question go the same way.
    """
    charts = chart_questions(count, 5, MIX)
    answers = {f"{name}_mini": write_kit_dataset(name, folder / "LMUData", charts) for name in KIT_DATASETS}
    kit = Kit(folder, answers)
    small, large = {}, {}
    for dataset, rows in answers.items():
        for index, right in rows.items():
            question, wrong = f"{dataset}/{index}", wrong_answer(right)
            reasoned = f"{REASONED}{right}"
            small[question] = [
                {"S": right, "R": reasoned}, {"S": wrong, "R": reasoned}, {"S": wrong, "R": reasoned},
                {"S": f"{wrong}.", "R": reasoned},
            ][number(index) % 4]  # fmt: skip
            large[question] = [
                {"S": right, "R": f"{REASONED}{wrong}", "final": f"The answer is {right}."},
                {"S": right, "R": reasoned, "final": right},
                {"S": "nothing of all that", "R": f"{REASONED}{wrong}", "final": f"**{right}**"},
                {"S": wrong, "R": reasoned, "final": right},
            ][number(index) % 4]  # fmt: skip
    kit.script("small.json", small)
    kit.script("large.json", large)
    return kit


def number(index: str) -> int:
    """The number of a row's question."""
    return int(index) % ROTATION


def wrong_answer(right: str) -> str:
    """One that no scorer takes for right, not even in part."""
    return {"Yes": "No", "No": "Yes", "A": "B", "B": "C", "C": "D", "D": "A"}.get(right, "zzzz")
