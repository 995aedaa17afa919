"""Run the tiny pair and its baselines through lmms-eval, and put what `mai report` prints into docs/reports.md.

Everything lands in out/report.  With --keep the runs that are there are reported again instead of being made anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from docs_tables import ROOT, put

from mai_plugin.demo import run_lmms_eval
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

OUT = ROOT / "out" / "report"
TASKS = "chartqa,pope"
QUESTIONS = 200
RUNS = {
    "tiny-small-S": "mai_single",
    "tiny-small-R": "mai_single",
    "tiny-large-S": "mai_single",
    "tiny-large-R": "mai_single",
    "tiny-large-R-S2": "mai_single",
    "MAI-tiny-transfer-R": "mai_transfer",
    "MAI-tiny": "mai_cascade",
}
TERMINAL = "mai report --baseline tiny-large-S"
LATER = (
    "mai report MAI-tiny tiny-large-S --markdown report.md --html page --plots pictures --json report.json --csv tables"
)


def evaluate() -> None:
    """Write the data and run every row of `RUNS`, each call made anew so that its times are its own."""
    OUT.mkdir(parents=True, exist_ok=True)
    write_benchmark("chartqa", OUT, chart_questions(QUESTIONS, 2026))
    write_benchmark("pope", OUT, chart_questions(QUESTIONS, 77, {"taller": 1.0}))
    shutil.rmtree(OUT / "mai_runs", ignore_errors=True)
    for name, model in RUNS.items():
        print(f"docs_report: {name}", flush=True)
        preset = name.removesuffix("-transfer-R")
        run_lmms_eval(OUT, model, f"preset={preset},reuse=false", name, TASKS, 16)


def shell(command: str, folder: Path = OUT) -> str:
    """What a command prints, run in a folder with generated data."""
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    environment |= {"HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"docs_report: {command}: {done.stderr.strip().splitlines()[-1]}")
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip().splitlines())


def baseline() -> tuple[str, str]:
    """lmms-eval's own paired t-test: the command, and the lines that it prints about it."""
    (samples,) = sorted((OUT / "results" / "tiny-large-S").rglob("*_samples_pope.jsonl"))[-1:]
    command = (
        "lmms-eval --model mai_cascade --model_args preset=MAI-tiny,store=off --tasks pope --batch_size 16 "
        f"--output_path compared --log_samples --baseline {samples.relative_to(OUT)}"
    )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", shell(command))
    return command, "\n".join(line.split(" - ", 1)[-1] for line in printed.splitlines() if "[Baseline]" in line)


def main() -> None:
    if "--keep" not in sys.argv:
        evaluate()
    shown = shell(TERMINAL).partition("Time to first token")[0]
    shown += "... and time to first token, calls, and what went wrong, in the same form"
    put(ROOT / "docs" / "reports.md", "terminal", f"```\n$ {TERMINAL}\n\n{shown}\n```")
    put(ROOT / "docs" / "reports.md", "files", f"```\n$ {LATER}\n...\n{shell(LATER + ' | tail -14')}\n```")
    command, printed = baseline()
    put(ROOT / "docs" / "reports.md", "baseline", f"```\n$ {command}\n...\n{printed}\n```")


if __name__ == "__main__":
    main()
