"""What counts as a score in lmms-eval's per-sample records."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mai_plugin.harness.lmms_eval.results import NotScored, marks


def pope(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """Records of guesses and truths."""
    return [
        {
            "doc_id": number,
            "pope_f1_score": {"score": float(guess == truth), "prediction": guess, "ground_truth": truth},
        }
        for number, (guess, truth) in enumerate(pairs)
    ]


def test_pope_counts_in_f1() -> None:
    records = pope(("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no"), ("yes", "yes"))
    found = marks("pope", records, {"pope_accuracy,none": 0.6, "pope_f1_score,none": 2 / 3})
    assert (found.metric, found.value) == ("pope_f1_score", pytest.approx(200 / 3))
    assert list(found.scores.values()) == [1, 0, 0, 1, 1]


def test_pope_a_text_that_is_neither_is_no_false_negative() -> None:
    """As the harness has it: recall is 1 here."""
    assert marks("pope", pope(("yes", "yes"), ("maybe", "yes")), {"pope_f1_score,none": 1.0}).value == 100


def test_pope_with_another_f1_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"the harness gives pope_f1_score 70\.0000, its samples make 100"):
        marks("pope", pope(("yes", "yes")), {"pope_f1_score,none": 0.7})


def mmmu(**fields: Any) -> dict[str, Any]:
    return {"id": "validation_Math_1", "subdomain": "Math", **fields}


MMMU = [
    (mmmu(question_type="multiple-choice", answer="B", parsed_pred=["B"]), 1),
    (mmmu(question_type="multiple-choice", answer="B", parsed_pred=["C"]), 0),
    (mmmu(question_type="open", answer="8", parsed_pred=[[8.0]]), 1),
    (mmmu(question_type="open", answer="8", parsed_pred=[[9.0, "8 cats"]]), 0),
    (mmmu(question_type="open", answer="Red", parsed_pred=[["it is red"]]), 1),
    (mmmu(question_type="open", answer="x", parsed_pred=[["axe"]]), 0),
    (mmmu(question_type="open", answer="x", parsed_pred=[["is x"]]), 1),
    (mmmu(question_type="open", answer=["1,000", "k"], parsed_pred=[[1000.0]]), 1),
]


@pytest.mark.parametrize(("entry", "right"), MMMU)
def test_mmmu(entry: dict[str, Any], right: int) -> None:
    found = marks("mmmu_val", [{"doc_id": 0, "mmmu_acc": entry}], {"mmmu_acc,none": float(right)})
    assert found.scores == {"0": right}


@pytest.mark.parametrize("metric", ["mmmu_acc", "gpt_eval_score"])
def test_benchmarks_whose_rules_are_the_harness_s_are_not_scored_without_it(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lmms_eval", None)
    for module in [name for name in sys.modules if name.startswith("lmms_eval.")]:
        monkeypatch.delitem(sys.modules, module)
    record = {"doc_id": 0, "mmmu_acc": MMMU[0][0]} if metric == "mmmu_acc" else mmbench(1, "A")
    with pytest.raises(NotScored, match="rules are lmms-eval's, which is not installed"):
        marks("task", [record], {f"{metric},none": 1.0})


def mmbench(index: int, prediction: str, answer: str = "A") -> dict[str, Any]:
    entry = {
        "index": index,
        "prediction": prediction,
        "answer": answer,
        "A": "red",
        "B": "blue",
        "C": "nan",
        "D": "nan",
    }
    return {"doc_id": index % 1000, "gpt_eval_score": entry}


def test_mmbench_counts_a_question_with_its_circular_variants_once() -> None:
    """The harness takes it as right only if all variants are; the score of each document is its own."""
    records = [mmbench(1, "A"), mmbench(1_000_001, "A", "B"), mmbench(2, "A"), mmbench(1_000_002, "B", "B")]
    for number, record in enumerate(records):
        record["doc_id"] = number
    found = marks("mmbench_en_dev_static", records, {"gpt_eval_score,none": 50.0})
    assert list(found.scores.values()) == [1, 0, 1, 1]
    assert found.units == {"1": (0.0, 1.0), "2": (1.0, 1.0)}


def test_mmbench_that_a_judge_scored_is_not_scored() -> None:
    records = [mmbench(1, "A"), mmbench(2, "I cannot say")]
    with pytest.raises(NotScored, match=r"a judge, not a rule, scored 1 documents, the first 2; mmbench_en_dev_static"):
        marks("mmbench_en_dev", records, {"gpt_eval_score,none": 100.0})
    assert marks("mmbench_en_dev_static", records, {"gpt_eval_score,none": 50.0}).value == 50


def test_mmbench_with_another_aggregate_is_an_error_where_rules_decide() -> None:
    with pytest.raises(ValueError, match="its samples make 100"):
        marks("mmbench_en_dev", [mmbench(1, "A")], {"gpt_eval_score,none": 0.0})


def test_any_other_task_with_a_number_per_question() -> None:
    records = [
        {"doc_id": number, "target": "x", "text": "t", "accuracy": value} for number, value in enumerate((0.5, 1))
    ]
    found = marks(
        "mine", records, {"alias": "mine", "text,none": 3, "accuracy,none": 0.75, "accuracy_stderr,none": 0.1}
    )
    assert (found.metric, found.value, found.scores) == ("accuracy", 75, {"0": 0.5, "1": 1})


@pytest.mark.parametrize(
    ("record", "aggregates", "reason"),
    [
        ({"doc_id": 0, "text": "t"}, {"bleu,none": 0.4}, "no number per question"),
        ({"doc_id": 0, "points": 300}, {"points,none": 300.0}, "points 300, not a number from 0 to 1"),
        ({"doc_id": 0, "sum": 1}, {"sum,none": 0.3}, r"the harness gives sum 30\.0000, its samples make 100"),
    ],
)
def test_a_task_without_one_is_not_scored(record: dict, aggregates: dict, reason: str) -> None:
    with pytest.raises(NotScored, match=reason):
        marks("mine", [record], aggregates)


def test_records_of_several_runs_have_no_aggregate_of_the_harness() -> None:
    """Put together, they are scored by the same rules: F1, and MMBench's questions with all their variants."""
    assert marks("pope", pope(("yes", "yes"), ("yes", "no"), ("no", "yes")), None).value == pytest.approx(50)
    records = [mmbench(1, "A"), mmbench(1_000_001, "B"), mmbench(2, "A")]
    assert marks("mmbench_en_dev_static", records, None).value == 50
    with pytest.raises(NotScored):
        marks("other", [{"doc_id": 0, "acc": 1.0}], None)
