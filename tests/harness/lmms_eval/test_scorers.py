"""The stock scorers of lmms-eval give full marks to a right answer in whatever style a model writes it."""

from __future__ import annotations

import json

import pytest
from helpers.offline import SCORES, Offline, wrong_answer
from helpers.styles import STYLES
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from mai_plugin.tiny.datasets import BENCHMARKS

LIMIT = 8


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("task", BENCHMARKS)
def test_style(here: Offline, tasks: TaskManager, task: str, style: str) -> None:
    script = {
        f"{task}/{number}": {"S": STYLES[style].format(right=chart.answer, wrong=wrong_answer(chart))}
        for number, chart in enumerate(here.questions[task][:LIMIT])
    }
    (here.folder / "style.json").write_text(json.dumps(script))
    results = simple_evaluate(
        model="mai_single", model_args="engine=scripted,model=style.json,store=off", tasks=[task], limit=LIMIT,
        batch_size=1, task_manager=tasks,
    )  # fmt: skip
    metric, full = SCORES[task]
    assert results["results"][task][metric] == full
