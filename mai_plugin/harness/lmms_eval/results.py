"""What lmms-eval's scorers gave each question, read from its per-sample records, for the metric that counts.

Every headline score is a ratio of sums over units: a mean has the score over 1, POPE's F1 has 2 TP over 2 TP + FP + FN.
A unit is a question, but for MMBench, where it is a question with all its circular variants (rows whose index differs
by a multiple of a million), right only if each of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Ratio = tuple[float, float]

TOLERANCE = 1e-3
"""How far, in points, the harness's aggregate may be from ours.  It rounds MMMU to 5 digits."""

_RESERVED = {"doc_id", "target", "input", "input_media", "resps", "filtered_resps", "token_counts", "doc_hash"}
_CIRCULAR = 1_000_000


class NotScored(Exception):
    """There is no score per question; the message says why."""


@dataclass(frozen=True)
class Marks:
    """The marks of one task.

    Attributes:
        metric: the harness's metric.
        value: its aggregate as the harness gives it, in points (0 to 100).
        scores: document id to its score, 0 to 1.
        units: what the aggregate is over: unit to numerator and denominator.
    """

    metric: str
    value: float
    scores: Mapping[str, float]
    units: Mapping[str, Ratio]


def ratio(units: Mapping[str, Ratio]) -> float:
    """The headline score of some units, in points."""
    above, below = (sum(unit[side] for unit in units.values()) for side in (0, 1))
    return 100 * above / below if below else 0.0


def metrics(aggregates: Record) -> list[str]:
    """The metrics that `marks` may look for in records with these aggregates."""
    return list(dict.fromkeys((*_RULES, *(key.partition(",")[0] for key in aggregates))))


def marks(task: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    """Find the metric that counts and what each document got in it.

    Args:
        task: the harness's task.
        records: its per-sample records.
        aggregates: what its results file says of the task (`metric,filter` to number); None for records that were
            put together from several runs, of which the harness has no aggregate: then the value is ours, and only
            the six benchmarks' metrics are known.

    Raises:
        NotScored: the records hold no score per document.
        ValueError: the scores per document do not make up the harness's aggregate.
    """
    for metric, rule in _RULES.items():
        if all(metric in record for record in records) and (
            aggregates is None or _aggregate(aggregates, metric) is not None
        ):
            return rule(task, metric, records, aggregates)
    return _any_number(task, records, aggregates)


def _mean(task: str, metric: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    shared: dict[float, Ratio] = {}  # most are 0 or 1
    units: dict[str, Ratio] = {}
    for record in records:
        score = _number(task, metric, record)
        units[str(record["doc_id"])] = shared.setdefault(score, (score, 1.0))
    return _checked(task, metric, aggregates, {key: unit[0] for key, unit in units.items()}, units)


def _pope(task: str, metric: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    scores, units = {}, {}
    for record in records:
        entry, key = record[metric], str(record["doc_id"])
        truth, guess = entry["ground_truth"], entry["prediction"]
        found = truth == guess == "yes"
        # A text that is neither yes nor no is wrong, but the harness counts it as no false negative.
        wrong = (truth, guess) in (("no", "yes"), ("yes", "no"))
        scores[key] = float(entry["score"])
        units[key] = (2.0 * found, 2.0 * found + wrong)
    return _checked(task, metric, aggregates, scores, units)


def _mmmu(task: str, metric: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    try:
        from lmms_eval.tasks.mmmu.utils import evaluate_mmmu as judge
    except ImportError as error:
        raise NotScored(f"MMMU's rules are lmms-eval's, which is not installed ({error})") from error
    # The harness averages over subjects weighted by their size: the mean over all questions.
    scores = {str(record["doc_id"]): float(judge([record[metric]])[1]["acc"]) for record in records}
    return _checked(task, metric, aggregates, scores, {key: (score, 1.0) for key, score in scores.items()})


def _mmbench(task: str, metric: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    if not all(
        isinstance(record[metric], Mapping) and {"index", "prediction"} <= set(record[metric]) for record in records
    ):
        return _any_number(task, records, aggregates)  # other tasks have a metric of that name too
    try:
        from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer
        from lmms_eval.tasks.mmbench.mmbench_evals import MMBench_Evaluator
    except ImportError as error:
        raise NotScored(f"MMBench's rules are lmms-eval's, which is not installed ({error})") from error
    evaluator = MMBench_Evaluator()
    scores: dict[str, float] = {}
    groups: dict[int, list[float]] = {}
    judged = []
    for record in records:
        entry = {**record[metric], "prediction": str(record[metric]["prediction"])}
        guess = evaluator.prefetch_answer(entry)
        if not guess:
            judged.append(record["doc_id"])
            guess = extract_mcq_answer(entry["prediction"], choices=sorted(evaluator.build_choices(entry)))
        score = float(guess == entry["answer"])
        scores[str(record["doc_id"])] = score
        groups.setdefault(int(entry["index"]) % _CIRCULAR, []).append(score)
    main = {int(record[metric]["index"]) for record in records if int(record[metric]["index"]) < _CIRCULAR}
    units = {str(index): (min(group), 1.0) for index, group in groups.items() if index in main}
    try:
        return _checked(task, metric, aggregates, scores, units, full=100.0)
    except ValueError as error:
        if not judged:
            raise
        reason = (
            f"a judge, not a rule, scored {len(judged)} documents, the first {judged[0]}; mmbench_en_dev_static has"
        )
        raise NotScored(f"{reason} rules only") from error


def _any_number(task: str, records: Sequence[Record], aggregates: Record | None) -> Marks:
    """For other tasks: the first metric with a number from 0 to 1 per document whose mean is the aggregate."""
    tried = []
    for metric in dict.fromkeys(key.partition(",")[0] for key in aggregates or {}):
        value = _aggregate(aggregates, metric)
        if metric in _RESERVED or value is None or not all(metric in record for record in records):
            continue
        try:
            return _mean(task, metric, records, aggregates)
        except ValueError as error:
            tried.append(str(error))
    raise NotScored(tried[0] if tried else "its samples hold no number per question for any metric of the harness")


_RULES: Mapping[str, Callable[[str, str, Sequence[Record], Record | None], Marks]] = {
    "pope_f1_score": _pope,
    "mmmu_acc": _mmmu,
    "gpt_eval_score": _mmbench,
    "relaxed_overall": _mean,
    "anls": _mean,
    "exact_match": _mean,
}


def _aggregate(aggregates: Record | None, metric: str) -> float | None:
    for key, value in (aggregates or {}).items():
        if key.partition(",")[0] == metric and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _number(task: str, metric: str, record: Record) -> float:
    value = record[metric]
    if isinstance(value, Mapping):
        value = value.get("score")
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ValueError(f"{task}: document {record['doc_id']} has {metric} {value!r}, not a number from 0 to 1")
    return float(value)


def _checked(
    task: str,
    metric: str,
    aggregates: Record | None,
    scores: Mapping[str, float],
    units: Mapping[str, Ratio],
    full: float = 1.0,
) -> Marks:
    if aggregates is None:
        return Marks(metric, ratio(units), scores, units)
    value = 100 * (_aggregate(aggregates, metric) or 0.0) / full
    ours = ratio(units)
    if not abs(ours - value) <= TOLERANCE:
        raise ValueError(f"{task}: the harness gives {metric} {value:.4f}, its samples make {ours:.4f}")
    return Marks(metric, value, scores, units)
