"""Speculative decoding against plain reasoning and MAI (paper: table 12), on the tiny pair and generated charts.

Rows as in the table: large-R and large-R with the small model as its assistant, one question at a time; large-R and MAI
in batches of 32.  All on transformers, models loaded and warm, the rows interleaved, several times; ratios are within
one repetition, and the medians of them are printed.  Times leave the second stage (S2) out, as the table does; its
score comes from a run of its own.  `make bench-speculative`; toy models and toy data throughout.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from common import machine, median, write
from rich.console import Console
from rich.table import Table

from mai_plugin.core.records import Image, Message, Outcome
from mai_plugin.paper.figures import paper
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import ChartQuestion, chart_questions

REQUEST = "Answer the question with a single word."
LARGE = {"model": "mai-tiny-large", "prompt": "R"}
PAIR = {"small": "mai-tiny-small", "large": "mai-tiny-large"}
ROWS: dict[str, tuple[str, dict[str, Any], int]] = {
    "large-R, batch 1": ("single", LARGE, 1),
    "speculative, batch 1": ("speculative", PAIR, 1),
    "large-R, batch 32": ("single", LARGE, 32),
    "MAI, batch 32": ("mutual_verification", PAIR, 32),
}
PRINTED = {
    "large-R, batch 1": "8B-R HF bs1", "speculative, batch 1": "speculative 8B+2B HF bs1",
    "large-R, batch 32": "8B-R vLLM bs32", "MAI, batch 32": "MAI 8B+2B vLLM bs32",
}  # fmt: skip


def open_session(name: str, **more: Any) -> Session:
    """The models of a row, loaded."""
    strategy, args, batch = ROWS[name]
    engine = {"dtype": "float32", "engine_args": {"num_threads": 1}, "batch_size": batch, "store": "off"}
    limits = {"max_reasoning_tokens": 128, "concurrency": 4 * batch}
    return Session(Settings.from_args(strategy, {**args, **engine, **limits, **more}))


def answer(session: Session, charts: Sequence[ChartQuestion]) -> tuple[list[Outcome], Summary]:
    """Answers to all charts.  Raises the error of the first that fails."""

    def item(chart: ChartQuestion) -> Item:
        message = Message("user", (Image(chart.image), f"{chart.question}\n{REQUEST}"))
        return Item(chart.id, lambda: session.question(chart.id, [message], 16))

    results, summary = session.run([item(chart) for chart in charts], progress=False)
    outcomes = []
    for result in results:
        if not isinstance(result, Outcome):
            raise result.error
        outcomes.append(result)
    return outcomes, summary


def score(outcomes: Sequence[Outcome], charts: Sequence[ChartQuestion]) -> float:
    """Points, 0 to 100."""
    right = sum(o.answer.casefold() == chart.answer.casefold() for o, chart in zip(outcomes, charts, strict=True))
    return round(100 * right / len(charts), 2)


def main() -> None:
    """Measure and write `out/bench/speculative.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=100)
    options = parser.parse_args()
    where = machine()
    charts = chart_questions(options.questions, 4242)
    seconds: dict[str, list[float]] = {name: [] for name in ROWS}
    rows: dict[str, dict[str, Any]] = {}
    texts: dict[str, list[str]] = {}
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(open_session(name)) for name in ROWS}
        for session in sessions.values():
            answer(session, charts[:4])
        for _ in range(options.repeats):
            for name, session in sessions.items():
                outcomes, summary = answer(session, charts)
                seconds[name].append(summary.wall_s)
                texts[name] = [outcome.final.text for outcome in outcomes]
                rows[name] = {
                    "score": score(outcomes, charts),
                    "output_tokens": {role: usage.output_tokens for role, usage in summary.usage.items()},
                    **summary.details,
                }
                print(f"{name:21} {summary.wall_s:6.2f} s, score {rows[name]['score']:.2f}", flush=True)
    for name in ("large-R, batch 1", "speculative, batch 1", "large-R, batch 32"):
        with open_session(name, two_stage=True) as session:
            rows[name]["score_with_s2"] = score(answer(session, charts)[0], charts)
    for name, row in rows.items():
        own = "large-R, batch 1" if name.endswith(" 1") else "large-R, batch 32"
        row["total_s"] = median(seconds[name])
        row["s_per_sample"] = median([s / len(charts) for s in seconds[name]])
        row["speedup"] = median([base / s for base, s in zip(seconds[own], seconds[name], strict=True)])
    drafted = rows["speculative, batch 1"]
    keys = {
        "acceptance_rate": round(100 * drafted["accepted_tokens"] / drafted["drafted_tokens"], 2),
        "same_text": texts["large-R, batch 1"] == texts["speculative, batch 1"],
        "speculative_speedup": drafted["speedup"],
        "mai_speedup": rows["MAI, batch 32"]["speedup"],
    }
    show(rows, keys["acceptance_rate"])
    write("speculative", keys, {"rows": rows, "seconds": seconds, "settings": vars(options)}, where)


def show(rows: dict[str, dict[str, Any]], acceptance: float) -> None:
    """The rows in the paper's shape, with what it printed."""
    table = Table(title="Toy models on toy charts; in parentheses the paper's table 12 (8B, 2B, ChartQA)")
    for column in ("", "accepted %", "total s", "s per question", "speed-up", "score", "score with S2"):
        table.add_column(column, justify="left" if not column else "right")
    printed = paper()["table12_chartqa_decoding"]
    for name, row in rows.items():
        theirs = printed[PRINTED[name]]
        cells = (
            (acceptance if "drafted_tokens" in row else None, theirs.get("accept_rate")),
            (row["total_s"], theirs["total_s"]), (row["s_per_sample"], theirs["s_per_sample"]),
            (row["speedup"], theirs["speedup"]), (row["score"], theirs["acc_without_s2"]),
            (row.get("score_with_s2"), theirs.get("acc_with_s2")),
        )  # fmt: skip
        table.add_row(name, *("" if own is None else f"{own:g} ({value})" for own, value in cells))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
