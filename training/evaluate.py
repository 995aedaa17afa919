"""Measure the tiny pair on held-out charts: every form of asking in one table.

    python -m training.evaluate                      # writes scores.json beside the checkpoints
    python -m training.evaluate --small DIR --large DIR --training-seed 1

Goes through the package's own strategies and transformers engine, as a user's run does.  An answer is right if it
equals the right one but for case: no relaxed match as in ChartQA.  These are toy scores of toy models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mai_plugin.core.records import Image, Message, Outcome
from mai_plugin.resources import PACKAGE
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings
from mai_plugin.tiny import LARGE, SMALL
from mai_plugin.tiny.charts import REQUEST, ChartQuestion, chart_questions

SCORES = PACKAGE / "tiny" / "scores.json"
CHART_SEEDS = (12345, 54321)

Form = tuple[str, dict[str, Any]]


def forms(small: Path, large: Path) -> dict[str, Form]:
    """The rows of the table: name to strategy and arguments."""
    pair = {"small": str(small), "large": str(large)}
    rows: dict[str, Form] = {}
    for name, model in pair.items():
        rows[f"{name}-S"] = ("single", {"model": model, "prompt": "S"})
        rows[f"{name}-E"] = ("single", {"model": model, "prompt": "E"})
        rows[f"{name}-R"] = ("single", {"model": model, "prompt": "R"})
        rows[f"{name}-R-S2"] = ("single", {"model": model, "prompt": "R", "two_stage": True})
    rows["transfer"] = ("transfer", dict(pair))
    rows["MAI"] = ("mutual_verification", dict(pair))
    return rows


def measure(form: Form, questions: Sequence[ChartQuestion], role: str) -> dict[str, Any]:
    """Answer the questions in one form.

    Args:
        form: strategy and arguments.
        questions: held-out charts.
        role: which of `small` and `large` the model of a single strategy is.

    Returns:
        `score` in points (0 to 100), `routes` as counts, `output_tokens` per question and model, and what else was
        counted (`details` in `Summary`).
    """
    strategy, args = form
    engine = {"batch_size": 50, "dtype": "float32", "engine_args": {"num_threads": 1}, "max_reasoning_tokens": 128}
    with Session(Settings.from_args(strategy, {**args, **engine, "concurrency": 200, "store": "off"})) as session:

        def item(chart: ChartQuestion) -> Item:
            messages = [Message("user", (Image(chart.image), f"{chart.question}\n{REQUEST}"))]
            return Item(chart.id, lambda: session.question(chart.id, messages, 16))

        results, summary = session.run([item(chart) for chart in questions], progress=False)
    right = 0
    for chart, result in zip(questions, results, strict=True):
        if not isinstance(result, Outcome):
            raise result.error
        right += result.answer.casefold() == chart.answer.casefold()
    tokens = {
        role if name == "model" else name: usage.output_tokens / len(questions) for name, usage in summary.usage.items()
    }
    return {
        "score": round(100 * right / len(questions), 1),
        "routes": summary.routes,
        **summary.details,
        "output_tokens": {name: round(tokens.get(name, 0.0), 2) for name in ("small", "large")},
    }


def measure_all(small: Path, large: Path, n: int, chart_seed: int) -> dict[str, dict[str, Any]]:
    """All forms on `n` charts of a seed."""
    questions = chart_questions(n, chart_seed)
    return {name: measure(form, questions, name.partition("-")[0]) for name, form in forms(small, large).items()}


def table(rows: dict[str, dict[str, Any]], title: str) -> Table:
    """A table for the terminal."""
    out = Table(title=title)
    for column in ("form", "score", "tokens small", "tokens large", "routes"):
        out.add_column(column, justify="left" if column in ("form", "routes") else "right")
    for name, row in rows.items():
        tokens = row["output_tokens"]
        routes = (
            ", ".join(f"{route} {count}" for route, count in row["routes"].items()) if len(row["routes"]) > 1 else ""
        )
        out.add_row(name, f"{row['score']:.1f}", f"{tokens['small']:.2f}", f"{tokens['large']:.2f}", routes)
    return out


def report(
    small: Path, large: Path, n: int, chart_seeds: Sequence[int], training_seed: int, scores: Path | None
) -> None:
    """Measure a pair, print a table per chart seed, and add the runs to a file of scores.

    Args:
        small, large: checkpoint folders.
        n: charts of each seed.
        chart_seeds: seeds of the held-out charts.
        training_seed: what the pair was trained with; 0 is the pair that ships.
        scores: the file; its top-level figures are those of the shipped pair on the first chart seed.  None: no file.
    """
    runs: list[dict[str, Any]] = []
    for seed in chart_seeds:
        rows = measure_all(small, large, n, seed)
        Console().print(table(rows, f"training seed {training_seed}, {n} held-out charts of seed {seed}"))
        runs.append({"training_seed": training_seed, "chart_seed": seed, "n": n, "rows": rows})
    if scores is None:
        return
    known = json.loads(scores.read_text(encoding="utf-8"))["runs"] if scores.exists() else []
    new = {(run["training_seed"], run["chart_seed"]) for run in runs}
    runs += [run for run in known if (run["training_seed"], run["chart_seed"]) not in new]
    runs.sort(key=lambda run: (run["training_seed"], run["chart_seed"]))
    shipped = next((run for run in runs if run["training_seed"] == 0), runs[0])
    content = {
        **{name: row["score"] for name, row in shipped["rows"].items()},
        "n": shipped["n"],
        "unit": "points, 0 to 100: toy scores of toy models on charts that they were made for",
        "output_tokens": {name: row["output_tokens"] for name, row in shipped["rows"].items()},
        "runs": runs,
    }
    scores.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(description="Measure the tiny pair on held-out charts.")
    parser.add_argument("--small", type=Path, default=SMALL)
    parser.add_argument("--large", type=Path, default=LARGE)
    parser.add_argument("-n", type=int, default=1000, help="charts of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=CHART_SEEDS, help="chart seeds")
    parser.add_argument("--training-seed", type=int, default=0, help="seed that the pair was trained with")
    parser.add_argument("--scores", type=Path, default=SCORES, help="file to write")
    args = parser.parse_args()
    report(args.small, args.large, args.n, args.seeds, args.training_seed, args.scores)


if __name__ == "__main__":
    main()
