"""The plan's measured figures beside the printed ones, in tables, with the difference and its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from mai_plugin.core.text import last_part
from mai_plugin.harness.benchmarks import PAPER, find_task
from mai_plugin.harness.lmms_eval.results import NotScored
from mai_plugin.harness.scores import ScoredRun
from mai_plugin.output.table import COUNT, Cell, Column, Table
from mai_plugin.paper.figures import SOURCE
from mai_plugin.paper.printed import KEPT, SCORE, SECONDS, SHARES, TITLES, TOKENS, TWO_STAGE_CASCADE, Printed
from mai_plugin.report.comparability import compare
from mai_plugin.report.measures import TaskResult, measure
from mai_plugin.report.published import Figure, System, run_system
from mai_plugin.report.related_runs import speedup, time_cell
from mai_plugin.report.stats import interval
from mai_plugin.study.reproduce.plan import TASK_NAMES, Plan
from mai_plugin.study.reproduce.runner import Done
from mai_plugin.study.reproduce.table15 import Replayed, replay_second_step

Ends = tuple[float, float]


@dataclass(frozen=True)
class Measured:
    """A measured figure beside the printed one.

    Attributes:
        printed: the paper's.
        models: what answered, as readers see it.
        n: questions it was measured on.
        value: in the printed figure's unit; a text says why there is none.
        ci95: its 95 % interval, where it has one.
        refused: why the two cannot be compared; if there is a reason, `difference` is None.
        remarks: what to keep in mind.
    """

    printed: Printed
    models: str
    n: int | None
    value: float | str
    ci95: Ends | None = None
    refused: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Measured less printed."""
        if self.refused or isinstance(self.value, str) or self.printed.value is None:
            return None
        return self.value - self.printed.value

    @property
    def difference_ci95(self) -> Ends | None:
        """Its interval: the measured figure's, moved.  The paper gives none for its own."""
        if self.difference is None or self.ci95 is None or self.printed.value is None:
            return None
        return self.ci95[0] - self.printed.value, self.ci95[1] - self.printed.value

    @property
    def within(self) -> bool | None:
        """Whether the printed figure lies in the interval of the measured one; None where there is no such interval."""
        return None if self.difference_ci95 is None else self.difference_ci95[0] <= 0 <= self.difference_ci95[1]

    def as_json(self) -> dict[str, Any]:
        """As documented in docs/reproduce.md."""
        known = not isinstance(self.value, str)
        return {
            "table": self.printed.table, "models": self.models, "sizes": list(self.printed.sizes),
            "way": str(self.printed.way), "benchmark": self.printed.benchmark, "figure": self.printed.what, "n": self.n,
            "measured": self.value if known else None, "missing": None if known else self.value,
            "ci95": self.ci95 and list(self.ci95), "printed": self.printed.value, "difference": self.difference,
            "difference_ci95": self.difference_ci95 and list(self.difference_ci95),
            "not_comparable": list(self.refused), "remarks": list(self.remarks),
        }  # fmt: skip


