"""Stem, kind and options of VLMEvalKit's real prompts, built by its own data set classes."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as PILImage

from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Part

OPTIONS = {"A": "red", "B": "blue", "C": "green", "D": "black"}
SELECT = "Please select the correct answer from the options above. \n"
WORD = "\nAnswer the question using a single word or phrase."
LISTED = "Options:\nA. red\nB. blue\nC. green\nD. black"

# data set: class, question, its further columns, stem, request, kind
CASES: dict[str, tuple[str, str, dict[str, str], str, str, str]] = {
    "POPE_mini": ("ImageYORNDataset", "Is there a dog in the image?", {"category": "random"}, "Is there a dog in the image?", "", "yes_no"),
    "ChartQA_TEST_mini": ("ImageVQADataset", "How many bars?", {"split": "test_human"}, "How many bars?", WORD, "short"),
    "InfoVQA_VAL_mini": ("ImageVQADataset", "Who wrote it?", {}, "Who wrote it?", WORD, "short"),
    "RealWorldQA_mini": ("ImageMCQDataset", "Which way?", OPTIONS, f"Question: Which way?\n{LISTED}", "\n" + SELECT, "choice"),
    "MMBench_DEV_EN_mini": ("ImageMCQDataset", "Which bar?", {**OPTIONS, "hint": "A chart."}, f"Hint: A chart.\nQuestion: Which bar?\n{LISTED}", "\n" + SELECT, "choice"),
    "MMMU_DEV_VAL_mini": ("MMMUDataset", "Look at <image 1> and say.", OPTIONS, f"and say.\n{LISTED}", "\n" + SELECT, "choice"),
}  # fmt: skip


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kit, with data of ours in its folder of TSV files."""
    folder = tmp_path_factory.mktemp("LMUData")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMUData", str(folder))
        file = io.BytesIO()
        PILImage.new("RGB", (16, 16), (200, 30, 30)).save(file, "PNG")
        for name, (_, question, columns, *_) in CASES.items():
            row = {
                "index": "0",
                "image": base64.b64encode(file.getvalue()).decode(),
                "question": question,
                "answer": "A",
                **columns,
            }
            with (folder / f"{name}.tsv").open("w", newline="") as stream:
                writer = csv.DictWriter(stream, row.keys(), delimiter="\t")
                writer.writeheader()
                writer.writerow(row)
        import vlmeval.dataset

        torch.set_grad_enabled(True)  # the kit's import switches it off for the whole process

        yield vlmeval.dataset


@pytest.mark.parametrize("name", CASES)
def test_prompt(kit: Any, name: str) -> None:
    cls, _, _, stem, request, kind = CASES[name]
    dataset = getattr(kit, cls)(dataset=name)
    built = dataset.build_prompt(0)
    content: list[Part] = [Image(part["value"]) if part["type"] == "image" else part["value"] for part in built]
    assert Path(content[0].data if isinstance(content[0], Image) else content[1].data).is_file()  # type: ignore[union-attr]
    question = Question.from_messages("x/0", [Message("user", tuple(content))], 16, load_prompts())
    assert question.messages[0].content == tuple(content)
    last = question.stem[0].content[-1]
    assert isinstance(last, str)
    assert last.strip() == stem
    assert str(content[-1]).strip() == (last + request).strip()
    assert (question.kind, question.known) == (kind, True)
    assert question.options == (OPTIONS if kind == "choice" else {})
