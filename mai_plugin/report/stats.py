"""Intervals and paired comparisons, over ratios of sums (`harness.lmms_eval.results`): means and F1 alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mai_plugin.harness.lmms_eval.results import Ratio
from mai_plugin.harness.scores import TaskScore

RESAMPLES = 2000
SEED = 0
LEVEL = 0.05
"""A difference with a smaller p is called real."""
_Z = 1.959963984540054
"""The normal distribution's 0.975 quantile."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same questions of one task.

    Attributes:
        run, baseline: their labels.
        task, metric: what is compared.
        n: units (questions; for MMBench questions with all their circular variants).
        score, baseline_score: in points.
        difference: score less baseline score.
        ci95: low and high end of its 95 % interval; None where a bootstrap has nothing to go by.
        p: two-sided.
        test: what both come from: `McNemar, exact` where each unit is right or wrong, with the interval of Bonett and
            Price (2012, adjusted Wald) beside it; else `paired bootstrap`.
    """

    run: str
    baseline: str
    task: str
    metric: str
    n: int
    score: float
    baseline_score: float
    difference: float
    ci95: tuple[float, float] | None
    p: float
    test: str

    @property
    def verdict(self) -> str:
        """What that says, in words."""
        return "significant" if self.p < LEVEL else "not significant"


def interval(units: Mapping[str, Ratio]) -> tuple[float, float] | None:
    """The 95 % interval of a headline score, in points: Wilson's for right or wrong, else a bootstrap's (percentiles).

    Returns:
        Low and high; None for fewer than two units, and where all draws of a bootstrap are alike.
    """
    above, below = _columns(units)
    if len(above) < 2:
        return None
    if _binary(above, below):
        return _wilson(int(above.sum()), len(above))
    return _bootstrap((above, below), _ratio)[0]


def compare(run: str, mine: TaskScore, baseline: str, theirs: TaskScore, task: str) -> Comparison:
    """Compare a run with a baseline, question by question.

    Raises:
        ValueError: they were not scored on the same questions by the same metric.
    """
    _same_questions(run, mine, baseline, theirs, task)
    order = list(mine.units)
    n = len(order)
    columns = (*_columns(mine.units, order), *_columns(theirs.units, order))
    binary = _binary(*columns[:2]) and _binary(*columns[2:])
    if binary:
        better, worse = int((columns[0] > columns[2]).sum()), int((columns[0] < columns[2]).sum())
        found: tuple[float, float] | None = _bonett_price(better, worse, n)
        from scipy import stats  # takes a second to import, so only where it is needed

        p = float(stats.binomtest(better, better + worse, 0.5).pvalue) if better + worse else 1.0
    elif n < 2 or all((first == second).all() for first, second in zip(columns[:2], columns[2:], strict=True)):
        found, p = None, 1.0
    else:
        found, p = _bootstrap(columns, _difference)
    difference = mine.value - theirs.value
    name = "McNemar, exact" if binary else "paired bootstrap"
    return Comparison(run, baseline, task, mine.metric, n, mine.value, theirs.value, difference, found, p, name)


def _same_questions(run: str, mine: TaskScore, baseline: str, theirs: TaskScore, task: str) -> None:
    names = f"{run} and baseline {baseline} cannot be compared on {task}"
    if mine.metric != theirs.metric:
        raise ValueError(f"{names}: one is scored by {mine.metric}, the other by {theirs.metric}")
    for doc_id in [*mine.targets, *theirs.targets]:
        if doc_id not in mine.targets or doc_id not in theirs.targets:
            counts = f"{len(mine.targets)} and {len(theirs.targets)} questions"
            raise ValueError(f"{names}: {counts}, document {doc_id} is in one only; run both on the same ones")
        if mine.targets[doc_id] != theirs.targets[doc_id]:
            answers = f"{mine.targets[doc_id]!r} in one and {theirs.targets[doc_id]!r} in the other"
            raise ValueError(f"{names}: the right answer to document {doc_id} is {answers}, so the data differ")


def _columns(units: Mapping[str, Ratio], order: list[str] | None = None) -> tuple[Floats, Floats]:
    rows = np.array([units[key] for key in order or units], dtype=float).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _binary(above: Floats, below: Floats) -> bool:
    return bool((below == 1).all() and np.isin(above, (0, 1)).all())


def _ratio(above: Floats, below: Floats, axis: int = -1) -> Floats:
    total = below.sum(axis)
    return np.asarray(100 * np.divide(above.sum(axis), total, out=np.zeros_like(total), where=total > 0))


def _difference(above: Floats, below: Floats, other_above: Floats, other_below: Floats, axis: int = -1) -> Floats:
    return _ratio(above, below, axis) - _ratio(other_above, other_below, axis)


def _wilson(right: int, n: int) -> tuple[float, float]:
    share = right / n
    scale = 2 * (n + _Z**2)
    centre = (2 * n * share + _Z**2) / scale
    half = _Z / scale * (4 * n * share * (1 - share) + _Z**2) ** 0.5
    return 0.0 if right == 0 else 100 * (centre - half), 100.0 if right == n else 100 * (centre + half)


def _bonett_price(better: int, worse: int, n: int) -> tuple[float, float]:
    gain, loss = (better + 1) / (n + 2), (worse + 1) / (n + 2)
    half = _Z * ((gain + loss - (gain - loss) ** 2) / (n + 2)) ** 0.5
    return 100 * max(-1.0, gain - loss - half), 100 * min(1.0, gain - loss + half)


def _bootstrap(columns: tuple[Floats, ...], statistic: Any) -> tuple[tuple[float, float] | None, float]:
    """Percentile interval over questions drawn with replacement, and the two-sided p of the statistic being 0."""
    from scipy import stats

    found = stats.bootstrap(
        columns, statistic, paired=True, vectorized=True, n_resamples=RESAMPLES, batch=100, method="percentile",
        rng=np.random.default_rng(SEED),
    )  # fmt: skip
    drawn = found.bootstrap_distribution
    tails = [(np.count_nonzero(side) + 1) / (RESAMPLES + 1) for side in (drawn <= 0, drawn >= 0)]
    low, high = (float(end) for end in found.confidence_interval)
    return (low, high) if low < high else None, min(1.0, 2 * min(tails))
