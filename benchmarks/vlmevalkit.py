"""How much VLMEvalKit gains by questions that overlap: 64 questions to a model that takes 200 ms for each call.

The real kit on a generated `ChartQA_TEST_mini`, with `--api-nproc 1` (one question at a time, as the kit runs models of
its own) against what `mai vlmevalkit` sets by itself.  Times are those of the runs, as the call store has them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import machine, median, write

from mai_plugin.run.stored import load_runs
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.kit_datasets import write_kit_dataset

DATASET = "ChartQA_TEST_mini"
SCRIPTS = {"small": {"*": {"S": "3", "R": "It is 4.\nAnswer: 4"}}, "large": {"*": {"S": "5", "final": "4"}}}
MODELS = {"S": {"model": "large.json"}, "MAI": {"small": "small.json", "large": "large.json"}}


def seconds(folder: Path, model: str, count: int, latency_s: float, *args: str) -> float:
    """Seconds from the first question to the last answer."""
    entry = {"class": "MaiVLM", "engine": "scripted", "engine_args": {"latency_s": latency_s}, "reuse": False}
    data = {DATASET: {"class": "ImageVQADataset", "dataset": DATASET}}
    config = folder / "config.json"
    config.write_text(json.dumps({"model": {model: {**entry, **MODELS[model]}}, "data": data}))
    work_dir = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, "-m", "mai_plugin.cli", "vlmevalkit", "--config", "config.json", "--work-dir", work_dir]
    done = subprocess.run(
        [*command, "--judge", "exact_matching", *args], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "LMUData": str(folder / "LMUData")},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    run = load_runs(folder / "mai_runs")[-1]
    assert run.wall_s is not None
    assert len(run.samples) == count
    return run.wall_s


def main() -> None:
    """Measure and write `out/bench/vlmevalkit.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2)
    options = parser.parse_args()
    where = machine()
    keys: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_kit_dataset("ChartQA_TEST", folder / "LMUData", chart_questions(options.questions, 1, {"value": 1.0}))
        for side, script in SCRIPTS.items():
            (folder / f"{side}.json").write_text(json.dumps(script))
        for model in MODELS:
            for how, args in (("serial", ("--api-nproc", "1")), ("overlapping", ())):
                repeats = 1 if how == "serial" else options.repeats
                times = [seconds(folder, model, options.questions, options.latency, *args) for _ in range(repeats)]
                keys[f"{model}_{how}_s"] = median(times)
            keys[f"{model}_serial_over_overlapping"] = median(
                [keys[f"{model}_serial_s"] / keys[f"{model}_overlapping_s"]]
            )
    write("vlmevalkit", keys, {"questions": options.questions, "latency_s": options.latency}, where)


if __name__ == "__main__":
    main()
