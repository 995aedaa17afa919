"""The chart generator: the same for a seed, every kind of question, and reasoning that ends where it should."""

from __future__ import annotations

import numpy as np
import pytest

from mai_plugin.tiny.charts import (
    KINDS,
    TRAINING_MIX,
    Chart,
    ChartQuestion,
    Problem,
    chart_questions,
    draw_chart,
    draw_item,
    mistaken,
    patches,
    solve,
)


@pytest.fixture(scope="module")
def questions() -> list[ChartQuestion]:
    return chart_questions(400, seed=7)


def test_same_seed_gives_same_questions(questions: list[ChartQuestion]) -> None:
    again = chart_questions(400, seed=7)
    for one, other in zip(questions, again, strict=True):
        assert np.array_equal(np.asarray(one.image), np.asarray(other.image))
        assert (one.id, one.question, one.answer, one.rationale) == (
            other.id,
            other.question,
            other.answer,
            other.rationale,
        )


def test_shorter_list_is_a_prefix_and_seeds_differ(questions: list[ChartQuestion]) -> None:
    assert [item.question for item in chart_questions(20, seed=7)] == [item.question for item in questions[:20]]
    assert [item.question for item in chart_questions(20, seed=8)] != [item.question for item in questions[:20]]


def test_every_kind_and_task_occurs(questions: list[ChartQuestion]) -> None:
    assert {item.kind for item in questions} == {"short", "yes_no", "choice"}
    assert {item.task for item in questions} == set(KINDS)
    assert len({item.id for item in questions}) == len(questions)


def test_texts_end_with_the_answer(questions: list[ChartQuestion]) -> None:
    for item in questions:
        assert item.rationale.endswith(f"\nAnswer: {item.answer}")
        assert item.explanation.endswith(f"\nAnswer: {item.answer}")
        assert len(item.explanation) <= len(item.rationale)


def test_answers_fit_their_kind(questions: list[ChartQuestion]) -> None:
    for item in questions:
        if item.kind == "yes_no":
            assert item.answer in ("yes", "no")
        elif item.kind == "choice":
            assert item.answer in "ABCD"
            assert [line[:2] for line in item.question.splitlines()[1:]] == ["A.", "B.", "C.", "D."]
        else:
            assert item.answer.isdigit() or item.answer in item.rationale
        assert item.image.size == (128, 96)
        assert item.image.mode == "RGB"


def test_question_asks_for_no_brevity(questions: list[ChartQuestion]) -> None:
    assert not any("single word" in item.question or "directly" in item.question for item in questions)


@pytest.mark.parametrize(
    ("task", "colours", "rationale"),
    [
        ("value", ("red",), "red 7.\nAnswer: 7"),
        ("present", ("green",), "green 0.\nAnswer: no"),
        ("taller", ("red", "blue"), "red 7, blue 5. 7 > 5.\nAnswer: yes"),
        ("tallest", ("red", "blue", "black"), "red 7, blue 5, black 9. Tallest 9, black.\nAnswer: black"),
        ("sum", ("red", "blue"), "red 7, blue 5. 7 + 5 = 12.\nAnswer: 12"),
        ("difference", ("blue", "black"), "blue 5, black 9. 9 - 5 = 4.\nAnswer: 4"),
        ("expression", ("red", "blue", "black"), "red 7, blue 5, black 9. 7 + 5 = 12. 12 - 9 = 3.\nAnswer: 3"),
        ("total", ("red", "blue", "black"), "red 7, blue 5, black 9. 7 + 5 = 12. 12 + 9 = 21.\nAnswer: 21"),
        ("even", ("red", "blue"), "red 7, blue 5. 7 + 5 = 12. 12 even.\nAnswer: yes"),
        (
            "choice",
            ("red", "black", "green", "blue"),
            "red A 7, black B 9, green C 0, blue D 5. Tallest 9, black B.\nAnswer: B",
        ),
    ],
)
def test_rationales(task: str, colours: tuple[str, ...], rationale: str) -> None:
    heights = {"red": 7, "blue": 5, "black": 9}
    assert solve(Problem(task, "", colours), heights).rationale == rationale


def test_mistaken_rationales_are_mostly_wrong() -> None:
    rng = np.random.default_rng(0)
    items = [draw_item(3, index, TRAINING_MIX) for index in range(300)]
    pairs = [(solve(problem, chart.heights), mistaken(problem, chart.heights, rng)) for chart, problem in items]
    assert np.mean([right.rationale != wrong.rationale for right, wrong in pairs]) > 0.9
    assert np.mean([right.answer != wrong.answer for right, wrong in pairs]) > 0.6


def test_bars_are_drawn_where_the_chart_says() -> None:
    chart: Chart = draw_chart(np.random.default_rng(1))
    for place, height in zip(chart.places, chart.heights.values(), strict=True):
        middle = chart.pixels[:80, place * 32 + 16]
        assert int((middle < 255).any(-1).sum()) == 8 * height


def test_patches_have_the_shape_of_the_image_processor() -> None:
    pixels = np.stack([draw_chart(np.random.default_rng(seed)).pixels for seed in range(3)])
    cut = patches(pixels)
    assert cut.shape == (3 * 48, 1536)
    assert cut.min() >= -1
    assert cut.max() <= 1
