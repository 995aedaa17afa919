"""A store's policies side by side: put together, as a table for the terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mai_plugin.core.agreement import Agree
from mai_plugin.core.ways import Way
from mai_plugin.harness.benchmarks import find_task
from mai_plugin.harness.scores import score
from mai_plugin.output.render import to_terminal
from mai_plugin.output.table import COUNT, TOKENS, Cell, Column, Table
from mai_plugin.replay.latency import Latency, measured_latency, paper_latency
from mai_plugin.replay.policies import Policy, gates
from mai_plugin.replay.policies import policies as every_policy
from mai_plugin.replay.replay import LOGPROB, SCORED, Cost, Replay, Replayed, choose, halves
from mai_plugin.replay.stored_calls import Models, find_models, gather
from mai_plugin.report.command import latest
from mai_plugin.report.measures import toy
from mai_plugin.run.stored import Run, load_runs
from mai_plugin.settings import load_agreement, strategy_spec

Scorer = Callable[[Run], Run]
"""Sets the scores of a run's samples (`Sample.score`) from what a harness wrote."""


@dataclass(frozen=True)
class TaskReplay:
    """All policies on one task.

    Attributes:
        task: the harness's task.
        n: questions.
        policies: on all questions; those with `missing` calls were not evaluated.
        n_reported: questions of the half that thresholds were not chosen on.
        reported: gates at their chosen threshold, and other policies, on that half.
        curves: gate -> result per threshold, on that half.
        by_name: the policies themselves.
    """

    task: str
    n: int
    policies: tuple[Replayed, ...]
    n_reported: int
    reported: tuple[Replayed, ...]
    curves: Mapping[str, tuple[Replayed, ...]]
    by_name: Mapping[str, Policy] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class StoreReplay:
    """A replay of a store: the models, how time was modelled, remarks, and its tasks."""

    models: Models
    cost: Cost
    remarks: tuple[str, ...]
    tasks: tuple[TaskReplay, ...]
    seed: int


def replay_store(
    path: Path,
    *,
    runs: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
    strategy: str | None = None,
    strategy_args: Mapping[str, Any] | None = None,
    results: Sequence[Path] = (),
    scorer: Scorer | None = None,
    latency: str = "measured",
    overhead_s: float = 0.0,
    parallel: bool = False,
    agreements: Sequence[str] = ("exact", "relaxed"),
    seed: int = 0,
) -> StoreReplay:
    """Evaluate every policy from a call store.

    Args:
        path: the store's file or folder.
        runs: names or ids of the runs whose calls may be used; all by default.
        models: role (`small`, `large`) to model, where the store has several pairs.
        strategy: one of one's own, or a built-in one, to replay beside the policies; its roles name the models.
        strategy_args: its arguments.
        results: folders that lmms-eval wrote to; by default those that the runs remember.
        scorer: joins the scores of another harness instead.
        latency: `measured` (least squares over the stored calls) or `paper` (its table 4).
        overhead_s: for `paper`, seconds added to every call.
        parallel: count the two short answers of a cascade as made at the same time.
        agreements: when two answers are the same, as in `Settings`; the variants of MAI use the first.
        seed: of the halves for confidence gates.

    Raises:
        ValueError: no such store, run, pair or agreement, a latency that is neither, measured calls that allow no fit,
            or scores that do not fit a run.
    """
    if latency not in ("measured", "paper"):
        raise ValueError(f"--latency {latency}: expected measured or paper")
    if overhead_s and latency == "measured":
        raise ValueError("--overhead goes with --latency paper: measured times have what there is already")
    if not math.isfinite(overhead_s):
        raise ValueError(f"--overhead {overhead_s}: it must be a number of seconds")
    named = dict(models or {})
    if "small" in named and named["small"] == named.get("large"):
        raise ValueError(f"--small and --large are both {named['small']!r}: a pair has two models")
    rules = {name: load_agreement(name, f"--agreement {name}") for name in agreements}
    spec = strategy_spec(strategy) if strategy else None
    given = spec.read(strategy_args or {}) if spec else {}
    loaded = load_runs(path, runs)
    found = find_models(loaded, spec.required_roles if spec else ("small", "large"), named)
    useful = [run for run in loaded if found.roles(run)]
    scored, unscored = ([scorer(run) for run in useful], []) if scorer else _scored(useful, results)
    evidence = gather(path, scored, found)
    if not evidence.questions:
        raise ValueError(f"{path} has no answered question of {' and '.join(found.names.values())}")
    fits: dict[str, Latency]
    if latency == "paper":
        fits = paper_latency(found.names, overhead_s)
    else:
        fits = measured_latency(
            (role, done) for stored in evidence.questions for (role, _), done in stored.calls.items()
        )
    cost = Cost(fits, parallel)

    def own(replay: Replay) -> list[Policy]:
        if spec is None:
            return []
        what = (spec.run.__doc__ or "").strip().partition("\n")[0] or "your strategy"
        bound = partial(spec.run, **{role: replay.agents[role] for role in spec.required_roles}, **given)
        return [Policy(spec.name, what, bound, Way.of(spec.name, given), tuple(found.names))]

    tasks = tuple(
        _task(
            task,
            Replay(evidence, [stored for stored in evidence.questions if stored.task == task], cost),
            own,
            rules,
            seed,
        )
        for task in dict.fromkeys(stored.task for stored in evidence.questions)
    )
    toys = dict.fromkeys(f"TOY SCORES: {why}" for run in useful if (why := toy(run)))
    return StoreReplay(found, cost, (*toys, *unscored, *evidence.remarks), tasks, seed)


