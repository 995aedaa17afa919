"""`mai report`: stored runs, the harness's scores joined to them, as tables, files, pictures and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mai_plugin.harness.scores import score
from mai_plugin.output.render import to_csv, to_data, to_markdown, to_terminal
from mai_plugin.output.table import Table
from mai_plugin.report.measures import form, measure
from mai_plugin.report.related_runs import Results
from mai_plugin.report.stats import Comparison, compare
from mai_plugin.report.tables import report_tables
from mai_plugin.run.stored import Run, load_runs


@dataclass(frozen=True)
class Report:
    """What a report is made of.

    Attributes:
        results: the runs, measured.
        comparisons: each run against the baseline, task by task.
        tables: all tables for which there are runs.
    """

    results: Results
    comparisons: list[Comparison]
    tables: list[Table]

    def as_json(self) -> dict[str, Any]:
        """As documented in docs/reports.md."""
        return {
            "runs": [
                {
                    "id": run.id,
                    "label": label,
                    "name": run.name,
                    "strategy": run.strategy,
                    "form": form(run),
                    "engine": run.engine,
                    "started_at": run.started_at,
                    "finished": run.finished,
                    "wall_s": run.wall_s,
                    "reused_calls": run.reused_calls,
                    "settings": run.settings,
                    "environment": run.environment,
                    "tasks": {result.task: result.as_json() for result in self.results.of_run(run)},
                }
                for label, run in self.results.runs
            ],
            "comparisons": [{**asdict(found), "verdict": found.verdict} for found in self.comparisons],
            "tables": [to_data(table) for table in self.tables],
        }


@dataclass(frozen=True)
class Outputs:
    """Where a report goes, beside the terminal."""

    json: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    plots: Path | None = None
    written: list[Path] = field(default_factory=list)
    """What was written, once it was."""


def make_report(store: Path, names: Sequence[str], folders: Sequence[Path], baseline: str | None) -> Report:
    """Load runs, join their scores, measure and compare.

    Args:
        store: the call store's file or folder.
        names: runs; if there are none, the latest run of every name, engine and task.
        folders: where lmms-eval wrote its results; by default where each run remembers.
        baseline: a run to compare the others with; it need not be among the names.

    Raises:
        ValueError: no such store or run; scores that do not fit a run; a baseline on other questions.
    """
    runs = load_runs(store, names) if names else latest(load_runs(store))
    if not runs:
        raise ValueError(f"the call store {store} holds no run with an answered question yet")
    against = load_runs(store, [baseline])[0] if baseline is not None else None
    if against and against.id not in {run.id for run in runs}:
        runs = [*runs, against]
    for run in runs:
        if not run.samples:
            raise ValueError(f"run {run.id} has no answered question yet; leave it out")
    runs = list({run.id: run for run in runs}.values())
    results = Results(measure([score(run, folders) for run in runs]))
    comparisons = _compare_all(results, against) if against else []
    return Report(results, comparisons, report_tables(results, comparisons))


def latest(runs: Sequence[Run]) -> list[Run]:
    """Runs that are the latest of their name and engine for at least one task; `runs` are sorted by time."""
    newest = {(run.name, run.engine, task): run.id for run in runs for task in run.tasks}
    return [run for run in runs if run.id in newest.values()]


def _compare_all(results: Results, baseline: Run) -> list[Comparison]:
    found = []
    for theirs in results.of_run(baseline):
        if theirs.score is None:
            raise ValueError(f"baseline {theirs.label} is not scored on {theirs.task}: {theirs.unscored}")
        for mine in results:
            if mine.task == theirs.task and mine.run.id != baseline.id and mine.score:
                found.append(compare(mine.label, mine.score, theirs.label, theirs.score, mine.task))
    if not found:
        raise ValueError(f"nothing to compare with baseline {baseline.name}: no other scored run has a task of it")
    return found


def write_report(report: Report, outputs: Outputs) -> None:
    """Print a report and write what is asked for.

    Raises:
        ValueError: a file cannot be written.
    """
    to_terminal(report.tables)
    try:
        if outputs.json:
            _write(outputs, outputs.json, json.dumps(report.as_json(), indent=1) + "\n")
        if outputs.markdown:
            _write(outputs, outputs.markdown, to_markdown(report.tables))
        if outputs.csv:
            to_csv(report.tables, outputs.csv)
            outputs.written.append(outputs.csv)
        if outputs.plots:
            from mai_plugin.report.plots import write_plots

            outputs.written.extend(write_plots(report.results, outputs.plots))
        if outputs.html:
            from mai_plugin.report.page import page

            _write(outputs, outputs.html / "index.html", page(report.results, report.tables))
    except OSError as error:
        raise ValueError(f"the report cannot be written: {error}") from error


def _write(outputs: Outputs, path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    outputs.written.append(path)
