"""Tables in the paper's shape, from any set of measured runs.  A cell without a number says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mai_plugin.core.records import in_order
from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, SPARSE, TRANSFER
from mai_plugin.core.ways import MAI, Way
from mai_plugin.output.table import COUNT, FACTOR, POINTS, SECONDS, TOKENS, Cell, Column, Table
from mai_plugin.report.efficiency_tables import sparse_transfer, speculative
from mai_plugin.report.measures import Spread, TaskResult, models, score_cell, toy, way
from mai_plugin.report.related_runs import Results, pairs, speedup, time_cell
from mai_plugin.report.stats import RESAMPLES, SEED, Comparison
from mai_plugin.run.stored import Run

S, R, R_S2 = Way("single", "S"), Way("single", "R"), Way("single", "R", two_stage=True)
CASCADE_ROUTES = (AGREE_SIMPLE, AGREE_REASON, TRANSFER)


def report_tables(results: Results, comparisons: Sequence[Comparison]) -> list[Table]:
    """All tables for which there are runs, the overview first."""
    builders: tuple[Callable[[Results], Table], ...] = (
        overview, output_tokens, single_scores, transfer, sparse_transfer, cascade, routes, total_time, engines,
        speculative, latencies, first_tokens, accidents,
    )  # fmt: skip
    tables = [build(results) for build in builders]
    tables.insert(1, comparison_table(comparisons))
    return [table for table in tables if table.rows]


def overview(results: Results) -> Table:
    """A row per run and benchmark: score with its interval, and what it cost."""
    # The model of a single-model run has no column of its own: its tokens are all there are.
    written = (role for result in results for role in result.output_tokens if role != "model")
    roles = in_order(["small", "large", *written])
    rows = tuple(
        (
            result.label, result.task, result.n, result.score.metric if result.score else None, score_cell(result),
            f"{result.ci95[0]:.1f} to {result.ci95[1]:.1f}" if result.ci95 else None,
            sum(result.output_tokens.values()), *(result.output_tokens.get(role) for role in roles),
            result.tokens_per_question, result.tokens_per_correct,
        )
        for result in results
    )  # fmt: skip
    columns = (
        Column("run"), Column("benchmark"), Column("n", COUNT), Column("metric"), Column("score", POINTS),
        Column("95 % interval"), Column("output tokens", COUNT), *(Column(role, COUNT) for role in roles),
        Column("tokens per question", TOKENS), Column("tokens per right answer", TOKENS),
    )  # fmt: skip
    notes = [
        "score: the harness's own aggregate, in points. Interval: Wilson's where each question is right or wrong, else "
        f"a bootstrap's ({RESAMPLES:,} draws, seed {SEED}; none where all draws are alike).",
        *_partly(results),
        *_toys(results),
        *_missing(results),
    ]
    return Table("overview", "Scores and output tokens", columns, rows, tuple(notes))


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Each run against the baseline, question by question."""
    rows = tuple(
        (
            found.run, found.task, found.metric, found.n, found.score, found.baseline_score, found.difference,
            None if found.ci95 is None else f"{found.ci95[0]:+.1f} to {found.ci95[1]:+.1f}",
            found.p, found.test, found.verdict,
        )
        for found in comparisons
    )  # fmt: skip
    columns = (
        Column("run"), Column("benchmark"), Column("metric"), Column("n", COUNT), Column("score", POINTS),
        Column("baseline", POINTS), Column("difference", "+.1f"), Column("95 % interval"), Column("p", ".2g"),
        Column("test"), Column("verdict (p < 0.05)"),
    )  # fmt: skip
    baseline = comparisons[0].baseline if comparisons else ""
    notes = (
        f"Paired by question. With McNemar's test the interval is Bonett's and Price's, an approximation that may just "
        f"miss 0 where the exact p does not; a bootstrap has {RESAMPLES:,} draws of questions, seed {SEED}.",
        "Real: p below 0.05, each by itself: of twenty that differ in nothing, one is expected to look real.",
    )
    return Table("comparisons", f"Compared with {baseline}", columns, rows, notes)


def output_tokens(results: Results) -> Table:
    """Output tokens per question of single models, by how they were asked (paper, table 5)."""
    return _by_benchmark(
        "output_tokens", "Output tokens per question of each model (paper: table 5)", results, TOKENS,
        lambda result: result.tokens_per_question,
        ("S2: the short answer asked for after the reasoning is counted too.",),
    )  # fmt: skip


def single_scores(results: Results) -> Table:
    """Scores of single models, by how they were asked (paper, tables 6 and 7)."""
    return _by_benchmark("scores", "Scores of each model (paper: tables 6 and 7)", results, POINTS, score_cell)


