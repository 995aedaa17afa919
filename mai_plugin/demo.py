"""`mai demo`: the tiny pair on bar charts, through the real lmms-eval command line, in one table.

Each row is one `lmms-eval` process under the official task name `chartqa`, with ChartQA's own loader and scorer, on a
data set written on the spot.  Toy models on toy data: the table shows that everything works, not what MAI brings.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mai_plugin.harness.lmms_eval.command import Evaluation, results
from mai_plugin.settings import Settings

ROWS = {
    "small-S": ("mai_single", "preset=tiny-small-S"),
    "large-S": ("mai_single", "preset=tiny-large-S"),
    "large-R": ("mai_single", "preset=tiny-large-R"),
    "MAI": ("mai_cascade", "preset=MAI-tiny"),
}
CHART_SEED = 2026
STORE = "demo.sqlite"


def run_lmms_eval(folder: Path, model: str, model_args: str, name: str, tasks: str, batch_size: int) -> dict[str, Any]:
    """Run the lmms-eval command line in a folder with generated data, and read the results that it wrote.

    Raises:
        EvaluationFailed: it wrote no results.
    """
    evaluation = Evaluation(model, model_args, tasks.split(","), batch_size, Path("results") / name)
    shutil.rmtree(folder / evaluation.output, ignore_errors=True)
    # A cache of its own: `datasets` would else serve another folder's data, which has the same relative path.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder.resolve() / "cache"), "OMP_NUM_THREADS": "1"}
    return results(evaluation.run(folder / f"{name}.log", folder, offline))


def run_demo(
    out: Path, n: int, batch_size: int = 16, engine: str = "transformers", base_urls: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Write the data set, run every row, and write `summary.json`.

    Args:
        out: folder for data, logs, results and the summary.
        n: number of charts.
        batch_size: as in lmms-eval; vLLM and servers make their own batches.
        engine: what runs the models.
        base_urls: for engine `openai`, where `small` and `large` are served, as `mai-tiny-small` and `mai-tiny-large`.

    Raises:
        ValueError: no such engine, or URLs that do not go with it; nothing was touched.
        OSError: `out` cannot be written.
        EvaluationFailed: lmms-eval wrote no results.

    Returns:
        Rows with `name`, `score` (points, 0 to 100), `output_tokens` per model, `wall_s` (answering only: loading
        the models and starting the harness is not in it), `routes` (counts) and `engine`.
    """
    from mai_plugin.tiny.charts import chart_questions
    from mai_plugin.tiny.datasets import write_benchmark

    commands = {name: (model, _model_args(name, engine, base_urls or {})) for name, (model, _) in ROWS.items()}
    for model, args in commands.values():  # a wrong argument is refused before the last demo's files go
        Settings.from_args("mutual_verification" if model == "mai_cascade" else "single", args)
    out.mkdir(parents=True, exist_ok=True)
    write_benchmark("chartqa", out, chart_questions(n, CHART_SEED))
    for old in (out / "summary.json", *out.glob(f"{STORE}*")):  # they tell of results that this demo replaces
        old.unlink(missing_ok=True)
    rows = []
    for name, (model, args) in commands.items():
        model_args = ",".join(f"{key}={value}" for key, value in args.items())
        print(f"running {name}: --model {model} --model_args {model_args}", file=sys.stderr, flush=True)
        # Seconds of calls that another row made would be none: each row makes its own.
        given = f"{model_args},store={STORE},reuse=false"
        row = _row(name, run_lmms_eval(out, model, given, name, "chartqa", batch_size), n)
        rows.append({**row, "engine": engine})
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows


def _model_args(name: str, engine: str, base_urls: Mapping[str, str]) -> dict[str, str]:
    model, preset = ROWS[name]
    args = {"preset": preset.removeprefix("preset="), **({"engine": engine} if engine != "transformers" else {})}
    for role, url in base_urls.items():
        if model == "mai_cascade":
            args[f"{role}_base_url"] = url
        elif name.startswith(role):
            args["base_url"] = url
    return args


def _row(name: str, found: dict[str, Any], n: int) -> dict[str, Any]:
    numbers = found["throughput"]
    share = "avg_share_"
    single = name.partition("-")[0]  # the one model of a baseline
    tokens = {
        role: int(
            numbers.get(f"avg_{role}_output_tokens", numbers.get("avg_model_output_tokens", 0) if role == single else 0)
        )
        for role in ("small", "large")
    }
    return {
        "name": name,
        "score": round(100 * found["results"]["chartqa"]["relaxed_overall,none"], 2),
        "output_tokens": tokens,
        "wall_s": round(numbers["total_elapsed_time"], 2),
        "routes": {key[len(share) :]: round(n * value) for key, value in numbers.items() if key.startswith(share)},
    }


def demo_table(rows: list[dict[str, Any]], n: int) -> Table:
    """The rows for the terminal."""
    table = Table(title=f"Toy models on {n} toy charts (lmms-eval, task chartqa)")
    for column in ("", "score", "tokens small", "tokens large", "tokens", "seconds", "routes"):
        table.add_column(column, justify="left" if column in ("", "routes") else "right")
    for row in rows:
        small, large = row["output_tokens"].values()
        routes = ", ".join(f"{route} {count}" for route, count in row["routes"].items())
        numbers = (f"{row['score']:.1f}", f"{small:,}", f"{large:,}", f"{small + large:,}", f"{row['wall_s']:.1f}")
        table.add_row(row["name"], *numbers, routes if len(row["routes"]) > 1 else "")
    return table


def main(out: Path, n: int, engine: str = "transformers", base_urls: Mapping[str, str] | None = None) -> None:
    """Run the demo and print its table."""
    rows = run_demo(out, n, engine=engine, base_urls=base_urls)
    Console(width=max(100, Console().width)).print(demo_table(rows, n))
    environment = f"HF_HUB_OFFLINE=1 HF_HOME={(out / 'cache').resolve()}"
    command = "lmms-eval --model mai_cascade --model_args preset=MAI-tiny --tasks chartqa --batch_size 16"
    for line in (
        "These are toys: two models of 0.5 and 1 M parameters on synthetic bar charts.",
        "Tokens are output tokens. Seconds count answering only, and with such models hardly any of it is decoding.",
        f"The same as JSON: {out / 'summary.json'}; logs and per-sample results are beside it. A row by hand:",
        f"cd {out}; {environment} {command}",
    ):
        print(line)
