"""Numbers of a run on one task: score, tokens, routes, latency.  All tables and plots are made from these."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from mai_plugin.core.records import Completion, critical_path, in_order, total_details
from mai_plugin.core.text import last_part
from mai_plugin.core.ways import MAI, Way
from mai_plugin.harness.scores import ScoredRun, TaskScore
from mai_plugin.report.stats import interval
from mai_plugin.run.stored import Run, Sample

PAPER_ORDER = ("pope", "mmmu", "mmbench", "chartqa", "infovqa", "realworldqa")
STAGES = ("S", "E", "R", "final")


@dataclass(frozen=True)
class Spread:
    """How some times are spread, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of some values; None if there are none."""
        if not values:
            return None
        array = np.asarray(values)
        return cls(float(np.mean(array)), *(float(value) for value in np.percentile(array, (50, 90, 99))))


@dataclass(frozen=True)
class TaskResult:
    """A run on one task.

    Attributes:
        label: the run's name in tables; two runs of one name get different ones.
        run: the run, all of its tasks.
        task: the task.
        samples: its questions.
        score: None where it was not scored.
        unscored: then why.
        ci95: interval of the score, in points.
    """

    label: str
    run: Run
    task: str
    samples: tuple[Sample, ...]
    score: TaskScore | None
    unscored: str
    ci95: tuple[float, float] | None

    @cached_property
    def answered(self) -> tuple[Sample, ...]:
        """Questions that were answered."""
        return tuple(sample for sample in self.samples if sample.error is None)

    @property
    def n(self) -> int:
        """Questions, failed ones included."""
        return len(self.samples)

    @cached_property
    def documents(self) -> frozenset[str]:
        """Which documents it has."""
        return frozenset(sample.doc_id for sample in self.samples)

    @cached_property
    def output_tokens(self) -> dict[str, int]:
        """Role to the tokens that it wrote."""
        written: Counter[str] = Counter()
        for (role, _), made in self._made.items():
            written[role] += sum(done.output_tokens for done in made)
        return {role: written[role] for role in in_order(written)}

    @cached_property
    def stage_tokens(self) -> dict[tuple[str, str], int]:
        """Role and stage to the tokens written there."""
        return {
            (role, stage): sum(done.output_tokens for done in self._made[role, stage])
            for role in in_order(role for role, _ in self._made)
            for stage in STAGES
            if (role, stage) in self._made
        }

    @cached_property
    def tokens_per_question(self) -> float | None:
        """Output tokens of all models per answered question."""
        return sum(self.output_tokens.values()) / len(self.answered) if self.answered else None

    @cached_property
    def tokens_per_correct(self) -> float | None:
        """Output tokens of all models per right answer (where scores are between 0 and 1, per point of their sum)."""
        right = sum(self.score.scores.values()) if self.score else 0.0
        return sum(self.output_tokens.values()) / right if right else None

    @cached_property
    def calls(self) -> int:
        """Calls made."""
        return sum(len(sample.calls) for sample in self.samples)

    @cached_property
    def reused_calls(self) -> int:
        """Calls that were taken from the store."""
        return sum(done.reused for made in self._made.values() for done in made)

    @cached_property
    def routes(self) -> dict[str, int]:
        """Route to how many questions took it, the most frequent first."""
        return dict(Counter(sample.route for sample in self.answered if sample.route).most_common())

    @cached_property
    def latencies(self) -> dict[str, list[float]]:
        """Route to the latency of each question that took it, in seconds."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for sample in self.answered:
            found[sample.route or ""].append(critical_path(sample.calls))
        return {route: found[route] for route in self.routes}

    @cached_property
    def latency(self) -> Spread | None:
        """Spread of the latency over all questions."""
        return Spread.of([value for values in self.latencies.values() for value in values])

    @cached_property
    def ttft(self) -> dict[str, Spread]:
        """Role to the spread of the time to first token of its calls."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for (role, stage), made in self._made.items():
            if stage != "select":  # which writes no token
                found[role].extend(done.ttft_s for done in made)
        return {role: spread for role in in_order(found) if (spread := Spread.of(found[role]))}

    @property
    def failed(self) -> int:
        """Questions that could not be answered."""
        return len(self.samples) - len(self.answered)

    @cached_property
    def no_answer(self) -> int:
        """Questions whose final text states no answer."""
        return sum(sample.answer is None for sample in self.answered)

    @cached_property
    def cut_reasoning(self) -> int:
        """E and R texts that the token limit cut."""
        reasoning = (made for (_, stage), made in self._made.items() if stage in ("E", "R"))
        return sum(done.finish_reason == "length" for made in reasoning for done in made)

    @cached_property
    def details(self) -> dict[str, int]:
        """Sums of the counts that only some calls have: see `Completion`."""
        return total_details(done for made in self._made.values() for done in made if done.details)

    @cached_property
    def _made(self) -> dict[tuple[str, str], list[Completion]]:
        """Role and stage to what the calls there returned."""
        made: defaultdict[tuple[str, str], list[Completion]] = defaultdict(list)
        for sample in self.samples:
            for call in sample.calls:
                made[call.role, call.stage].append(call.completion)
        return dict(made)

    def as_json(self) -> dict[str, Any]:
        """As documented in docs/reports.md."""
        return {
            "n": self.n,
            "score": self.score.value if self.score else None,
            "metric": self.score.metric if self.score else None,
            "ci95": list(self.ci95) if self.ci95 else None,
            "unscored": self.unscored or None,
            "output_tokens": self.output_tokens,
            "tokens_by_stage": {f"{role}-{stage}": count for (role, stage), count in self.stage_tokens.items()},
            "tokens_per_question": self.tokens_per_question,
            "tokens_per_correct": self.tokens_per_correct,
            "calls": self.calls,
            "reused_calls": self.reused_calls,
            "routes": self.routes,
            "latency": asdict(self.latency) if self.latency else None,
            "latency_by_route": {
                route: asdict(spread) for route, values in self.latencies.items() if (spread := Spread.of(values))
            },
            "ttft": {role: asdict(spread) for role, spread in self.ttft.items()},
            "failed": self.failed,
            "no_answer": self.no_answer,
            "cut_reasoning": self.cut_reasoning,
            **self.details,
        }


def measure(scored: Sequence[ScoredRun]) -> list[TaskResult]:
    """Every run on each of its tasks, tasks in the paper's order."""
    labels = run_labels([entry.run for entry in scored])
    results = []
    for entry, label in zip(scored, labels, strict=True):
        by_task: defaultdict[str, list[Sample]] = defaultdict(list)
        for sample in entry.run.samples.values():
            by_task[sample.task].append(sample)
        for task in sorted(by_task, key=task_order):
            samples = tuple(by_task[task])
            found = entry.scores.get(task)
            reason = entry.unscored.get(task, "")
            results.append(
                TaskResult(label, entry.run, task, samples, found, reason, interval(found.units) if found else None)
            )
    return results


