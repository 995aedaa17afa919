"""The package's own tasks: the six benchmarks in S, E and R, on stock data and scorers."""

from __future__ import annotations

import json

import pytest
from helpers.offline import SCORES, Offline
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager, get_task_dict

from mai_plugin.core.prompts import load_prompts
from mai_plugin.harness.lmms_eval.model import to_messages
from mai_plugin.tiny.datasets import BENCHMARKS

VARIANTS = {task: task.removesuffix("_static") + "_mai_" for task in BENCHMARKS}


@pytest.mark.parametrize("style", ["s", "e", "r"])
@pytest.mark.parametrize("task", BENCHMARKS)
def test_prompt(here: Offline, tasks: TaskManager, task: str, style: str) -> None:
    """S is the stock prompt; E and R are its stem with the wording behind; images stay where they are."""
    variant = VARIANTS[task] + style
    loaded = get_task_dict([task, variant], tasks, "chat")
    for number, chart in enumerate(here.questions[task][:4]):
        doc = loaded[task].dataset[BENCHMARKS[task].split][number]
        (stock,) = to_messages(loaded[task].doc_to_messages(doc))
        (ours,) = to_messages(loaded[variant].doc_to_messages(doc))
        if style == "s":
            assert ours.text == stock.text
        else:
            wording = load_prompts().wording(style.upper(), chart.kind)  # type: ignore[arg-type]
            assert ours.text.endswith(f"\n{wording}")
            stem = ours.text.removesuffix(f"\n{wording}")
            assert stock.text.startswith(stem)
            assert stem.rstrip() == stem
        assert [image.data.tobytes() for image in ours.images] == [image.data.tobytes() for image in stock.images]


@pytest.mark.parametrize("style", ["s", "e", "r"])
@pytest.mark.parametrize("task", BENCHMARKS)
def test_score(here: Offline, tasks: TaskManager, task: str, style: str) -> None:
    """Reasoning is scored by the answer that it states, also where the model hands back all of it (`raw=true`)."""
    variant = VARIANTS[task] + style
    script = {
        f"{variant}/{number}": {"S": f"It is not 42, nor anything else.\nAnswer: **{chart.answer}**"}
        for number, chart in enumerate(here.questions[task][:8])
    }
    (here.folder / "task.json").write_text(json.dumps(script))
    results = simple_evaluate(
        model="mai_single", model_args="engine=scripted,model=task.json,store=off,raw=true", tasks=[variant], limit=8,
        batch_size=1, task_manager=tasks,
    )  # fmt: skip
    metric, full = SCORES[task]
    assert results["results"][variant][metric] == full