def transfer(results: Results) -> Table:
    """Reasoning transfer beside what it is made of (paper, table 8)."""
    tasks = results.tasks
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs(results, "transfer"):
        reasoning = way(pair.run).reasoning
        both = f"{pair.large} + {pair.small}-{reasoning}"
        alone = (
            ("small", reasoning),
            ("large", S),
            ("large", reasoning),
            ("large", replace(reasoning, two_stage=True)),
        )
        beside: dict[str, list[Cell]] = {both: []}
        for task in tasks:
            result = results.of(pair.label, task)
            beside[both].append(score_cell(result) if result else None)
            for role, asked in alone:
                name = f"{models(pair.run)[role]}-{asked}"
                beside.setdefault(name, []).append(_beside(pair.single(results, role, asked, task), result))
        beside[both] = beside.pop(both)  # last, as in the paper
        rows.extend((name, *cells) for name, cells in beside.items() if any(cell is not None for cell in cells))
    columns = (Column("answering"), *(Column(task, POINTS) for task in tasks))
    rows = list(dict.fromkeys(rows))
    note = "A + B-R: A answers in S after reading B's R. S2: the same with its own."
    return Table("transfer", "Reasoning transfer (paper: table 8)", columns, tuple(rows), (note,))


def cascade(results: Results) -> Table:
    """Routes and final score of each cascade, with the baselines beside it (paper, table 10)."""
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs(results, MAI):
        for result in results.of_run(pair.run):
            *agreed, transferred = (result.routes.get(route, 0) for route in CASCADE_ROUTES)
            counts = [*agreed, transferred + result.routes.get(SPARSE, 0)]
            shares = [count / len(result.answered) if result.answered else None for count in counts]
            others = (
                *(pair.single(results, "small", asked, result.task) for asked in (S, R)),
                *(pair.single(results, "large", asked, result.task) for asked in (S, R, R_S2)),
                pair.transfer(results, result.task),
            )
            routes = [cell for both in zip(counts, shares, strict=True) for cell in both]
            beside = [_beside(other, result) for other in others]
            rows.append((result.label, result.task, result.n, *routes, score_cell(result), *beside))
    columns = (
        Column("cascade"), Column("benchmark"), Column("n", COUNT),
        *(column for route in CASCADE_ROUTES for column in (Column(route, COUNT), Column(f"{route} share", ".1%"))),
        Column("MAI", POINTS), Column("small-S", POINTS), Column("small-R", POINTS), Column("large-S", POINTS),
        Column("large-R", POINTS), Column("large-R-S2", POINTS), Column("full transfer", POINTS),
    )  # fmt: skip
    return Table(
        "cascade", "The cascade: routes, and scores beside its baselines (paper: table 10)", columns, tuple(rows)
    )


def routes(results: Results) -> Table:
    """Routes of strategies that are not in the paper."""
    rows = tuple(
        (result.label, result.task, len(result.answered), route, count, count / len(result.answered))
        for result in results
        if way(result.run).is_named
        for route, count in result.routes.items()
    )
    columns = (
        Column("run"), Column("benchmark"), Column("n", COUNT), Column("route"), Column("questions", COUNT),
        Column("share", ".1%"),
    )  # fmt: skip
    return Table("routes", "Routes of other strategies", columns, rows)


def total_time(results: Results) -> Table:
    """Wall time of cascades and transfers, and how much faster they are than what they replace (paper, table 11)."""
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs(results, MAI, "transfer"):
        whole_transfer = pair.whole(results, pair.transfer) if pair.run.strategy == MAI else None
        others = [pair.whole(results, pair.single, "large", asked) for asked in (R, R_S2, S)]
        baselines = [whole_transfer, *others]
        run = pair.run
        factors: list[Cell] = [speedup(run, other) if other else None for other in baselines]
        seconds = time_cell(run)
        per_question = seconds / len(run.samples) if isinstance(seconds, float) else None
        rows.append((pair.label, ", ".join(run.tasks), run.engine, len(run.samples), seconds, per_question, *factors))
    columns = (
        Column("run"), Column("benchmarks"), Column("engine"), Column("n", COUNT), Column("total s", ",.1f"),
        Column("s per question", SECONDS), Column("full transfer", FACTOR), Column("large-R", FACTOR),
        Column("large-R-S2", FACTOR), Column("large-S", FACTOR),
    )  # fmt: skip
    notes = (
        "Seconds from the first question to the last answer; loading the models and scoring are not in it.",
        "Speed-up: how many times this run's seconds the other took, with the same models, engine and questions; below "
        "1 this run is slower. The paper gives it against full transfer only. -: no such run.",
    )
    return Table("time", "Total time, and speed-up against ... (paper: table 11)", columns, tuple(rows), notes)


def engines(results: Results) -> Table:
    """The same models and strategy with different engines (paper, table 12)."""
    tasks = results.tasks
    groups: dict[tuple[object, ...], list[tuple[str, Run]]] = {}
    for label, run in results.runs:
        key = (way(run), tuple(models(run).items()), frozenset(run.samples))
        groups.setdefault(key, []).append((label, run))
    rows: list[tuple[Cell, ...]] = []
    for group in groups.values():
        if len({run.engine for _, run in group}) < 2:
            continue
        group.sort(key=lambda entry: entry[1].engine != "transformers")
        for label, run in group:
            seconds = time_cell(run)
            each = seconds / len(run.samples) if isinstance(seconds, float) else None
            factor: Cell = speedup(run, group[0][1], same_engine=False)
            found = [results.of(label, task) for task in tasks]
            scores = [score_cell(result) if result else None for result in found]
            rows.append((run.name, str(way(run)), run.engine, len(run.samples), seconds, each, factor, *scores))
    columns = (
        Column("run"), Column("asked"), Column("engine"), Column("n", COUNT), Column("total s", ",.1f"),
        Column("s per question", SECONDS), Column("speed-up", FACTOR), *(Column(task, POINTS) for task in tasks),
    )  # fmt: skip
    return Table(
        "engines", "Engines compared, the first of each group being 1.00 (paper: table 12)", columns, tuple(rows)
    )


