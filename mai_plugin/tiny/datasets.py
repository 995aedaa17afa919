"""Bar-chart questions written in the schemas of the six benchmarks, so that harnesses load them by official names.

`datasets` prefers a local folder whose relative path equals the Hub id.  Run a harness from the folder that
`write_benchmark` wrote to, with `HF_HUB_OFFLINE=1`, and `--tasks chartqa` loads these questions with the task's own
YAML, loader and scorer.  They are toys: a score on them says nothing about a model on the real benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mai_plugin.core.question import find_options
from mai_plugin.tiny.charts import ChartQuestion

Row = dict[str, Any]


def _chartqa(number: int, item: ChartQuestion) -> Row:
    kind = "human_test" if number % 2 else "augmented_test"
    return {"type": kind, "question": item.question, "answer": item.answer, "image": item.image}


def _pope(number: int, item: ChartQuestion) -> Row:
    return {
        "id": str(number), "question_id": str(number), "question": item.question, "answer": item.answer,
        "image_source": item.id, "image": item.image, "category": ("adversarial", "popular", "random")[number % 3],
    }  # fmt: skip


def _mmmu(number: int, item: ChartQuestion) -> Row:
    options = find_options(item.question)
    row = {
        "id": f"validation_Math_{number + 1}",
        "question": f"<image 1> {_head(item)}",
        "options": str(list(options.values())),
        "explanation": "",
        "image_1": item.image,
        "img_type": "['Plots and Charts']",
        "answer": item.answer,
        "topic_difficulty": "Easy",
        "question_type": "multiple-choice" if options else "open",
        "subfield": "Statistics",
    }
    return {**row, **{f"image_{k}": None for k in range(2, 8)}}


def _mmbench(number: int, item: ChartQuestion) -> Row:
    options = find_options(item.question)
    return {
        "index": number, "question": _head(item), "hint": "nan" if number % 3 else "The chart shows coloured bars.",
        "answer": item.answer, **{letter: options.get(letter, "nan") for letter in "ABCD"},
        "category": "attribute_recognition", "image": item.image, "source": "charts", "L2-category": "perception",
        "comment": "", "split": "dev",
    }  # fmt: skip


def _infovqa(number: int, item: ChartQuestion) -> Row:
    return {
        "questionId": str(number), "question": item.question, "answers": [item.answer],
        "answer_type": ["single span"], "image": item.image,
    }  # fmt: skip


def _realworldqa(number: int, item: ChartQuestion) -> Row:
    request = (
        "Please answer directly with only the letter of the correct option and nothing else."
        if item.kind == "choice"
        else "Please answer directly with a single word or number."
    )
    return {
        "image": item.image, "question": f"{item.question}\n{request}", "answer": item.answer,
        "image_path": f"{number}.png",
    }  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """Where a task of lmms-eval looks for its data, and what it wants there.

    Attributes:
        task: the task's name in lmms-eval.
        hub_id, config, split: the data set that its YAML names.
        row: a question in the data set's schema.
        kinds: answer kinds that the benchmark has.
    """

    task: str
    hub_id: str
    config: str | None
    split: str
    row: Callable[[int, ChartQuestion], Row]
    kinds: tuple[str, ...]


BENCHMARKS = {
    benchmark.task: benchmark
    for benchmark in (
        Benchmark("chartqa", "lmms-lab-encoder/ChartQA", None, "test", _chartqa, ("short", "yes_no", "choice")),
        Benchmark("pope", "lmms-lab-encoder/POPE", None, "test", _pope, ("yes_no",)),
        Benchmark("mmmu_val", "lmms-lab-encoder/MMMU", None, "validation", _mmmu, ("choice", "short")),
        Benchmark("mmbench_en_dev_static", "lmms-lab-encoder/MMBench", "en", "dev", _mmbench, ("choice",)),
        Benchmark("infovqa_val", "lmms-lab-encoder/DocVQA", "InfographicVQA", "validation", _infovqa, ("short",)),
        Benchmark(
            "realworldqa", "lmms-lab-encoder/RealWorldQA", None, "test", _realworldqa, ("short", "yes_no", "choice")
        ),
    )
}


def write_benchmark(task: str, folder: Path, questions: Sequence[ChartQuestion]) -> list[ChartQuestion]:
    """Write questions as the data set of one of the six tasks.

    Args:
        task: a key of `BENCHMARKS`.
        folder: where to put it; run the harness from there.
        questions: those whose kind the benchmark does not have are left out.

    Returns:
        The questions that were written; the n-th is document n of the task.
    """
    import datasets

    datasets.disable_progress_bars()
    benchmark = BENCHMARKS[task]
    kept = [question for question in questions if question.kind in benchmark.kinds]
    rows = [benchmark.row(number, question) for number, question in enumerate(kept)]
    home = folder / benchmark.hub_id
    data = home / (benchmark.config or "data")
    data.mkdir(parents=True, exist_ok=True)
    table = datasets.Dataset.from_list(rows)
    for column in table.column_names:
        if column == "image" or (column.startswith("image_") and column[6:].isdigit()):
            table = table.cast_column(column, datasets.Image())
    table.to_parquet(str(data / f"{benchmark.split}-00000-of-00001.parquet"))
    if benchmark.config:
        split = {"split": benchmark.split, "path": f"{benchmark.config}/{benchmark.split}-*"}
        header = yaml.safe_dump({"configs": [{"config_name": benchmark.config, "data_files": [split]}]})
        (home / "README.md").write_text(f"---\n{header}---\n", encoding="utf-8")
    return kept


def _head(item: ChartQuestion) -> str:
    """The question without its lines of options."""
    return item.question.split("\nA. ")[0]
