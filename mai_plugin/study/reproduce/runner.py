"""Runs a plan, leaving out what is finished: a plan that was stopped is resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mai_plugin.core.text import one_line
from mai_plugin.harness.lmms_eval.command import EvaluationFailed
from mai_plugin.harness.scores import ScoredRun, score
from mai_plugin.run.provenance import describe_settings, model_identities
from mai_plugin.run.stored import Run, filed_runs, load_runs
from mai_plugin.settings import Settings
from mai_plugin.study.reproduce.plan import Plan, Planned, Request, evaluation, settings

Done = Mapping[str, ScoredRun | str]
"""Key of each run to what it measured, or to why it failed, in one line."""


def run_plan(plan: Plan, say: Callable[[str], None]) -> dict[str, ScoredRun | str]:
    """Run what is not finished yet, one lmms-eval process after the other.  A run that fails does not stop the others.

    Args:
        plan: the plan.
        say: told what goes on, a line at a time.

    Returns:
        As in `Done`, for every run.

    Raises:
        ValueError: the call store cannot be read.
    """
    done: dict[str, ScoredRun | str] = {}
    width = len(str(len(plan.runs)))
    for number, run in enumerate(plan.runs, 1):
        head = f"[{number:>{width}}/{len(plan.runs)}] {run.key}"
        found = finished(plan.request, run)
        if isinstance(found, ScoredRun):
            say(f"{head}: finished before")
            done[run.key] = found
            continue
        log = log_file(plan.request, run)
        say(f"{head}: running; log: {log}")
        started = time.monotonic()
        try:
            evaluation(plan.request, run).run(log)
            found = finished(plan.request, run)
            done[run.key] = f"{found} (log: {log})" if isinstance(found, str) else found
        except (EvaluationFailed, OSError) as error:
            done[run.key] = one_line(error)
        ended = done[run.key]
        took = f"{time.monotonic() - started:,.0f} s"
        say(f"{head}: " + (f"FAILED after {took}: {ended}" if isinstance(ended, str) else f"finished in {took}"))
    return done


def finished_runs(plan: Plan) -> dict[str, ScoredRun]:
    """The runs of a plan that need not be run any more."""
    found = {run.key: finished(plan.request, run) for run in plan.runs}
    return {key: run for key, run in found.items() if isinstance(run, ScoredRun)}


def finished(request: Request, run: Planned) -> ScoredRun | str:
    """A run from the store with its scores, or, in one line, what it lacks.

    It counts as finished if the store has all of it, with the settings and the models (by their contents) that it
    would be run with now, and if the harness's results fit it.

    Raises:
        ValueError: the call store cannot be read.
    """
    results = evaluation(request, run).output
    if not request.store.is_file():
        return "there is no call store yet"
    wanted = settings(request, run)
    lacking = []
    for id in reversed(filed_runs(request.store, results)):
        (stored,) = load_runs(request.store, [id])
        found = _scored(stored, wanted, run, results)
        if isinstance(found, ScoredRun):
            return found
        lacking.append(found)
    return lacking[0] if lacking else "the call store has no finished run of it"


def _scored(stored: Run, wanted: Settings, run: Planned, results: Path) -> ScoredRun | str:
    """A stored run with its scores, if it is the planned one, else what it lacks."""
    if not stored.finished:
        return "the stored run is incomplete"
    if stored.settings != _described(wanted):
        return "it was run with other settings or models"
    if set(stored.tasks) != set(run.tasks):
        return f"it was run on other tasks: {', '.join(stored.tasks)}"
    try:
        scored = score(stored, [results])
    except ValueError as error:
        return str(error)
    return scored if not scored.unscored else next(f"{task}: {why}" for task, why in scored.unscored.items())


def log_file(request: Request, run: Planned) -> Path:
    """Where a run's output goes."""
    return request.out / "logs" / evaluation(request, run).output.parent.name / f"{run.key}.log"


def _described(wanted: Settings) -> object:
    """Settings as the store would have them now.

    Of a checkpoint folder that is the fingerprint of what it holds today, of a Hub name the commit in the cache.
    """
    return json.loads(json.dumps(describe_settings(wanted, model_identities(wanted))))
