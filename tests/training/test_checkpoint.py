"""Checkpoints: the folder is a normal one, and the shipped pair answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
import transformers

from mai_plugin.tiny import LARGE, SMALL
from mai_plugin.tiny.charts import chart_questions, draw_item, solve
from training.answering import Answerer
from training.batches import BatchMaker, Recipe, build_tokenizer
from training.checkpoint import Size, build_config, build_model, write_checkpoint
from training.evaluate import SCORES, forms, measure
from training.learning import Hints, Schedule, Trainer
from training.wording import FORMS, asking_text, one_turn, two_turns


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


def trained_for_a_moment(folder: Path) -> bytes:
    tokenizer = build_tokenizer()
    model = build_model(build_config(tokenizer, Size(64, 1, 2)), seed=0)
    schedule = Schedule(steps=2, rate=1e-3, flat_share=0.5, hints=Hints(0.5, 0.5), rows=2)
    Trainer(model, 1, lambda line: None).learn(BatchMaker(tokenizer, Recipe("SRF", 1.0, 1.0)), schedule)
    write_checkpoint(folder, model, tokenizer)
    return (folder / "model.safetensors").read_bytes()


def test_training_repeats_to_the_last_bit(tmp_path: Path) -> None:
    assert trained_for_a_moment(tmp_path / "one") == trained_for_a_moment(tmp_path / "two")


def test_folder_holds_what_engines_read(tmp_path: Path) -> None:
    trained_for_a_moment(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    assert text["rope_parameters"]["mrope_section"] == text["rope_scaling"]["mrope_section"]
    assert sum(text["rope_scaling"]["mrope_section"]) == text["head_dim"] // 2
    assert text["max_position_embeddings"] == 4096
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert rendered == one_turn("What?").replace("<|image_pad|>" * 12, "<|image_pad|>")
    assert tokenizer.encode("<|im_end|>") == [tokenizer.eos_token_id]


def test_shipped_pair_is_small() -> None:
    files = [file for folder in (SMALL, LARGE) for file in folder.rglob("*")]
    assert sum(file.stat().st_size for file in files) < 12 * 2**20


@pytest.mark.parametrize(("form", "least"), [("large-S", 60), ("small-R", 85), ("MAI", 80)])
def test_shipped_pair_answers(form: str, least: int) -> None:
    """Through the package's own strategies and engine, on charts that no other seed draws."""
    measured = measure(forms(SMALL, LARGE)[form], chart_questions(60, 2024), form.partition("-")[0])
    assert measured["score"] > least


def test_recorded_scores_show_what_the_pair_is_for() -> None:
    """On every training and chart seed: reasoning beats short answers, large beats small, MAI gains at less cost."""
    recorded = json.loads(SCORES.read_text())
    for run in recorded["runs"]:
        score = {name: row["score"] for name, row in run["rows"].items()}
        tokens = {name: row["output_tokens"] for name, row in run["rows"].items()}
        assert score["small-S"] + 5 < score["small-R-S2"]
        assert score["small-S"] + 5 < score["large-S"]
        assert score["large-S"] + 3 < score["large-R"]
        assert score["transfer"] >= score["large-S"] + 2
        assert score["MAI"] >= score["large-S"] + 10
        assert sum(tokens["MAI"].values()) <= 0.8 * tokens["large-R"]["large"]
        assert tokens["MAI"]["large"] <= 0.2 * tokens["large-R"]["large"]
    assert {run["training_seed"] for run in recorded["runs"]} == {0, 1}
    assert recorded["MAI"] == recorded["runs"][0]["rows"]["MAI"]["score"]


def test_large_corrects_a_wrong_rationale() -> None:
    chart, problem = next(item for item in (draw_item(11, i) for i in range(100)) if item[1].task == "value")
    answer = int(solve(problem, chart.heights).answer)
    wrong = answer % 9 + 1
    name = problem.colours[0]
    chat = two_turns(
        asking_text(problem, FORMS["short"][0], "reason"), f"{name} {wrong}.\nAnswer: {wrong}", problem.kind
    )
    assert Answerer(LARGE).answer([chat], [chart.pixels], limit=6)[0].text == str(answer)


def test_checkpoints_load_with_the_auto_class() -> None:
    for folder in (SMALL, LARGE):
        model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        assert model.config.model_type == "qwen3_vl"
        assert model.generation_config.eos_token_id[0] == model.config.text_config.eos_token_id
