"""Bar-chart questions written as VLMEvalKit's TSV files, for its own data set classes and scorers.

The kit downloads an official name anew if the file's MD5 is not the official one.  So these go under names of their
own, such as `ChartQA_TEST_mini`: the kit's scorers know a benchmark by the beginning of its name, and a `--config` file
gives the class (`task_configs/vlmevalkit/mini.json`).  They are toys, like those of `tiny.datasets`.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mai_plugin.core.question import find_options
from mai_plugin.tiny.charts import LETTERS, ChartQuestion, chart_questions

Row = dict[str, str]
ROTATION = 1_000_000
"""What MMBench adds to a question's index for each rotation of its options."""


def _pope(index: int, item: ChartQuestion) -> Iterator[Row]:
    category = ("adversarial", "popular", "random")[index % 3]
    yield {"question": item.question, "answer": item.answer.capitalize(), "category": category}


def _mmmu(index: int, item: ChartQuestion) -> Iterator[Row]:
    # As in MMMU_DEV_VAL: a part of the rows is of the split "dev".  Open questions have no options.
    options = {letter: find_options(item.question).get(letter, "") for letter in LETTERS}
    yield {
        "question": f"<image 1> {_head(item)}", **options, "answer": item.answer, "image_path": f"{index}.png",
        "category": "Math", "l2-category": "Science", "split": "validation" if index % 4 else "dev",
    }  # fmt: skip


def _mmbench(index: int, item: ChartQuestion) -> Iterator[Row]:
    options = list(find_options(item.question).values())
    right = LETTERS.index(item.answer)
    for turn in range(len(options)):
        rotated = options[turn:] + options[:turn]
        yield {
            "index": str(index + turn * ROTATION), "question": _head(item),
            "hint": "" if index % 3 else "The chart shows coloured bars.",
            **dict(zip(LETTERS, rotated, strict=False)),
            "answer": LETTERS[(right - turn) % len(options)], "category": "attribute_recognition",
            "l2-category": "finegrained_perception (instance-level)", "source": "charts", "comment": "", "split": "dev",
        }  # fmt: skip


def _chartqa(index: int, item: ChartQuestion) -> Iterator[Row]:
    yield {
        "question": item.question, "answer": item.answer, "split": "test_human" if index % 2 else "test_augmented",
    }  # fmt: skip


def _infovqa(index: int, item: ChartQuestion) -> Iterator[Row]:
    yield {"question": item.question, "answer": str([item.answer])}


def _realworldqa(index: int, item: ChartQuestion) -> Iterator[Row]:
    yield {"question": _head(item), **find_options(item.question), "answer": item.answer}


@dataclass(frozen=True)
class KitDataset:
    """A data set of the kit.

    Attributes:
        cls: its class there.
        rows: a question in its schema; MMBench has one row for each rotation.
        kinds: answer kinds that it has.
    """

    cls: str
    rows: Callable[[int, ChartQuestion], Iterator[Row]]
    kinds: tuple[str, ...]


KIT_DATASETS = {
    "POPE": KitDataset("ImageYORNDataset", _pope, ("yes_no",)),
    "MMMU_DEV_VAL": KitDataset("MMMUDataset", _mmmu, ("choice", "short")),
    "MMBench_DEV_EN": KitDataset("ImageMCQDataset", _mmbench, ("choice",)),
    "MMBench_DEV_EN_V11": KitDataset("ImageMCQDataset", _mmbench, ("choice",)),
    "ChartQA_TEST": KitDataset("ImageVQADataset", _chartqa, ("short", "yes_no")),
    "InfoVQA_VAL": KitDataset("ImageVQADataset", _infovqa, ("short",)),
    "RealWorldQA": KitDataset("ImageMCQDataset", _realworldqa, ("choice",)),
}


def write_kit_dataset(name: str, folder: Path, questions: Sequence[ChartQuestion], suffix: str = "_mini") -> Row:
    """Write questions as `NAME_mini.tsv`.

    Args:
        name: a key of `KIT_DATASETS`.
        folder: the kit's data folder, to be named by `LMUData` in the environment; made if it does not exist.
        questions: those whose kind the data set does not have are left out.
        suffix: behind the official name; "" for the official name, which the kit checks by MD5.

    Returns:
        Index of each row to its right answer, in the order of the rows.
    """
    dataset = KIT_DATASETS[name]
    kept = [question for question in questions if question.kind in dataset.kinds]
    table: list[Row] = []
    for number, question in enumerate(kept):
        for row in dataset.rows(number, question):
            entry = {"index": str(number), **row}
            # A short text in the place of an image is the index of the row that has it.
            entry["image"] = _png(question) if entry["index"] == str(number) else str(number)
            table.append(entry)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}{suffix}.tsv").open("w", newline="", encoding="utf-8") as stream:
        columns = list(dict.fromkeys(column for row in table for column in row))
        writer = csv.DictWriter(stream, columns, delimiter="\t", restval="")
        writer.writeheader()
        writer.writerows(table)
    return {row["index"]: row["answer"].strip("[]'") for row in table}


def main() -> None:
    """Write all data sets: `python -m mai_plugin.tiny.kit_datasets LMUData -n 200`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", type=int, default=200, help="number of charts")
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    charts = chart_questions(options.n, options.seed)
    for name in KIT_DATASETS:
        print(f"{options.folder / name}_mini.tsv: {len(write_kit_dataset(name, options.folder, charts))} rows")


def _head(item: ChartQuestion) -> str:
    """The question without its lines of options."""
    return item.question.split("\nA. ")[0]


def _png(item: ChartQuestion) -> str:
    file = io.BytesIO()
    item.image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    main()