class Measurer:
    """Works out figures from the runs of a plan.

    Args:
        plan: the plan.
        done: what its runs came to.
    """

    def __init__(self, plan: Plan, done: Done) -> None:
        self.plan, self.done = plan, done
        scored = {key: run for key, run in done.items() if isinstance(run, ScoredRun)}
        self._results: dict[tuple[str, str], TaskResult] = {
            (key, result.task): result for key, run in scored.items() for result in measure([run])
        }
        self._replayed: dict[str, Replayed | str] = {}

    def all(self) -> list[Measured]:
        """Every figure of the plan."""
        return [self.one(figure) for figure in self.plan.figures]

    def one(self, figure: Printed) -> Measured:
        """One figure, measured, or why it is not there."""
        task = TASK_NAMES[figure.benchmark]
        keys = [self.plan.run_for(need, figure.benchmark).key for need in figure.needs]
        models = self._models(figure.sizes)
        for key in keys:
            if isinstance(self.done.get(key), str):
                return Measured(figure, models, None, f"run {key} failed")
        results = [self._results[key, task] for key in keys]
        if figure.way == TWO_STAGE_CASCADE:
            return self._compared(self._second_step(figure, models, task, keys), results[0])
        own = results[0]
        value, ci95 = _value(figure, own, results[-1])
        found = Measured(figure, models, own.n, value, ci95, remarks=(*figure.remarks, *_odd(own)))
        return self._compared(found, own)

    def _second_step(self, figure: Printed, models: str, task: str, keys: Sequence[str]) -> Measured:
        if task not in self._replayed:
            scored = [run for key in keys if isinstance(run := self.done[key], ScoredRun)]
            try:
                self._replayed[task] = replay_second_step(self.plan.request.store, task, *scored)
            except (NotScored, ValueError) as error:
                self._replayed[task] = str(error)
        found = self._replayed[task]
        if isinstance(found, str):
            return Measured(figure, models, None, found)
        if figure.what == SCORE:
            return Measured(figure, models, found.n, found.marks.value, interval(found.marks.units))
        return Measured(figure, models, found.n, *_share(found.routes.get(figure.what, 0), found.n))

    def _compared(self, found: Measured, own: TaskResult) -> Measured:
        """Whether the two may be compared, by the rules of `mai compare`."""
        if isinstance(found.value, str) or found.printed.value is None:
            return found
        task = find_task(own.task)
        assert task is not None
        split, metric, full = PAPER[found.printed.benchmark]
        scores = found.printed.what == SCORE
        system = run_system(own.run)
        mine = Figure(
            replace(system, way=found.printed.way), task.benchmark, found.value,
            task.metric if scores else found.printed.what, task.split, own.run.name, task.harness,
            task.scorer if scores else "", found.n, task.n,
        )  # fmt: skip
        theirs = Figure(
            System(self.plan.request.family, found.printed.sizes, found.printed.way), found.printed.benchmark,
            found.printed.value, metric if scores else found.printed.what, split,
            f"{SOURCE}, table {found.printed.table}", n=full, full_n=full,
        )  # fmt: skip
        both = compare(mine, theirs)
        refused = both.refused
        if found.printed.what == SECONDS:
            refused += ("seconds of another machine",)
        other = [f"{self.plan.request.replaced[size]} is not the paper's {size}"
                 for size in found.printed.sizes if size in self.plan.request.replaced]  # fmt: skip
        return replace(found, refused=refused, remarks=(*other, *both.flags, *found.remarks))

    def _models(self, sizes: Sequence[str]) -> str:
        replaced = self.plan.request.replaced
        names = [last_part(replaced[size]) if size in replaced else size for size in sizes]
        return " + ".join(names)


def _value(figure: Printed, own: TaskResult, other: TaskResult) -> tuple[float | str, Ends | None]:
    """What a run measured, and its interval; or why it did not."""
    if figure.what == SCORE:
        return (own.score.value, own.ci95) if own.score else (own.unscored, None)
    if figure.what == TOKENS:
        written = [sample.usage().output_tokens for sample in own.answered]
        return float(np.mean(written)), _mean_interval(written)
    if figure.what == KEPT:
        kept = [sum(call.completion.details.get("kept_tokens", 0) for call in sample.calls) for sample in own.answered]
        return float(np.mean(kept)), _mean_interval(kept)
    if figure.what in SHARES.values():
        return _share(own.routes.get(figure.what, 0), len(own.answered))
    found = time_cell(own.run) if figure.what == SECONDS else speedup(own.run, other.run)
    return found, None


def _mean_interval(values: Sequence[float]) -> Ends | None:
    """Student's, for the mean."""
    if len(set(values)) < 2:
        return None
    found = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    return float(found.low), float(found.high)


def _share(count: int, n: int) -> tuple[float, Ends]:
    """A share in per cent, with Wilson's interval."""
    found = stats.binomtest(count, n).proportion_ci(0.95, method="wilson")
    return 100 * count / n, (100 * float(found.low), 100 * float(found.high))


def _odd(result: TaskResult) -> tuple[str, ...]:
    """What went wrong on the way to a figure."""
    counts = {"state no answer": result.no_answer, "reasoning texts cut by the limit": result.cut_reasoning}
    return tuple(f"{count:,} {what}" for what, count in counts.items() if count)


COLUMNS = (
    Column("model"), Column("asked"), Column("benchmark"), Column("figure"), Column("n", COUNT),
    Column("measured", ",.1f"), Column("95 % interval"), Column("paper", ",.6g"), Column("difference", "+,.1f"),
    Column("its 95 % interval"), Column("remarks"),
)  # fmt: skip


