"""Charts as VLMEvalKit's TSV files: every row, its image, and MMBench's rotations."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path

import pytest
from PIL import Image as PILImage

from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.kit_datasets import KIT_DATASETS, ROTATION, write_kit_dataset

CHARTS = chart_questions(20, 3, {"choice": 0.4, "value": 0.3, "taller": 0.3})


def read(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**9)
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


@pytest.mark.parametrize("name", KIT_DATASETS)
def test_all_rows_have_an_answer_and_an_image(tmp_path: Path, name: str) -> None:
    answers = write_kit_dataset(name, tmp_path / "new", CHARTS)
    rows = read(tmp_path / "new" / f"{name}_mini.tsv")
    images = {row["index"]: row["image"] for row in rows}
    charts = [chart for chart in CHARTS if chart.kind in KIT_DATASETS[name].kinds]
    assert len(charts) == len({int(row["index"]) % ROTATION for row in rows}) > 2
    for row in rows:
        assert answers[row["index"]] == row["answer"].strip("[]'")
        encoded = images.get(row["image"], row["image"])  # MMBench's rotations name the row that has it
        picture = PILImage.open(io.BytesIO(base64.b64decode(encoded)))
        assert picture.tobytes() == charts[int(row["index"]) % ROTATION].image.tobytes()


def test_rotations_keep_the_right_option(tmp_path: Path) -> None:
    write_kit_dataset("MMBench_DEV_EN", tmp_path, CHARTS, suffix="")
    rows = read(tmp_path / "MMBench_DEV_EN.tsv")
    groups: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(int(row["index"]) % ROTATION, []).append(row)
    for group in groups.values():
        options = [[row[letter] for letter in "ABCD" if row[letter]] for row in group]
        assert len(group) == len(options[0])
        assert len({row[row["answer"]] for row in group}) == 1
        assert len({tuple(order) for order in options}) == len(group)
        assert all(sorted(order) == sorted(options[0]) for order in options)
