"""A pair over a few questions, on tiny checkpoints of both families and on the tiny pair."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import astuple, replace
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.checkpoints import random_internvl, random_qwen3_vl

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion
from mai_plugin.engines.attention.select import select
from mai_plugin.engines.transformers import TransformersEngine
from mai_plugin.output.files import Outputs
from mai_plugin.settings import Settings
from mai_plugin.study.attention.command import as_json, notes, tables, write
from mai_plugin.study.attention.measures import ANSWER
from mai_plugin.study.attention.plots import pictures
from mai_plugin.study.attention.questions import Asked, Questions, chart_set
from mai_plugin.study.attention.study import run_study

SHARED = {"engine_args": {"num_threads": 1, "dtype": "float32"}, "batch_size": 8}


def settings(**args):
    return Settings.from_args("transfer", {"store": "off", **SHARED, **args})


@pytest.fixture(scope="module")
def tiny():
    return run_study(settings(preset="MAI-tiny"), chart_set(30, 4321), progress=False)


@pytest.mark.parametrize("make", [random_qwen3_vl, random_internvl], ids=["qwen3-vl", "internvl"])
def test_both_families_end_to_end(make, tmp_path):
    pair = {role: str(make(tmp_path / role, seed)) for seed, role in enumerate(("small", "large"))}
    study = run_study(settings(**pair, max_reasoning_tokens=12), chart_set(3, 1), progress=False)
    assert study.n == 3
    assert not study.toy
    for reading in study.readings.values():
        assert len(reading.looks) == 3
        for look in reading.looks:
            assert look.head_set_size.shape == (2, 2)
            assert 1 <= look.head_set_size.min() <= look.head_set_size.max() <= look.tokens
    for reading in study.example.readings.values():
        assert reading.weights.shape == (2, len(reading.tokens))
        np.testing.assert_allclose(reading.weights.sum(-1), 1)
    assert study.same < 3  # the two models write other nonsense
    assert all(table.rows for table in tables(study)[:2])
    assert [len(picture.svg()) > 5000 for picture in pictures(study)] == [True] * 3
    json.dumps(as_json(study), allow_nan=False)


def test_the_same_attention_as_sparse_transfer_selects_by():
    """Layer by layer, of the prompt that transfer asks with."""
    questions = chart_set(2, 7)
    study = run_study(settings(preset="MAI-tiny"), questions, keep=0.6, progress=False)
    engine = TransformersEngine(settings(preset="MAI-tiny").models["large"].source, device="cpu")
    for asked, look in zip(questions.asked, study.readings["large"].looks, strict=True):
        question = Question.from_messages(asked.id, asked.messages(), 16, load_prompts())
        messages = question.asking(load_prompts().wording("R", question.kind))
        inputs = engine.inputs(messages)
        written = engine.model.generate(**inputs, max_new_tokens=100, do_sample=False)
        text = engine.tokenizer.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        reasoning = Call("large", "R", Completion(text), None)
        prompt = Agent("large", engine.generate, load_prompts()).messages_after(question, reasoning)
        assert [message.role for message in prompt] == ["user", "assistant", "user"]
        inputs = engine.inputs(prompt)
        for layer in range(3):
            kept = select(engine.model, engine.processor, prompt, inputs, layer, 0.6)
            assert astuple(kept)[1:] == (look.set_size[layer], look.tokens)
    engine.close()


def test_the_tiny_pair_looks_at_its_answer(tiny):
    """In the first layer the answer that the reasoning states ranks far above chance."""
    assert tiny.toy
    for reading in tiny.readings.values():
        assert reading.answered == tiny.n == 30
        answer = reading.layers()[0].groups[ANSWER]
        assert answer.lift > 1.5
        assert answer.rank < answer.chance_rank / 2


def test_tables_and_notes(tiny):
    shares, tokens, groups, tasks = tables(tiny)
    assert [row[0] for row in shares.rows] == ["0", "1", "2", "paper, 8B, layer 1", "paper, 8B, layer 6"]
    assert shares.rows[3][1:3] == (45.0, 54)
    assert shares.rows[4][5:7] == (None, None)
    layer = tiny.readings["large"].layers()[1]
    assert shares.rows[1][5:7] == (100 * layer.share, layer.tokens)
    assert len(tokens.rows) == 3
    assert len(groups.rows) == 6
    assert sum(row[2] for row in tasks.rows) == 60
    assert all(any("TOY" in note for note in table.notes) for table in tables(tiny))
    assert any("30 generated bar charts of seed 4321, 30 measured" in note for note in notes(tiny))


def test_json(tiny):
    content = as_json(tiny)
    assert {"models", "questions", "n", "keep", "toy", "left_out", "readings", "example", "paper"} <= set(content)
    assert content["models"] == {"small": "mai-tiny-small", "large": "mai-tiny-large"}
    assert list(content["readings"]) == ["large + small-R", "large + large-R"]
    for reading in content["readings"].values():
        assert [layer["layer"] for layer in reading["layers"]] == [0, 1, 2]
        for layer in reading["layers"]:
            assert {"share_mean", "tokens_mean", "per_head", "top_tokens", "answer_lift", "groups"} <= set(layer)
            assert len(layer["per_head"]) == 4
            assert len(layer["top_tokens"]) == 5
            assert 0 < layer["share_mean"] < 1 < layer["tokens_mean"]
    example = content["example"]["readings"]["large + small-R"]
    assert len(example["tokens"]) == len(example["weights"][0])
    json.dumps(content, allow_nan=False)


def test_files(tiny, tmp_path):
    outputs = Outputs(tmp_path / "new" / "a.json", tmp_path / "csv", plots=tmp_path / "plots")
    outputs.prepare()
    written = write(tiny, outputs)
    assert json.loads((tmp_path / "new" / "a.json").read_text())["n"] == 30
    assert len(list((tmp_path / "csv").glob("*.csv"))) == 4
    drawn = [path for path in written if path.parent == tmp_path / "plots"]
    assert Counter(path.suffix for path in drawn) == {".png": 3, ".svg": 3}
    assert all(path.stat().st_size > 5000 for path in drawn)
    assert "TOY" in tiny_caption(tiny)


def tiny_caption(study):
    return " ".join(picture.caption for picture in pictures(study))


def test_strange_characters_are_drawn(tiny):
    """What matplotlib would take for mathematics, and what no XML may hold."""
    readings = {
        role: replace(reading, tokens=["\x05", "$x_{", "\x1e", *reading.tokens[3:]])
        for role, reading in tiny.example.readings.items()
    }
    strange = replace(tiny.example, question="costs $5 and $x_{ \x05 ?", readings=readings)
    for picture in pictures(replace(tiny, example=strange)):
        assert ElementTree.fromstring(picture.svg()).tag.endswith("svg")


def test_calls_are_kept_and_reused_and_no_run_is_written(tmp_path, monkeypatch):
    args = settings(preset="MAI-tiny", store=str(tmp_path / "calls.sqlite"))
    first = run_study(args, chart_set(4, 2), progress=False)

    async def refuse(self, request):
        raise AssertionError("a call was made")

    monkeypatch.setattr(TransformersEngine, "generate", refuse)
    second = run_study(args, chart_set(4, 2), progress=False)
    assert as_json(first) == as_json(second)
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as file:
        assert dict(file.execute("SELECT stage, COUNT(*) FROM calls GROUP BY stage")) == {"R": 8}
        assert file.execute("SELECT COUNT(*) FROM runs").fetchone() == (0,)


def test_what_cannot_be_measured_is_said(monkeypatch, capsys):
    """An image that does not decode, reasoning that is empty, reasoning that the limit cut."""
    generate = TransformersEngine.generate

    async def sometimes_empty(self, request):
        done = await generate(self, request)
        return replace(done, text=" \n") if request.question_id == "chart-3-1" and "small" in self.name else done

    def broken():
        raise ValueError("does not decode")

    monkeypatch.setattr(TransformersEngine, "generate", sometimes_empty)
    charts = chart_set(4, 3)
    asked = (*charts.asked, Asked("bad/1", "bad", broken, 16))
    study = run_study(
        settings(preset="MAI-tiny", max_reasoning_tokens=5), Questions("some", asked), progress=False
    )  # fmt: skip
    assert study.left_out == {
        "chart-3-1": "the reasoning of the small model is empty", "bad/1": "does not decode",
    }  # fmt: skip
    assert study.n == len(study.readings["large"].looks) == 3
    said = " ".join(notes(study))
    assert "2 of 5 questions are left out, for both readings: 1: " in said
    assert "3 cut by the limit" in said
    errors = capsys.readouterr().err
    assert "question chart-3-1 is left out: the reasoning of the small model is empty" in errors
    assert errors.count("bad/1") == 1


def test_nothing_measured_is_an_error(monkeypatch):
    async def fail(self, request):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(TransformersEngine, "generate", fail)
    with pytest.raises(
        ValueError, match="none of 2 questions could be measured; first: question chart-1-0: out of mem"
    ):
        run_study(settings(preset="MAI-tiny"), chart_set(2, 1), progress=False)


def test_a_prompt_that_does_not_fit_is_left_out(monkeypatch):
    """The reasoning's request still fits, the longer prompt with the reasoning in it does not."""
    generate = TransformersEngine.generate

    async def then_shrink(self, request):
        done = await generate(self, request)
        self.context = done.prompt_tokens + 5
        return done

    monkeypatch.setattr(TransformersEngine, "generate", then_shrink)
    with pytest.raises(ValueError, match="do not fit the context"):
        run_study(settings(preset="MAI-tiny", concurrency=1), chart_set(1, 1), progress=False)