def task_order(task: str) -> tuple[int, str]:
    """Sorts tasks as the paper does, others behind them."""
    for place, name in enumerate(PAPER_ORDER):
        if task.startswith(name):
            return place, task
    return len(PAPER_ORDER), task


def run_labels(runs: Sequence[Run]) -> list[str]:
    """The name of each run; with its engine, or its id instead, where runs of one name share a task."""

    def clashing(labels: Sequence[str]) -> set[int]:
        pairs = combinations(range(len(runs)), 2)
        return {
            place
            for pair in pairs
            if labels[pair[0]] == labels[pair[1]] and set(runs[pair[0]].tasks) & set(runs[pair[1]].tasks)
            for place in pair
        }

    labels = [run.name for run in runs]
    several = clashing(labels)
    if len({runs[place].engine for place in several}) > 1:
        labels = [
            f"{label} ({runs[place].engine})" if place in several else label for place, label in enumerate(labels)
        ]
    several = clashing(labels)
    return [runs[place].id if place in several else label for place, label in enumerate(labels)]


def way(run: Run) -> Way:
    """How its questions were asked; where its settings do not say so, by the stages of its calls."""
    if run.strategy == MAI or "prompt" in run.settings:
        return Way.of(run.strategy, run.settings)
    stages = {call.stage for sample in run.samples.values() for call in sample.calls}
    style = next((stage for stage in ("R", "E", "S") if stage in stages), None)
    two_stage = run.strategy in ("single", "speculative") and "final" in stages
    return Way.of(run.strategy, {"prompt": style, "two_stage": two_stage})


def models(run: Run) -> dict[str, str]:
    """Role to the model's short name."""
    return {role: last_part(str(spec["name"])) for role, spec in run.settings.get("models", {}).items()}


def identities(run: Run) -> dict[str, str]:
    """Role to what tells its model from others: runs with equal ones can be compared."""
    return {role: str(spec.get("identity") or spec["name"]) for role, spec in run.settings.get("models", {}).items()}


def toy(run: Run) -> str | None:
    """A warning for runs that used no real model, else None."""
    if run.engine == "scripted":
        return "scripted answers, no model ran"
    if any(name.startswith("mai-tiny") for name in models(run).values()):
        return "toy models, good for nothing but bar charts"
    return None


def score_cell(result: TaskResult) -> float | str:
    """The score in points, or that there is none."""
    return result.score.value if result.score else "not scored"
