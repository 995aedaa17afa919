"""The stock scorers of VLMEvalKit give full marks to a right answer in whatever style a model writes it."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.styles import STYLES
from PIL import Image as PILImage

from mai_plugin.core.answers import extract
from mai_plugin.core.records import Kind

OPTIONS = {"A": "red", "B": "blue", "C": "green", "D": "black"}
GROUPS = {"category": "Math", "l2-category": "Math"}
Row = tuple[str, str, dict[str, str]]

# data set: class, kind, rows of question, answer and further columns, full marks
CASES: dict[str, tuple[str, Kind, list[Row], float]] = {
    "POPE_mini": ("ImageYORNDataset", "yes_no", [("A dog?", "Yes", {"category": "random"}), ("A cat?", "No", {"category": "random"})], 100),
    "ChartQA_TEST_mini": ("ImageVQADataset", "short", [("How many?", "12", {"split": "test_human"}), ("Who?", "Paris", {"split": "test_human"})], 100),
    "InfoVQA_VAL_mini": ("ImageVQADataset", "short", [("How many?", "['12']", {}), ("Who?", "['Paris']", {})], 100),
    "RealWorldQA_mini": ("ImageMCQDataset", "choice", [("Which?", "B", OPTIONS), ("And which?", "D", OPTIONS)], 1),
    "MMBench_DEV_EN_mini": ("ImageMCQDataset", "choice", [("Which?", "B", {**OPTIONS, **GROUPS, "split": "dev"}), ("And which?", "D", {**OPTIONS, **GROUPS, "split": "dev"})], 1),
    "MMMU_DEV_VAL_mini": ("MMMUDataset", "choice", [("Which?", "B", {**OPTIONS, **GROUPS, "split": "validation"}), ("And which?", "D", {**OPTIONS, **GROUPS, "split": "validation"})], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_styles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LMUData", str(tmp_path))
    import vlmeval.dataset

    torch.set_grad_enabled(True)  # the kit's import switches it off for the whole process

    cls, kind, rows, full = CASES[name]
    picture = io.BytesIO()
    PILImage.new("RGB", (16, 16)).save(picture, "PNG")
    image = base64.b64encode(picture.getvalue()).decode()
    with (tmp_path / f"{name}.tsv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["index", "image", "question", "answer", *rows[0][2]], delimiter="\t")
        writer.writeheader()
        for index, (question, answer, columns) in enumerate(rows):
            writer.writerow({"index": index, "image": image, "question": question, "answer": answer, **columns})
    dataset: Any = getattr(vlmeval.dataset, cls)(dataset=name)
    for style, template in STYLES.items():
        returned = []
        for _, answer, _ in rows:
            right = answer.strip("[]'")
            wrong = {"Yes": "No", "No": "Yes", "B": "A", "D": "A"}.get(right, "42")
            text = template.format(right=right, wrong=wrong)
            returned.append(extract(text, kind, OPTIONS if kind == "choice" else None) or text)
        file = tmp_path / f"{style}.xlsx"
        dataset.data.drop(columns="image").assign(prediction=returned).to_excel(file, index=False)
        scores = dataset.evaluate(str(file), model="exact_matching", nproc=1)
        assert scores["Overall"][0] == full, style