def tables(plan: Plan, found: Sequence[Measured]) -> list[Table]:
    """A table for each of the paper's, notes of all behind the last."""
    made = []
    for number in dict.fromkeys(figure.printed.table for figure in found):
        of_it = [figure for figure in found if figure.printed.table == number]
        common = _common(of_it)
        notes = [f"All rows: {remark}." for remark in common]
        judged = [figure.within for figure in of_it if figure.within is not None]
        if judged:
            notes.append(
                f"{sum(judged)} of {len(judged)} printed figures lie within the 95 % interval of the measured one."
            )
        notes += _NOTES.get(number, ())
        rows = tuple(_row(figure, common) for figure in of_it)
        title = f"Table {number} ({TITLES[number]}), measured beside printed"
        made.append(Table(f"table{number}", title, COLUMNS, rows, tuple(notes)))
    return [*made[:-1], replace(made[-1], notes=(*made[-1].notes, *general_notes(plan, found)))] if made else []


def general_notes(plan: Plan, found: Iterable[Measured]) -> list[str]:
    """What has to be known to read all the tables."""
    request = plan.request
    limit = "all" if request.limit is None else f"the first {request.limit:,}"
    notes = [
        f"measured with lmms-eval, engine {request.engine}, reasoning up to {request.max_reasoning_tokens:,} tokens, "
        f"{limit} questions of each benchmark. Wordings, limits and the rule for equal answers are ours: the paper "
        "does not print its own.",
        "Interval of a score: Wilson's or a bootstrap's, as in `mai report`; of a mean: Student's. That of a "
        "difference is the measured figure's: the paper prints none for its own.",
        *plan.left_out,
    ]
    if any(figure.refused and "toy" in " ".join(figure.refused) for figure in found):
        notes.append("TOY SCORES: toy models, or scripted answers; nothing is compared, and nothing reproduced.")
    return notes


_OUR_TOKENS = "Output tokens count the end-of-turn token; the paper's, with 1.0 for a yes or no, seem not to."
_NOTES = {
    5: (_OUR_TOKENS,),
    13: (_OUR_TOKENS,),
    7: ("S2: the short answer asked for after the model's own reasoning; MMMU's E and R are without it.",),
    9: (
        "LN: by the attention of layer N of the 8B's 36, counted from 0 (the paper does not say so); in another "
        "model the layer at the same share of its depth.",
    ),
    10: ("Routes in per cent of the questions. The printed ones are the table's counts as shares.",),
    11: (
        "Seconds from the first question to the last answer, no call reused. One run each, so no interval. The "
        "paper's are those of its machine, at batch 1 as far as its other tables tell.",
    ),
    15: ("MAI-R-S2 is no run of its own: the calls of the others replayed, scored with the harness's records.",),
}


def _common(found: Sequence[Measured]) -> list[str]:
    """Remarks that all rows beside a printed figure share: printed once."""
    beside = [figure for figure in found if not isinstance(figure.value, str) and figure.printed.value is not None]
    counted = Counter(remark for figure in beside for remark in dict.fromkeys(figure.remarks))
    return [remark for remark, count in counted.items() if count == len(beside) > 1]


def _row(figure: Measured, common: Sequence[str]) -> tuple[Cell, ...]:
    printed = figure.printed
    digits = 2 if printed.against else 1
    if figure.refused:
        remarks = f"not comparable: {'; '.join(figure.refused)}"
    else:
        remarks = "; ".join(remark for remark in figure.remarks if remark not in common)
    value: Cell = figure.value if digits == 1 or isinstance(figure.value, str) else f"{figure.value:.2f}"
    difference: Cell = figure.difference
    if difference is not None and digits == 2:
        difference = f"{difference:+.2f}"
    return (
        figure.models, str(printed.way), printed.benchmark, printed.what, figure.n, value,
        _ends(figure.ci95, f".{digits}f"), None if printed.value is None else round(printed.value, 2), difference,
        _ends(figure.difference_ci95, f"+.{digits}f"), remarks,
    )  # fmt: skip


def _ends(ends: Ends | None, format: str) -> str | None:
    return None if ends is None else f"{ends[0]:{format}} to {ends[1]:{format}}"
