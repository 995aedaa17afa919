"""`mai reproduce`, from a request to what is printed."""

from __future__ import annotations

import fcntl
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mai_plugin.output.render import to_data, to_terminal
from mai_plugin.output.table import COUNT, Cell, Column, Table
from mai_plugin.study.reproduce.estimate import STAND_INS, Estimate, estimate
from mai_plugin.study.reproduce.measured import Measurer, tables
from mai_plugin.study.reproduce.plan import Plan, evaluation
from mai_plugin.study.reproduce.runner import finished_runs, run_plan


def show_plan(plan: Plan) -> dict[str, Any]:
    """Print the runs with their cost, and their commands.  Runs nothing.

    Returns:
        The same, for another program.
    """
    finished = set(finished_runs(plan))
    estimates = estimate(plan, finished)
    to_terminal([plan_table(plan, estimates, finished)])
    for run in plan.runs:
        print(f"# {run.key}" + (" (finished)" if run.key in finished else ""))
        print(shlex.join(evaluation(plan.request, run).command()))
    return {"plan": plan_json(plan, estimates, finished), "left_out": list(plan.left_out)}


def reproduce(plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Run what is to be run, and print every measured figure beside the printed one.

    Returns:
        Everything, for another program; and key of each failed run to why it failed.

    Raises:
        ValueError: the folder cannot be written, or another such command works in it.
    """
    with _alone(plan.request.out):
        done = run_plan(plan, lambda line: print(line, flush=True))
    print()
    found = Measurer(plan, done).all()
    made = tables(plan, found)
    to_terminal(made)
    failed = {key: run for key, run in done.items() if isinstance(run, str)}
    return {
        "plan": plan_json(plan, estimate(plan), done.keys() - failed.keys()),
        "figures": [figure.as_json() for figure in found],
        "tables": [to_data(table) for table in made],
        "left_out": list(plan.left_out),
        "failed": failed,
    }, failed


def plan_table(plan: Plan, estimates: Mapping[str, Estimate], finished: Collection[str]) -> Table:
    """The runs in their order, with what they cost."""
    rows: list[tuple[Cell, ...]] = [
        (
            number, run.key, ", ".join(map(str, run.tables)), len(run.benchmarks), estimates[run.key].calls,
            estimates[run.key].gpu_s / 3600, "finished" if run.key in finished else "to do",
        )
        for number, run in enumerate(plan.runs, 1)
    ]  # fmt: skip
    total = sum(one.calls for one in estimates.values()), sum(one.gpu_s for one in estimates.values()) / 3600
    rows.append(("", "all", "", None, *total, ""))
    columns = (
        Column(""), Column("run"), Column("for tables"), Column("benchmarks", COUNT), Column("new calls", COUNT),
        Column("GPU hours", ",.2f"), Column("state"),
    )  # fmt: skip
    limit = "" if plan.request.limit is None else f", {plan.request.limit:,} questions of each benchmark"
    title = f"Plan for {plan.request.family}, tables {', '.join(map(str, plan.request.tables))}{limit}"
    return Table("plan", title, columns, tuple(rows), (*_notes(plan), *plan.left_out))


def _notes(plan: Plan) -> list[str]:
    stand_ins = [f"the {size} counts as the {STAND_INS[size]}" for size in plan.request.models if size in STAND_INS]
    other = "" if plan.request.family == "Qwen3-VL" else ", which is Qwen3-VL's"
    notes = [
        f"Estimates, from the paper alone: time of a call by table 4 (batch 1{other}) with the mean lengths of table "
        f"{'13' if other else '5'}, one call after the other. An engine that batches takes a fraction of it. Images, "
        "prompts beyond table 4's first column, and loading are not in it"
        + (f"; table 4 has not all sizes: {', '.join(stand_ins)}." if other and stand_ins else "."),
        "New calls: a call that an earlier run has made is taken from the store.",
    ]
    if any(run.timed for run in plan.runs):
        notes.append(
            "timed: table 11 asks for seconds, so that these runs make all their calls anew, one benchmark each. They "
            "come first, and leave their calls to the others. Without 11 in --tables there are none."
        )
    if plan.request.replaced:
        names = ", ".join(f"{name} in place of the {size}" for size, name in plan.request.replaced.items())
        notes.append(f"The estimate is that of the paper's models, not of {names}.")
    return notes


def plan_json(plan: Plan, estimates: Mapping[str, Estimate], finished: Collection[str]) -> list[dict[str, Any]]:
    """The runs, for another program."""
    return [
        {
            "run": run.key, "tables": list(run.tables), "benchmarks": list(run.benchmarks), "timed": run.timed,
            "command": evaluation(plan.request, run).command(), "new_calls": estimates[run.key].calls,
            "gpu_hours": estimates[run.key].gpu_s / 3600, "finished": run.key in finished,
        }
        for run in plan.runs
    ]  # fmt: skip


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others out of a folder: two plans would make the same calls twice.  The lock ends with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise ValueError(f"--out {folder}: {error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"another `mai reproduce` works in {folder}: wait for it, or give another --out"
            ) from error
        yield
