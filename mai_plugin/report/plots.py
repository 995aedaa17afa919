"""Pictures of a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from mai_plugin.core.records import in_order
from mai_plugin.core.ways import MAI
from mai_plugin.output.plots import (
    BLACK,
    BLUE,
    COLOURS,
    DASHES,
    GREEN,
    LINE_COLOURS,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDTH,
    YELLOW,
    Picture,
    legend,
    log_if_wide,
    panels,
)  # fmt: skip
from mai_plugin.report.measures import STAGES, TaskResult, toy
from mai_plugin.report.related_runs import Results, time_cell

ROUTE_STYLES = {"agree-simple": (SKY, ""), "agree-reason": (GREEN, "///"), "transfer": (ORANGE, "xxx")}
STAGE_STYLES = {
    ("small", "S"): (SKY, ""), ("small", "E"): (GREEN, ".."), ("small", "R"): (GREEN, "///"),
    ("large", "S"): (BLUE, ""), ("large", "final"): (RED, "\\\\\\"),
    ("model", "S"): (YELLOW, ""), ("model", "E"): (PURPLE, ".."), ("model", "R"): (ORANGE, "xxx"),
    ("model", "final"): (RED, "\\\\\\"),
}  # fmt: skip
OTHER_STYLES = ((PURPLE, "++"), (YELLOW, "oo"), (BLACK, ""))


def pictures(results: Results) -> list[Picture]:
    """All pictures for which there are runs."""
    drawn = [score_against_tokens(results), score_against_time(results), routes(results), stage_tokens(results)]
    drawn.append(latency(results))
    drawn.extend(route_latency(results, label) for label in _cascades(results))
    return [picture for picture in drawn if picture]


def score_against_tokens(results: Results) -> Picture | None:
    """Score against output tokens per question, the Pareto front marked."""
    return _scatter(
        results, "score_tokens", "Score against output tokens per question of all models.",
        lambda task: ("output tokens per question", lambda result: result.tokens_per_question),
    )  # fmt: skip


def score_against_time(results: Results) -> Picture | None:
    """Score against seconds per question, the Pareto front marked.

    Wall time where every run of a benchmark has one (it ran that benchmark alone and reused no call), else the mean
    latency of a question; the axis says which.
    """

    def wall(result: TaskResult) -> float | None:
        seconds = time_cell(result.run)
        alone = result.run.tasks == (result.task,)
        return seconds / result.n if alone and isinstance(seconds, float) and result.n else None

    def mean(result: TaskResult) -> float | None:
        return result.latency.mean if result.latency else None

    def axis(task: str) -> tuple[str, Callable[[TaskResult], float | None]]:
        scored = [result for result in results if result.task == task and result.score]
        if all(wall(result) is not None for result in scored):
            return "wall time per question, s", wall
        return "mean latency of a question, s", mean

    return _scatter(results, "score_time", "Score against time per question.", axis)


def routes(results: Results) -> Picture | None:
    """Shares of the routes of each cascade, per benchmark."""
    shown = [result for result in results if result.label in _cascades(results) and result.answered]
    if not shown:
        return None
    names = list(dict.fromkeys([*ROUTE_STYLES, *(route for result in shown for route in result.routes)]))
    names = [name for name in names if any(name in result.routes for result in shown)]
    figure = Figure(figsize=(WIDTH, 1.3 + 0.5 * len(shown)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(shown))
    for name, (colour, hatch) in zip(names, _styles(names, ROUTE_STYLES), strict=True):
        shares = np.array([100 * result.routes.get(name, 0) / len(result.answered) for result in shown])
        axes.barh(range(len(shown)), shares, left=left, color=colour, hatch=hatch, edgecolor="black", linewidth=0.6)
        for place, share in enumerate(shares):
            if share >= 6:
                axes.text(
                    left[place] + share / 2, place, f"{share:.0f} %", ha="center", va="center", fontsize=8,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                )  # fmt: skip
        left += shares
    names_of_bars = [f"{result.label}\n{result.task}, n = {len(result.answered):,}" for result in shown]
    axes.set_yticks(range(len(shown)), names_of_bars, fontsize=8)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel("share of questions, %")
    axes.set_xlim(0, 100)
    legend(figure, [_patch(name, style) for name, style in zip(names, _styles(names, ROUTE_STYLES), strict=True)])
    return Picture("routes", "Which route the questions of each benchmark took." + _toy(shown), figure)


def stage_tokens(results: Results) -> Picture | None:
    """Output tokens per question by model and stage."""
    shown = [result for result in results if result.answered]
    if not shown:
        return None
    found = dict.fromkeys(stage for result in shown for stage in result.stage_tokens)
    roles = in_order(role for role, _ in found)
    stages = [(role, stage) for role in roles for stage in STAGES if (role, stage) in found]
    styles = _styles(stages, STAGE_STYLES)
    labels = list(dict.fromkeys(result.label for result in shown))
    tasks = [task for task in results.tasks if any(result.task == task for result in shown)]
    figure, grid = _panels(results, tasks, height=1.2 + 0.3 * len(labels), share_y=True)
    for task, axes in zip(tasks, grid, strict=True):
        measured = [results.of(label, task) for label in labels]
        left = np.zeros(len(labels))
        for stage, (colour, hatch) in zip(stages, styles, strict=True):
            counts = np.array(
                [result.stage_tokens.get(stage, 0) / len(result.answered) if result and result.answered else 0.0
                 for result in measured]
            )  # fmt: skip
            axes.barh(
                range(len(labels)), counts, left=left, color=colour, hatch=hatch, edgecolor="black", linewidth=0.6
            )
            left += counts
        axes.set_xlabel("output tokens per question")
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_xlim(0, 1.05 * axes.get_xlim()[1])
        axes.margins(y=0.02)
    grid[0].invert_yaxis()  # the others share it
    texts = [stage if role == "model" else f"{role}: {stage}" for role, stage in stages]
    legend(figure, [_patch(text, style) for text, style in zip(texts, styles, strict=True)])
    return Picture("stage_tokens", "Output tokens per question by model and stage." + _toy(shown), figure)


def latency(results: Results) -> Picture | None:
    """Distribution of the latency of a question, a line per run."""
    lines: dict[str, dict[str, list[float]]] = {task: {} for task in results.tasks}
    for result in results:
        lines[result.task][result.label] = [value for values in result.latencies.values() for value in values]
    return _distributions(
        results, "latency", "Latency of a question: share of questions answered within a time.", lines
    )


def route_latency(results: Results, label: str) -> Picture | None:
    """Distribution of the latency of a question, a line per route of one cascade."""
    lines = {result.task: result.latencies for result in results if result.label == label}
    name = f"latency_{re.sub(r'[^A-Za-z0-9._+-]', '_', label)}"
    return _distributions(results, name, f"Latency of a question by route, {label}.", lines)


def _scatter(
    results: Results,
    name: str,
    caption: str,
    axis: Callable[[str], tuple[str, Callable[[TaskResult], float | None]]],
) -> Picture | None:
    points = {}
    for task in results.tasks:
        text, value = axis(task)
        found = [(result, x) for result in results if result.task == task and result.score and (x := value(result))]
        if found:
            points[task] = (text, found)
    if not points:
        return None
    labels = list(dict.fromkeys(result.label for _, found in points.values() for result, _ in found))
    # As many colours as markers would repeat together: so there are 8 of the one and 11 of the other.
    style = dict(zip(labels, zip(cycle(COLOURS), cycle(MARKERS), strict=False), strict=False))
    figure, grid = _panels(results, list(points), height=3.2)
    for (text, found), axes in zip(points.values(), grid, strict=True):
        front = _pareto([(x, result.score.value) for result, x in found if result.score])
        axes.plot(*zip(*front, strict=True), color="0.45", linewidth=1, linestyle="--", zorder=1)
        for result, x in found:
            if result.score is None:
                continue
            y, (colour, marker) = result.score.value, style[result.label]
            if result.ci95:
                axes.plot((x, x), result.ci95, color="0.8", linewidth=1.5, zorder=0)
            best = (x, y) in front
            axes.plot(
                x, y, marker=marker, color=colour, markersize=10 if best else 7, markeredgecolor="black",
                markeredgewidth=1.6 if best else 0.6, linestyle="none", zorder=3,
            )  # fmt: skip
        log_if_wide(axes, [x for _, x in found])
        axes.set_xlabel(text)
        axes.set_ylabel("score, points")
        axes.grid(alpha=0.3)
    handles = [
        Line2D([], [], marker=marker, color=colour, markeredgecolor="black", linestyle="none", label=label)
        for label, (colour, marker) in style.items()
    ]
    handles.append(Line2D([], [], color="0.45", linestyle="--", label="Pareto front (large markers)"))
    handles.append(Line2D([], [], color="0.8", linewidth=1.5, label="95 % interval"))
    legend(figure, handles)
    shown = [result for _, found in points.values() for result, _ in found]
    return Picture(name, caption + _toy(shown), figure)


def _pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no other one beats or equals at no greater cost, by rising cost."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front


def _distributions(
    results: Results, name: str, caption: str, lines: dict[str, dict[str, list[float]]]
) -> Picture | None:
    lines = {task: {label: values for label, values in found.items() if values} for task, found in lines.items()}
    lines = {task: found for task, found in lines.items() if found}
    everything = [value for found in lines.values() for values in found.values() for value in values]
    if not any(everything):  # nothing was measured
        return None
    labels = list(dict.fromkeys(label for found in lines.values() for label in found))
    style = dict(zip(labels, zip(cycle(LINE_COLOURS), cycle(DASHES), strict=False), strict=False))
    figure, grid = _panels(results, list(lines), height=2.9)
    for found, axes in zip(lines.values(), grid, strict=True):
        for label, values in found.items():
            colour, dashes = style[label]
            axes.ecdf(values, color=colour, linestyle=dashes, linewidth=1.8)
        log_if_wide(axes, [value for values in found.values() for value in values])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f}"))
        axes.set_xlabel("latency, s")
        axes.set_ylabel("questions answered, %")
        axes.grid(alpha=0.3)
    handles = [
        Line2D([], [], color=colour, linestyle=dashes, linewidth=1.8, label=label)
        for label, (colour, dashes) in style.items()
    ]
    legend(figure, handles)
    return Picture(name, caption + _toy(results), figure)


def _cascades(results: Results) -> list[str]:
    """The cascade's runs, and those of other strategies that took several routes."""
    several = {result.label for result in results if len(result.routes) > 1}
    labels = [label for label, run in results.runs if run.strategy == MAI or label in several]
    return list(dict.fromkeys(labels))


def _panels(results: Results, tasks: Sequence[str], height: float, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """A panel per task."""
    counts = {task: dict.fromkeys(result.n for result in results if result.task == task) for task in tasks}
    titles = [
        f"{task}, n = {' to '.join(f'{count:,}' for count in dict.fromkeys((min(found), max(found))))}"
        for task, found in counts.items()
    ]
    return panels(titles, height, share_y)


def _patch(text: str, style: tuple[str, str]) -> Patch:
    return Patch(facecolor=style[0], hatch=style[1], edgecolor="black", linewidth=0.6, label=text)


def _styles(keys: Sequence[Hashable], known: Mapping[Any, tuple[str, str]]) -> list[tuple[str, str]]:
    others = cycle(OTHER_STYLES)
    return [known.get(key) or next(others) for key in keys]


def _toy(results: Sequence[TaskResult] | Results) -> str:
    said = dict.fromkeys(what for result in results if (what := toy(result.run)))
    return "".join(f" TOY: {what}." for what in said)