def latencies(results: Results) -> Table:
    """Latency of a question by route."""
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        everything = [value for values in result.latencies.values() for value in values]
        groups = {"all": everything, **(result.latencies if len(result.latencies) > 1 else {})}
        for route, values in groups.items():
            rows.append((result.label, result.task, route, len(values), *_spread(Spread.of(values))))
    columns = (
        Column("run"), Column("benchmark"), Column("route"), Column("n", COUNT), *_spread_columns(),
    )  # fmt: skip
    notes = (
        "Seconds of a question's calls one after the other, the longest where several run side by side (the critical "
        "path), each as it was measured under the run's load: waiting for a place in a batch is in it.",
        *_reused(results),
    )
    return Table("latency", "Latency of a question, seconds", columns, tuple(rows), notes)


def first_tokens(results: Results) -> Table:
    """Time to first token of each model's calls."""
    rows = tuple(
        (result.label, result.task, role, *_spread(spread))
        for result in results
        for role, spread in result.ttft.items()
    )
    columns = (Column("run"), Column("benchmark"), Column("model"), *_spread_columns())
    notes = ("From a call's arrival at the engine, so waiting is in it.", *_reused(results))
    return Table("ttft", "Time to first token (TTFT), seconds", columns, rows, notes)


def accidents(results: Results) -> Table:
    """Calls, and what went wrong."""
    rows = tuple(
        (result.label, result.task, result.calls, result.reused_calls, result.failed, result.no_answer,
         result.cut_reasoning, "yes" if result.run.finished else "no")
        for result in results
    )  # fmt: skip
    columns = (
        Column("run"), Column("benchmark"), Column("calls", COUNT), Column("of them reused", COUNT),
        Column("failed questions", COUNT), Column("no answer stated", COUNT), Column("reasoning cut", COUNT),
        Column("finished"),
    )  # fmt: skip
    return Table("calls", "Calls, and what went wrong", columns, rows)


def _beside(other: TaskResult | None, result: TaskResult | None) -> Cell:
    """Another run's score, if it is of the same questions."""
    if other is None or result is None:
        return None
    return score_cell(other) if other.documents == result.documents else "other questions"


def _by_benchmark(
    key: str,
    title: str,
    results: Results,
    format: str,
    value: Callable[[TaskResult], Cell],
    notes: tuple[str, ...] = (),
) -> Table:
    """A row per single-model run, a column per benchmark."""
    runs = {label: run for label, run in results.runs if run.strategy == "single"}
    order = sorted(runs, key=lambda label: (models(runs[label])["model"], _order(way(runs[label]))))
    tasks = [task for task in results.tasks if any(results.of(label, task) for label in runs)]
    rows = []
    for label in order:
        cells = [value(found) if (found := results.of(label, task)) else None for task in tasks]
        rows.append((models(runs[label])["model"], str(way(runs[label])), runs[label].engine, *cells))
    columns = (Column("model"), Column("asked"), Column("engine"), *(Column(task, format) for task in tasks))
    return Table(key, title, columns, tuple(rows), notes)


def _order(asked: Way) -> tuple[int, bool]:
    """The paper's order: S, E, E-S2, R, R-S2."""
    return "SER".index(asked.style), asked.two_stage


def _spread(spread: Spread | None) -> tuple[Cell, ...]:
    return (spread.mean, spread.p50, spread.p90, spread.p99) if spread else (None,) * 4


def _spread_columns() -> tuple[Column, ...]:
    return tuple(Column(name, SECONDS) for name in ("mean", "p50", "p90", "p99"))


def _partly(results: Results) -> list[str]:
    counts = {result.task: (result.score.counted, result.n) for result in results if result.score}
    return [
        f"{task}: its headline score is over {counted:,} of the {n:,} questions."
        for task, (counted, n) in counts.items()
        if counted != n
    ]


def _toys(results: Iterable[TaskResult]) -> list[str]:
    said: dict[str, list[str]] = {}
    for result in results:
        if what := toy(result.run):
            said.setdefault(what, []).append(result.label)
    return [f"TOY SCORES ({what}): {', '.join(dict.fromkeys(labels))}." for what, labels in said.items()]


def _missing(results: Iterable[TaskResult]) -> list[str]:
    return [
        f"{result.label} on {result.task} is not scored: {result.unscored}." for result in results if not result.score
    ]


def _reused(results: Iterable[TaskResult]) -> list[str]:
    reused = [f"{result.label} on {result.task} ({result.reused_calls:,})" for result in results if result.reused_calls]
    return (
        [f"Calls taken from the store have the times that they were made with: {', '.join(reused)}."] if reused else []
    )
