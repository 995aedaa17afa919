"""The pair that ships, through the real lmms-eval command line under all six official names at once."""

from __future__ import annotations

import pytest
from helpers.offline import SCORES, Offline

from mai_plugin.tiny.datasets import BENCHMARKS

LIMIT = 24


@pytest.fixture(scope="module")
def tiny(offline: Offline) -> Offline:
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", "preset=MAI-tiny", "--tasks", ",".join(BENCHMARKS),
        "--limit", str(LIMIT), "--batch_size", "16", "--output_path", "tiny", "--log_samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return offline


@pytest.mark.parametrize("task", BENCHMARKS)
def test_score_is_the_share_of_right_answers(tiny: Offline, task: str) -> None:
    """The harness's score equals our own count over its samples, and the pair answers most of them rightly."""
    samples = {sample["doc_id"]: sample["filtered_resps"] for sample in tiny.samples("tiny", task)}
    questions = tiny.questions[task][:LIMIT]
    answers = [samples[number] for number in range(len(questions))]
    texts = [answer[0] if isinstance(answer, list) else answer for answer in answers]
    right = sum(text.lower() == question.answer.lower() for text, question in zip(texts, questions, strict=True))
    metric, full = SCORES[task]
    assert tiny.results("tiny")["results"][task][metric] == pytest.approx(
        full * right / len(questions), abs=0.01 * full
    )
    assert right >= 0.7 * len(questions)


def test_every_route_is_taken(tiny: Offline) -> None:
    numbers = tiny.results("tiny")["throughput"]
    assert all(numbers[f"avg_share_{route}"] > 0 for route in ("agree-simple", "agree-reason", "transfer"))
    assert numbers["avg_no_answer"] == numbers["avg_cut_reasoning"] == 0
    assert tiny.results("tiny")["model_name"] == "MAI-tiny"
