"""Intervals and paired comparisons against closed forms and by simulation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from mai_plugin.harness.scores import TaskScore
from mai_plugin.report.stats import compare, interval


def task_score(units: dict[str, tuple[float, float]], metric: str = "relaxed_overall", **targets: str) -> TaskScore:
    above, below = (sum(column) for column in zip(*units.values(), strict=True))
    scores = {key: value[0] for key, value in units.items()}
    return TaskScore(metric, 100 * above / below, scores, units, dict.fromkeys(units, "7") | targets, Path("samples"))


def right_or_wrong(text: str) -> dict[str, tuple[float, float]]:
    return {str(number): (float(letter), 1.0) for number, letter in enumerate(text)}


def test_interval_of_right_or_wrong_is_wilsons() -> None:
    k, n, z = 30, 40, norm.ppf(0.975)
    centre = (k / n + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(k / n * (1 - k / n) / n + z**2 / (4 * n**2))
    found = interval(right_or_wrong("1" * k + "0" * (n - k)))
    assert found == (pytest.approx(100 * (centre - half)), pytest.approx(100 * (centre + half)))


def test_interval_of_means_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        units = {str(number): (value, 1.0) for number, value in enumerate(random.beta(2, 1, 80))}
        low, high = interval(units) or (0, 0)
        covered += low <= 100 * 2 / 3 <= high
    assert 0.89 <= covered / 200 <= 0.99


def test_interval_of_f1_repeats_and_holds_it() -> None:
    random = np.random.default_rng(2)
    truth, guess = random.random(300) < 0.5, random.random(300) < 0.5
    units = {
        str(number): (2.0 * (t and g), 2.0 * (t and g) + (t != g))
        for number, (t, g) in enumerate(zip(truth, guess, strict=True))
    }
    low, high = interval(units) or (0, 0)
    assert low < task_score(units).value < high
    assert interval(units) == (low, high)


def test_one_question_has_no_interval() -> None:
    assert interval(right_or_wrong("1")) is None


def test_mcnemar_is_the_binomial_test_of_the_questions_that_differ() -> None:
    """9 better, 1 worse: twice the chance of at most 1 of 10."""
    mine, theirs = task_score(right_or_wrong("1" * 9 + "0" + "1" * 30)), task_score(right_or_wrong("0" * 9 + "1" * 31))
    found = compare("mine", mine, "theirs", theirs, "chartqa")
    assert found.p == pytest.approx(2 * binom.cdf(1, 10, 0.5))
    assert (found.test, found.n, found.difference) == ("McNemar, exact", 40, pytest.approx(20))
    assert found.verdict == "significant"
    assert found.ci95
    assert 0 < found.ci95[0] < 20 < found.ci95[1]


def test_few_questions_do_not_tell_apart() -> None:
    """3 better, none worse: p is 0.25, and the interval agrees."""
    found = compare("a", task_score(right_or_wrong("1111")), "b", task_score(right_or_wrong("0001")), "chartqa")
    assert (found.p, found.verdict) == (pytest.approx(0.25), "not significant")
    assert found.ci95
    assert found.ci95[0] < 0 < found.ci95[1]


def test_equal_runs() -> None:
    """Nothing differs, but so few questions leave room for a difference."""
    same = task_score(right_or_wrong("1101"))
    found = compare("a", same, "b", same, "chartqa")
    assert (found.p, found.difference, found.verdict) == (1.0, 0.0, "not significant")
    assert found.ci95
    assert found.ci95[0] < -10
    assert found.ci95[1] > 10


def test_interval_of_a_paired_difference_covers_it_as_often_as_it_says() -> None:
    """Of 60 questions, 20 % get better and 5 % worse."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(300):
        kind = random.choice(3, 60, p=(0.2, 0.05, 0.75))
        texts = [
            "".join("1" if value in (0, 2) else "0" for value in kind),
            "".join("0" if value == 0 else "1" for value in kind),
        ]
        mine, theirs = (task_score(right_or_wrong(text)) for text in texts)
        low, high = compare("a", mine, "b", theirs, "chartqa").ci95 or (0, 0)
        covered += low <= 15 <= high
    assert covered / 300 >= 0.92


def test_means_are_compared_by_a_paired_bootstrap() -> None:
    """The same noise in both: paired, a small gain is seen that unpaired samples of this size would not show."""
    random = np.random.default_rng(3)
    base = random.random(100) * 0.8
    gain = random.random(100) * 0.2
    mine = task_score({str(number): (value, 1.0) for number, value in enumerate(base + gain)}, "anls")
    theirs = task_score({str(number): (value, 1.0) for number, value in enumerate(base)}, "anls")
    found = compare("a", mine, "b", theirs, "infovqa_val")
    assert (found.test, found.verdict) == ("paired bootstrap", "significant")
    half = 1.96 * gain.std() / math.sqrt(100) * 100
    assert found.ci95
    assert found.ci95[0] == pytest.approx(100 * gain.mean() - half, abs=0.5)
    back = compare("b", theirs, "a", mine, "infovqa_val")
    assert back.difference == -found.difference
    assert back.verdict == found.verdict


def test_noise_is_called_real_as_seldom_as_it_says() -> None:
    random = np.random.default_rng(4)
    called = 0
    for _ in range(100):
        first, second = random.random(60), random.random(60)
        scores = [task_score({str(n): (v, 1.0) for n, v in enumerate(values)}, "anls") for values in (first, second)]
        called += compare("a", scores[0], "b", scores[1], "infovqa_val").verdict.startswith("real")
    assert called <= 12


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (task_score(right_or_wrong("110")), "2 and 3 questions, document 2 is in one only"),
        (task_score(right_or_wrong("11"), "anls"), "one is scored by relaxed_overall, the other by anls"),
        (
            task_score(right_or_wrong("11"), **{"1": "no"}),
            "document 1 is '7' in one and 'no' in the other, so the data",
        ),
    ],
)
def test_other_questions_are_an_error(theirs: TaskScore, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare("a", task_score(right_or_wrong("11")), "b", theirs, "chartqa")
