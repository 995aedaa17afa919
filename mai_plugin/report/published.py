"""Scores with all that decides what they may be compared with: our own, the paper's, and reported ones."""

from __future__ import annotations

from dataclasses import dataclass

from mai_plugin.core.text import last_part
from mai_plugin.core.ways import Way
from mai_plugin.harness.benchmarks import PAPER, find_task, task_style
from mai_plugin.harness.scores import ScoredRun
from mai_plugin.paper.figures import SOURCE, model_size, reported
from mai_plugin.paper.printed import SCORE, Printed, S, table_figures
from mai_plugin.report.measures import toy, way
from mai_plugin.run.stored import Run


@dataclass(frozen=True)
class System:
    """What answered.

    Attributes:
        family: such as `Qwen3-VL`; None if the model's name states none.
        sizes: of its models, small before large.
        way: how it was asked; None if the source does not say.
        toy: a scripted model or one of the tiny pair.
    """

    family: str | None
    sizes: tuple[str, ...]
    way: Way | None
    toy: bool = False

    def __str__(self) -> str:
        return f"{'+'.join(self.sizes)} {self.way or ''}".strip()


@dataclass(frozen=True)
class Figure:
    """One score.

    Attributes:
        system: what answered.
        benchmark: as in `benchmarks.BENCHMARKS`.
        value: in points, 0 to 100.
        metric, split: as in `benchmarks.Task`.
        source: where it comes from: a run's name, or a publication with its table.
        harness: None where the source does not name it.
        scorer: as in `benchmarks.Task`; empty where the source does not say.
        n: questions that it was measured on; None where the source does not say.
        full_n: questions of the whole split, where we know.
        remarks: what to keep in mind, such as settings.
    """

    system: System
    benchmark: str
    value: float
    metric: str
    split: str
    source: str
    harness: str | None = None
    scorer: str = ""
    n: int | None = None
    full_n: int | None = None
    remarks: tuple[str, ...] = ()


def own_figures(scored: ScoredRun) -> tuple[list[Figure], list[str]]:
    """A run's scores as figures, and remarks on tasks that give none."""
    run = scored.run
    system = run_system(run)
    found, remarks = [], [f"{run.name}, {task}: not scored: {why}" for task, why in scored.unscored.items()]
    for name, score in scored.scores.items():
        task = find_task(name)
        if task is None or task.key != score.metric:
            remarks.append(
                f"{run.name}, {name} ({score.metric}): not one of the benchmarks for which published figures are known"
            )
            continue
        found.append(
            Figure(
                system, task.benchmark, score.value, task.metric, task.split, run.name, task.harness, task.scorer,
                score.counted, task.n,
            )
        )  # fmt: skip
    return found, remarks


def run_system(run: Run) -> System:
    """What answered in a run: its models and the way, which its routes tell."""
    models = run.settings["models"]
    names = [models[role]["name"] for role in ("small", "large", "model") if role in models]
    known = [model_size(name) for name in names]
    families = {found[0] if found else None for found in known}
    asked = way(run)
    styles = {style for task in run.tasks if (style := task_style(task))}
    if asked == S and len(styles) == 1:  # the task itself asks in E or R
        asked = Way("single", styles.pop())
    return System(
        family=families.pop() if len(families) == 1 else None,
        sizes=tuple(found[1] if found else last_part(name) for found, name in zip(known, names, strict=True)),
        way=asked,
        toy=toy(run) is not None,
    )


def paper_figures() -> list[Figure]:
    """The paper's scores (tables 6, 7, 8, 10, 12, 14 and 15), without those that only repeat another table's."""
    found: dict[tuple[System, str], list[Printed]] = {}
    for table in (6, 7, 8, 10, 12, 14, 15):
        for figure in table_figures(table):
            system = System("InternVL3.5" if table == 14 else "Qwen3-VL", figure.sizes, figure.way)
            same = found.setdefault((system, figure.benchmark), [])
            if figure.what == SCORE and not any(_repeats(figure, other) for other in same):
                same.append(figure)
    return [
        Figure(
            system, benchmark, figure.value or 0.0, PAPER[benchmark][1], PAPER[benchmark][0],
            f"{SOURCE}, table {figure.table}", n=PAPER[benchmark][2], full_n=PAPER[benchmark][2],
            remarks=figure.remarks,
        )
        for (system, benchmark), figures in found.items()
        for figure in figures
    ]  # fmt: skip


def _repeats(figure: Printed, other: Printed) -> bool:
    """Whether another table has the same figure, be it rounded to one digit."""
    return figure.table != other.table and abs((figure.value or 0.0) - (other.value or 0.0)) <= 0.051


def reported_figures() -> list[Figure]:
    """What others reported for Qwen3-VL Instruct; how it was asked is known only roughly."""
    metrics = {benchmark: metric for benchmark, (_, metric, _) in PAPER.items()}
    found = []
    for part in reported().values():
        for size, scores in part["scores"].items():
            for benchmark, value in scores.items():
                # Which metric a POPE figure is (F1 or accuracy) such sources do not say.
                metric = "not said" if benchmark == "POPE" else metrics[benchmark]
                remarks = (f"{part['source']}; settings: {part['settings']}",)
                source = "independent rerun" if part["independent"] else "Qwen3-VL report"
                found.append(
                    Figure(
                        System("Qwen3-VL", (size,), None), benchmark, value, metric, part["splits"][benchmark], source,
                        remarks=remarks,
                    )
                )  # fmt: skip
    return found
