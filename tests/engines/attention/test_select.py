"""Selections of the transformers engine: by the whole model, by its first layers, and beside another engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.checkpoints import noise, random_internvl, random_qwen3_vl
from transformers import AutoModelForImageTextToText

from mai_plugin.core.records import Completion, Image, Message, Outcome, Request, Sparse
from mai_plugin.engines.attention.reasoning import find_reasoning, smallest_set
from mai_plugin.engines.attention.select import Selection
from mai_plugin.engines.base import EngineError
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.engines.transformers import TransformersEngine
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings

FAMILIES = {"qwen3-vl": random_qwen3_vl, "internvl": random_internvl}
REASONING = "The red bar is 7 and the blue bar is 5, so both are 12.\nAnswer: 12"


def messages(reasoning: str = REASONING) -> tuple[Message, ...]:
    return (
        Message("user", (Image(noise()), "How many?\nThink step by step.")),
        Message("assistant", (reasoning,)),
        Message("user", ("So what is the answer?",)),
    )


def request(reasoning: str = REASONING, **sparse: Any) -> Request:
    return Request(messages(reasoning), 0, "q/0", "select", "select", sparse=Sparse(**sparse))


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[TransformersEngine]:
    loaded = TransformersEngine(str(folder), batch_size=8, num_threads=1, dtype="float32")
    yield loaded
    loaded.close()


def ask(engine: TransformersEngine, *requests: Request) -> list[Completion]:
    async def gather() -> list[Completion]:
        return await asyncio.gather(*map(engine.generate, requests))

    return asyncio.run(gather())


@pytest.mark.parametrize("layer", [0, 1, 0.5])
def test_what_eager_attention_would_select(engine: TransformersEngine, folder: Path, layer: float) -> None:
    (done,) = ask(engine, request(layer=layer))
    inputs = engine.inputs(messages())
    eager = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        matrix = eager(**inputs, output_attentions=True).attentions[1 if layer else 0]
    reasoning = find_reasoning(engine.processor, messages(), inputs["input_ids"][0].tolist())
    kept = smallest_set(reasoning.weights(matrix[0, :, -1].mean(0).tolist()), 0.8)
    assert done.text == reasoning.part(kept)
    assert done.details == {"full_tokens": len(reasoning.spans), "kept_tokens": len(kept)}
    assert 0 < len(kept) < len(reasoning.spans)
    assert (done.output_tokens, done.prompt_tokens) == (0, inputs["input_ids"].shape[1])


def test_as_many_others_by_chance_or_from_the_end(engine: TransformersEngine) -> None:
    attention, drawn, again, last = ask(
        engine, request(), request(by="random"), request(by="random"), request(by="last")
    )  # fmt: skip
    assert attention.details == drawn.details == last.details
    assert len({attention.text, drawn.text, last.text}) == 3
    assert drawn.text == again.text
    assert REASONING.endswith(last.text)


def test_to_keep_all_is_to_keep_the_text(engine: TransformersEngine) -> None:
    (done,) = ask(engine, request(keep=1.0))
    assert done.text == REASONING


def test_empty_reasoning_is_handed_on_as_it_is(engine: TransformersEngine) -> None:
    (done,) = ask(engine, request(" \n"))
    assert (done.text, done.details) == ("", {"full_tokens": 0, "kept_tokens": 0})


def test_selections_and_answers_wait_in_one_queue(engine: TransformersEngine) -> None:
    write = Request(messages(), 5, "q/0", "final")
    alone = [ask(engine, each)[0] for each in (request(), write)]
    mixed = ask(engine, request(), write, request(keep=0.5), write)
    assert [done.text for done in mixed[:2]] == [done.text for done in alone]
    assert mixed[3].text == mixed[1].text
    assert mixed[2].details["kept_tokens"] < mixed[0].details["kept_tokens"]


def test_a_layer_that_does_not_exist_is_named(engine: TransformersEngine) -> None:
    with pytest.raises(EngineError, match="layer=2 does not exist: the model has 2, counted from 0"):
        ask(engine, request(layer=2))


@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_layers_select_as_the_whole_model_does(
    engine: TransformersEngine, folder: Path, layer: int, caplog: pytest.LogCaptureFixture
) -> None:
    selector = TransformersEngine(str(folder), num_threads=1, dtype="float32", first_layers=layer)
    try:
        assert len(selector.model.language_model.layers) == layer + 1
        assert not hasattr(selector.model, "lm_head")
        assert ask(selector, request(layer=layer))[0].text == ask(engine, request(layer=layer))[0].text
        with pytest.raises(EngineError, match="only the first layers are loaded: it can select but not generate"):
            ask(selector, Request(messages(), 5, "q/0", "final"))
    finally:
        selector.close()
    assert "UNEXPECTED" not in caplog.text


def test_a_selector_beside_an_engine_without_attention(tmp_path: Path) -> None:
    """The large model may be anywhere; its first layers are here.  A second run takes the selection from the store."""
    args = {
        "small": "s", "large": "l", "engine": "scripted", "store": str(tmp_path), "transfer": "sparse",
        "selector": "mai-tiny-large", "layer": 2, "selector_args": {"dtype": "float32", "num_threads": 1},
    }  # fmt: skip
    large = ScriptedEngine({"*": {"S": "7", "final": "12"}})
    for attempt in range(2):
        settings = Settings.from_args("mutual_verification", args)
        engines = {"small": ScriptedEngine({"*": {"S": "8", "R": REASONING}}), "large": large}
        with Session(settings, engines) as session:  # type: ignore[arg-type]
            prompt = Message("user", (Image(noise()), "How many?\nAnswer the question with a single word."))
            item = Item("t/0", lambda session=session, prompt=prompt: session.question("t/0", [prompt], 16))
            (outcome,), summary = session.run([item], progress=False)
            if attempt == 0:
                selector = session.engines["selector"]
                assert isinstance(selector, TransformersEngine)
                assert selector.name == str(SHIPPED_MODELS["mai-tiny-large"])
            else:  # nothing is selected, and nothing loaded for it
                assert "selector" not in session.engines
        assert isinstance(outcome, Outcome)
        kept = outcome.calls[3]
        assert [call.role for call in outcome.calls] == ["small", "large", "small", "large", "large"]
        assert (kept.stage, kept.completion.reused) == ("select", attempt == 1)
        assert 0 < kept.completion.details["kept_tokens"] < kept.completion.details["full_tokens"]
        assert large.requests[-1].messages[1].text == kept.text
        assert summary.details == kept.completion.details
        assert "reasoning tokens transferred" in str(summary)
        assert summary.as_metrics()["kept_tokens"] == kept.completion.details["kept_tokens"]


@pytest.mark.parametrize("more", [{}, {"selector": "mai-tiny-large"}])
def test_a_layer_that_does_not_exist_is_refused_before_any_question_is_asked(more: dict[str, str]) -> None:
    args = {"preset": "MAI-tiny", "store": "off", "layer": 3, **more}
    with pytest.raises(ValueError, match="layer=3 does not exist: the model has 3, counted from 0"):
        Session(Settings.from_args("sparse_transfer", args))


def test_a_model_whose_layers_are_not_to_be_had_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(model: Any) -> None:
        raise ValueError("attention is not supported for it")

    monkeypatch.setattr("mai_plugin.engines.transformers.decoder_layers", none)
    with pytest.raises(ValueError, match="attention is not supported for it"):
        Session(Settings.from_args("mutual_verification", {"preset": "MAI-tiny", "store": "off", "transfer": "sparse"}))


def test_attention_that_is_no_number_selects_nothing(folder: Path) -> None:
    """As of a model that overflows in float16: it is an error, not all tokens."""
    engine = TransformersEngine(str(folder), num_threads=1, dtype="float32")
    with torch.no_grad():
        engine.model.model.language_model.layers[0].mlp.down_proj.weight.fill_(float("inf"))
    try:
        assert ask(engine, request(layer=0))[0].text
        with pytest.raises(EngineError, match=r"attention weights of layer 1 are not numbers \(NaN\)"):
            ask(engine, request(layer=1))
    finally:
        engine.close()


def test_a_closed_engine_makes_no_further_selection(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TransformersEngine(str(folder), num_threads=1, dtype="float32", batch_size=8)
    selections = []

    def slow(*args: Any) -> Selection:
        selections.append(args)
        engine._closed.set()
        return Selection("7", 1, 1)

    monkeypatch.setattr("mai_plugin.engines.transformers.select", slow)
    with pytest.raises(EngineError, match="is closed"):
        ask(engine, *[request()] * 5)
    assert len(selections) == 1
    engine.close()
