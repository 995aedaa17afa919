"""`mai report`: stored runs, the harness's scores joined to them, as tables, files, pictures and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mai_plugin.harness.scores import score
from mai_plugin.output.files import Outputs
from mai_plugin.output.render import to_data, to_terminal
from mai_plugin.output.table import Table
from mai_plugin.report.measures import measure, way
from mai_plugin.report.related_runs import Results
from mai_plugin.report.stats import Comparison, compare
from mai_plugin.report.tables import report_tables
from mai_plugin.run.stored import Run, collector_paused, load_runs

if TYPE_CHECKING:
    from mai_plugin.output.plots import Picture


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
                    "form": str(way(run)),
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
    with collector_paused():
        return _make_report(store, names, folders, baseline)


def _make_report(store: Path, names: Sequence[str], folders: Sequence[Path], baseline: str | None) -> Report:
    runs = load_runs(store, names) if names else latest(load_runs(store))
    if not runs:
        raise ValueError(f"the call store {store} holds no run with an answered question yet")
    against = load_runs(store, [baseline])[0] if baseline is not None else None
    if against and against.id not in {run.id for run in runs}:
        runs = [*runs, against]
    empty = next((run.id for run in runs if not run.samples), None)
    if empty:
        raise ValueError(f"run {empty} has no answered question yet; leave it out")
    runs = list({run.id: run for run in runs}.values())
    scored = []
    while runs:  # so that the unscored samples of one run at a time are in memory beside the scored ones
        scored.append(score(runs.pop(0), folders))
    results = Results(measure(scored))
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


def write_report(report: Report, outputs: Outputs) -> list[Path]:
    """Print a report and write what is asked for.

    Returns:
        The files.

    Raises:
        ValueError: a file cannot be written.
    """
    to_terminal(report.tables)

    def drawn() -> list[Picture]:
        from mai_plugin.report.plots import pictures

        return pictures(report.results)

    def page() -> str:
        from mai_plugin.report.page import page

        return page(report.results, report.tables)

    return outputs.write(report.as_json, lambda: report.tables, drawn, page)
