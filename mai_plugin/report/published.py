"""Scores with all that decides what they may be compared with: our own, the paper's, and reported ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mai_plugin.harness.benchmarks import PAPER, find_task
from mai_plugin.harness.scores import ScoredRun
from mai_plugin.paper.figures import SOURCE, model_size, paper, reported
from mai_plugin.report.measures import form, toy
from mai_plugin.run.stored import Run


@dataclass(frozen=True)
class System:
    """What answered.

    Attributes:
        family: such as `Qwen3-VL`; None if the model's name states none.
        sizes: of its models, small before large.
        way: `S`, `E`, `R`, `E-S2`, `R-S2` (one model), `transfer-E`, `transfer-R` or `MAI` (two).
        toy: a scripted model or one of the tiny pair.
    """

    family: str | None
    sizes: tuple[str, ...]
    way: str
    toy: bool = False

    def __str__(self) -> str:
        return f"{'+'.join(self.sizes)} {self.way}".strip()


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
            remarks.append(f"{run.name}, {name} ({score.metric}): none of the benchmarks that others' figures are for")
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
    way = form(run)
    tasks = {task.rpartition("_mai_")[2].upper() for task in run.tasks if "_mai_" in task}
    if way == "S" and len(tasks) == 1:  # the task itself asks in E or R
        way = tasks.pop()
    return System(
        family=families.pop() if len(families) == 1 else None,
        sizes=tuple(found[1] if found else _last(name) for found, name in zip(known, names, strict=True)),
        way=way,
        toy=toy(run) is not None,
    )


def paper_figures() -> list[Figure]:
    """The paper's scores (tables 6, 7, 8, 10, 12, 14 and 15), without those that only repeat another table's."""
    return [
        Figure(
            System(family, sizes, way), benchmark, value, PAPER[benchmark][1], PAPER[benchmark][0],
            f"{SOURCE}, table {table}", n=PAPER[benchmark][2], full_n=PAPER[benchmark][2], remarks=remarks,
        )
        for table, family, sizes, way, benchmark, value, remarks in _printed()
    ]  # fmt: skip


_Printed = tuple[int, str, tuple[str, ...], str, str, float, tuple[str, ...]]


def _printed() -> Iterator[_Printed]:
    tables, qwen, pair = paper(), "Qwen3-VL", ("2B", "8B")
    for size, ways in tables["table6_pope_f1"].items():
        for way, value in ways.items():
            yield 6, qwen, (size,), way.replace("(S2)", "-S2"), "POPE", value, ()
    for size, benchmarks in tables["table7_scores_qwen3vl"].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                two_stage = "" if way == "S" or benchmark == "MMMU" else "-S2"
                yield 7, qwen, (size,), way + two_stage, benchmark, value, ()
    for benchmark, value in tables["table8_transfer"]["4B+2B-R"].items():
        yield 8, qwen, ("2B", "4B"), "transfer-R", benchmark, value, ()
    for benchmark, value in tables["table8_transfer"]["2B-R"].items():
        if benchmark not in ("POPE", "MMMU"):  # those are in tables 6 and 7
            yield 8, qwen, ("2B",), "R", benchmark, value, ()
    for benchmark, row in tables["table10_mai_2b_8b"].items():
        yield 10, qwen, pair, "MAI", benchmark, row["final"], ()
        yield 10, qwen, pair, "transfer-R", benchmark, row["full_transfer"], ()
    for name, row in tables["table12_chartqa_decoding"].items():
        if name.startswith("8B-R"):
            yield 12, qwen, ("8B",), "R", "ChartQA", row["acc_without_s2"], (name,)
            yield 12, qwen, ("8B",), "R-S2", "ChartQA", row["acc_with_s2"], (name,)
        elif name.startswith("MAI"):
            yield 12, qwen, pair, "MAI", "ChartQA", row["acc_without_s2"], (name,)
    for size, benchmarks in tables["table14_scores_internvl35"].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                remarks = () if way == "S" else ("table 14 does not say whether with the two-stage strategy",)
                yield 14, "InternVL3.5", (size,), way, benchmark, value, remarks
    for benchmark, row in tables["table15_r_vs_r_s2"].items():
        if row["r"]["final"] != tables["table10_mai_2b_8b"][benchmark]["final"]:
            yield 15, qwen, pair, "MAI", benchmark, row["r"]["final"], ()


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
                        System("Qwen3-VL", (size,), ""), benchmark, value, metric, part["splits"][benchmark], source,
                        remarks=remarks,
                    )
                )  # fmt: skip
    return found


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
