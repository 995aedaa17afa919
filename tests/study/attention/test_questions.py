"""Questions from generated charts and from lmms-eval's own loaders, offline."""

from __future__ import annotations

import pytest

from mai_plugin.study.attention.questions import chart_set, choose, task_set
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

CHARTS = chart_questions(40, 5, {"value": 0.5, "taller": 0.5})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for task in ("chartqa", "pope"):
        write_benchmark(task, folder, CHARTS)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HOME", str(folder / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache" / "datasets")


def test_charts():
    found = chart_set(3, 9)
    assert [asked.id for asked in found.asked] == ["chart-9-0", "chart-9-1", "chart-9-2"]
    (message,) = found.asked[0].messages()
    assert message.text.endswith("\nAnswer the question with a single word.")
    assert len(message.images) == 1


def test_tasks_of_lmms_eval(here):
    """The first documents of each task, with the harness's own prompt and limit, and nothing of the gold answer."""
    found = task_set("chartqa,pope", 3)
    by_task = {task: [asked for asked in found.asked if asked.task == task] for task in ("chartqa", "pope")}
    assert [asked.id for asked in by_task["chartqa"]] == ["chartqa/0", "chartqa/1", "chartqa/2"]
    assert [asked.max_new_tokens for asked in found.asked if asked.id in ("chartqa/0", "pope/0")] in (
        [16, 128],
        [128, 16],
    )
    for asked, chart in zip(by_task["chartqa"], CHARTS, strict=False):
        (message,) = asked.messages()
        assert message.text == f"{chart.question}\nAnswer the question with a single word."
        assert len(message.images) == 1
        assert message.images[0].data.size == (128, 96)
    yes_no = [chart for chart in CHARTS if chart.kind == "yes_no"]
    assert [asked.messages()[0].text.partition("\n")[0] for asked in by_task["pope"]] == [
        chart.question for chart in yes_no[:3]
    ]
    assert "6 questions of" in found.what


def test_no_such_task(here):
    with pytest.raises(ValueError, match=r"lmms-eval has no such task \(did you mean 'chartqa'\?\)"):
        task_set("chartqq", 1)


def test_data_that_cannot_be_had(tmp_path, monkeypatch, here):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # lmms-eval waits before it tries again
    with pytest.raises(
        ValueError, match=r"--tasks realworldqa: lmms-eval could not load them: [A-Za-z]+Error: "
    ) as error:
        task_set("realworldqa", 1)
    assert "RetryError" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("chartqa", 0, 1, 1), "--limit 0: must be at least 1"),
        ((" , ", 1, 1, 1), "names no task"),
        ((None, 5, 1, 1), "--limit 5 goes with --tasks"),
        ((None, None, 0, 1), "--charts 0: must be at least 1"),
        ((None, None, 1, -1), "--seed -1: must be at least 0"),
    ],
)
def test_bad_input(args, message):
    with pytest.raises(ValueError, match=message):
        choose(*args)