def _scored(runs: Sequence[Run], results: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Runs with the harness's scores, and which have none.

    An older run whose results were overwritten since has no scores; that the latest ones do not fit is an error.
    """
    scored: list[Run] = []
    remarks: list[str] = []
    newest = {run.id for run in latest(runs)}
    for run in runs:
        try:
            found = score(run, results)
        except ValueError as error:
            if run.id in newest:
                raise
            remarks.append(f"run {run.id} is not scored: {error}")
            scored.append(run)
            continue
        remarks += [f"run {run.name} is not scored on {task}: {why}" for task, why in found.unscored.items()]
        scored.append(found.run)
    return scored, remarks


def _task(
    task: str, replay: Replay, own: Callable[[Replay], list[Policy]], rules: Mapping[str, Agree], seed: int
) -> TaskReplay:
    is_pair = {"small", "large"} <= replay.agents.keys()
    policies = [*(every_policy(replay.agents, rules) if is_pair else []), *own(replay)]
    results = [*map(replay.run, policies), *([replay.oracle()] if is_pair else [])]
    choosing, reporting = halves(replay.questions, seed)
    mai = next((policy for policy in policies if policy.name == "MAI"), None)
    target = replay.run(mai, choosing).score if mai else None
    gated: list[Replayed] = []
    curves: dict[str, tuple[Replayed, ...]] = {}
    for gate in gates(replay.agents) if is_pair else ():
        swept = replay.sweep(gate, choosing)
        chosen = choose(swept, target)
        if chosen is None or chosen.threshold is None:
            unscored = min(result.n - result.scored for result in swept)
            gated.append(replace(swept[0], missing=swept[0].missing or {("any", SCORED): unscored}))
            continue
        thresholds = [result.threshold for result in swept if result.threshold is not None]
        curves[gate.name] = tuple(replay.sweep(gate, reporting, thresholds))
        gated += replay.sweep(gate, reporting, [chosen.threshold])
    beside = [policy for policy in policies if policy.name in ("large-S", "MAI", "transfer")] if curves else []
    reported = (*gated, *(replay.run(policy, reporting) for policy in beside))
    if curves:
        reported = (*reported, replay.oracle(reporting))
    by_name = {policy.name: policy for policy in policies}
    return TaskReplay(task, len(replay.questions), tuple(results), len(reporting), reported, curves, by_name)


_COLUMNS = (
    Column("policy"), Column("score"), Column("tokens small", COUNT), Column("tokens large", COUNT),
    Column("calls", COUNT), Column("modelled s", TOKENS), Column("escalated", ".1%"), Column("routes"),
)  # fmt: skip


def tables(replayed: StoreReplay) -> list[Table]:
    """Two tables per task: all questions, and the half that gates are reported on."""
    found = []
    for task in replayed.tasks:
        title = f"{task.task}: {task.n:,} questions, replayed from stored calls"
        found.append(Table(f"replay-{task.task}", title, _COLUMNS, _rows(task.policies)))
        if task.curves:
            title = f"{task.task}: the {task.n_reported:,} questions that no threshold was chosen on"
            found.append(Table(f"gates-{task.task}", title, _COLUMNS, _rows(task.reported)))
    return [replace(table, notes=tuple(notes(replayed))) if table is found[-1] else table for table in found]


def show(replayed: StoreReplay) -> None:
    """Print everything on the terminal."""
    to_terminal(tables(replayed))


def _rows(results: Sequence[Replayed]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (
            row.policy + ("" if row.threshold is None else f" at {row.threshold:.3g}"),
            _score(row),
            *(row.usage[role].output_tokens if role in row.usage else None for role in ("small", "large")),
            sum(usage.calls for usage in row.usage.values()),
            row.seconds,
            row.escalated,
            ", ".join(f"{route} {count:,}" for route, count in row.routes.items())
            if len(row.routes) > 1 and row.policy != "oracle"
            else "",
        )
        for row in results
        if not row.missing
    )


def _score(row: Replayed) -> str:
    if row.score is not None:
        return f"{100 * row.score:.1f}"
    if row.scored == 0:
        return "not scored"
    low, high = row.bounds
    return f"{100 * low:.1f} to {100 * high:.1f}"


def notes(replayed: StoreReplay) -> list[str]:
    """What a reader must know to read the tables: one line each."""
    models, cost = replayed.models, replayed.cost
    fits = "; ".join(
        f"{role} {1000 * fit.fixed_s:.1f} + {1000 * fit.per_token_s:.3f} n ms ({fit.source}, R2 {fit.r2:.2f})"
        for role, fit in cost.latency.items()
    )
    order = "at the same time, the slower one counts" if cost.parallel else "one after the other"
    lines = [
        f"{', '.join(f'{role} is {name}' for role, name in models.names.items())}; scores are means over questions, in "
        "points",
        f"modelled time: sum over calls of a + b n, n output tokens: {fits}; short answers of a cascade {order}",
        *replayed.remarks,
    ]
    if not any(row.scored for task in replayed.tasks for row in task.policies):
        lines.append(
            "no answer is scored: run lmms-eval with --output_path and --log_samples, or name its folder: --results"
        )
    for task in replayed.tasks:
        known = find_task(task.task)
        if known and known.metric in ("F1", "circular accuracy"):
            lines.append(f"{task.task}: its headline score is {known.metric}; here it is the mean over its questions")
        if task.curves:
            lines.append(
                f"{task.task}: gates' thresholds (on the summed log-probability of the short answer) are the cheapest "
                f"that score as MAI does, or else the best, on the other half (seed {replayed.seed})"
            )
        for row in (*task.policies, *task.reported):
            if row.missing:
                lines.append(f"{task.task}: {row.policy} is not shown: {_missing(row, models, task.by_name)}")
            elif row.scored and row.score is None and row in task.policies and row.policy in task.by_name:
                lines.append(
                    f"{task.task}: {row.n - row.scored:,} of {row.n:,} answers of {row.policy} were scored by no run: "
                    f"{_scoring_run(task.by_name[row.policy], models)}"
                )
    return lines


_AS_BEFORE = "(tasks, --limit and settings as in the other runs, so that calls are reused)"


def _missing(row: Replayed, models: Models, policies: Mapping[str, Policy]) -> str:
    parts = []
    for (role, step), count in row.missing.items():
        if step == SCORED:
            parts.append(f"no scored answer to {count:,} questions")
        elif step == LOGPROB:
            parts.append(f"the engine gave no log-probability for {count:,} short answers of the {role} model")
        elif (way := Way.parse(step)).is_named or role not in ("small", "large"):
            parts.append(f"{count:,} calls ({step} of the {role} model) were never made: run the strategy itself")
        else:
            policy = policies.get(row.policy)
            # A two-stage run makes both of its calls.
            whole = policy.way if policy and policy.roles == (role,) and policy.way.reasoning == way else way
            command = _command(role, whole, models)
            parts.append(f"{count:,} calls were never made: {command} (and the other runs' settings)")
    return "; ".join(parts)


def _command(role: str, way: Way, models: Models) -> str:
    """The run that makes the calls of a way."""
    if way.strategy == "single":
        return way.command({"model": models.names[role]})
    return way.command({role: models.names[role] for role in ("small", "large")})


def _scoring_run(policy: Policy, models: Models) -> str:
    """The run whose harness scores the answers of a policy."""
    if len(policy.roles) == 1 or policy.way.strategy == "transfer":
        return f"run {_command(policy.roles[-1], policy.way, models)} with --log_samples {_AS_BEFORE}"
    return f"runs of MAI, large-S and transfer with --log_samples {_AS_BEFORE} score them"


def as_json(replayed: StoreReplay) -> dict[str, Any]:
    """Everything, ready for a plot of score against cost."""
    return {
        "pair": dict(replayed.models.names),
        "latency": {
            role: {"fixed_s": fit.fixed_s, "per_token_s": fit.per_token_s, "r2": fit.r2, "source": fit.source}
            for role, fit in replayed.cost.latency.items()
        },
        "parallel": replayed.cost.parallel,
        "seed": replayed.seed,
        "notes": notes(replayed),
        "tasks": [
            {
                "task": task.task,
                "n": task.n,
                "policies": [_row(row) for row in task.policies],
                "n_reported": task.n_reported,
                "reported": [_row(row) for row in task.reported],
                "curves": {gate: [_row(row) for row in rows] for gate, rows in task.curves.items()},
            }
            for task in replayed.tasks
        ],
    }


def _row(row: Replayed) -> dict[str, Any]:
    base: dict[str, Any] = {"policy": row.policy, "what": row.what}
    if row.missing:
        return {**base, "missing": {f"{role} {step}": count for (role, step), count in row.missing.items()}}
    low, high = row.bounds
    threshold = row.threshold
    return {
        **base,
        "n": row.n,
        "score": None if row.score is None else 100 * row.score,
        "score_bounds": [100 * low, 100 * high],
        "unscored": row.n - row.scored,
        "output_tokens": {role: usage.output_tokens for role, usage in row.usage.items()},
        "calls": {role: usage.calls for role, usage in row.usage.items()},
        "modelled_s": row.seconds,
        "escalated": row.escalated,
        "routes": dict(row.routes),
        # JSON has no infinity: "accept all" and "accept none" are said in words.
        "threshold": threshold if threshold is None or math.isfinite(threshold) else str(threshold),
    }
