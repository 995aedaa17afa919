"""Which runs belong together: a cascade and the single models and transfers that it is to be compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mai_plugin.core.ways import Way
from mai_plugin.report.measures import TaskResult, identities, models, task_order, way
from mai_plugin.run.stored import Run


class Results:
    """Measured runs, by label and task.

    Args:
        results: of all runs on all of their tasks.
    """

    def __init__(self, results: Sequence[TaskResult]) -> None:
        self._results = list(results)
        self._by_key = {(result.label, result.task): result for result in results}
        self.runs = list({result.run.id: (result.label, result.run) for result in results}.values())
        """Labels and runs.  Runs of one name on different tasks share a label."""
        self.tasks = sorted({result.task for result in results}, key=task_order)

    def __iter__(self) -> Iterator[TaskResult]:
        return iter(self._results)

    def of(self, label: str, task: str) -> TaskResult | None:
        """A run on a task."""
        return self._by_key.get((label, task))

    def of_run(self, run: Run) -> list[TaskResult]:
        """A run on all of its tasks."""
        return [result for result in self._results if result.run.id == run.id]


@dataclass(frozen=True)
class Pair:
    """A run of two models, and how to find the runs that it is compared with: same models, same engine."""

    label: str
    run: Run

    @property
    def small(self) -> str:
        """The small model's short name."""
        return models(self.run)["small"]

    @property
    def large(self) -> str:
        """The large model's short name."""
        return models(self.run)["large"]

    def single(self, results: Results, role: str, asked: Way, task: str) -> TaskResult | None:
        """One of its models alone on a task."""
        wanted = {"model": identities(self.run)[role]}
        return self._latest(results, asked, wanted, task)

    def transfer(self, results: Results, task: str) -> TaskResult | None:
        """Its models with the small one's R always transferred."""
        return self.like(results, Way("transfer"), task)

    def like(self, results: Results, asked: Way, task: str) -> TaskResult | None:
        """Its models asked in another way."""
        return self._latest(results, asked, identities(self.run), task)

    def whole(self, results: Results, find: Callable[..., TaskResult | None], *args: Any) -> Run | None:
        """The run behind one of the finders above; it has to be one run over all of this one's tasks."""
        found = [find(results, *args, task) for task in self.run.tasks]
        ids = {result.run.id if result else None for result in found}
        return found[0].run if len(ids) == 1 and found[0] else None

    def _latest(self, results: Results, asked: Way, wanted: Mapping[str, str], task: str) -> TaskResult | None:
        found = [result for result in results if result.task == task and result.run.engine == self.run.engine]
        matching = (result for result in reversed(found) if way(result.run) == asked)
        return next((result for result in matching if identities(result.run) == wanted), None)


def pairs(results: Results, *strategies: str) -> list[Pair]:
    """The runs of two models with one of these strategies."""
    return [Pair(label, run) for label, run in results.runs if run.strategy in strategies]


def time_cell(run: Run) -> float | str:
    """Wall seconds of a run, or why they say nothing."""
    if not run.finished or run.wall_s is None:
        return "n/a (not finished)"
    if run.reused_calls:
        return f"n/a ({run.reused_calls:,} calls reused)"
    failed = sum(sample.error is not None for sample in run.samples.values())
    return f"n/a ({failed:,} of {len(run.samples):,} questions failed)" if failed else run.wall_s


def speedup(run: Run, other: Run, same_engine: bool = True) -> float | str:
    """How many times a run's seconds another took, or why that cannot be said."""
    mine, theirs = time_cell(run), time_cell(other)
    if isinstance(mine, str):
        return mine
    if isinstance(theirs, str):
        return theirs.replace("(", "(there ", 1)
    if run.samples.keys() != other.samples.keys():
        return "n/a (other questions)"
    if same_engine and run.engine != other.engine:
        return "n/a (other engine)"
    return theirs / mine if mine else "n/a (no time)"
