"""Speculative decoding: the text is the large model's own, and what the assistant drafted is counted right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.checkpoints import noise, random_internvl, random_qwen3_vl

from mai_plugin.core.records import Completion, Image, Message, Outcome, Request
from mai_plugin.engines.base import EngineError
from mai_plugin.engines.transformers import TransformersEngine
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import chart_questions

FAMILIES = {"qwen3-vl": random_qwen3_vl, "internvl": random_internvl}


def requests() -> list[Request]:
    texts = ("What is it?", "Why?\nThink step by step.", "a b c")
    one = [Request((Message("user", (Image(noise(n)), text)),), 12 + n, str(n)) for n, text in enumerate(texts)]
    two = Request((Message("user", (Image(noise(5)), Image(noise(6)), "And these?")),), 9, "3")
    turns = (Message("user", (Image(noise(7)), "Q")), Message("assistant", ("I think",)), Message("user", ("And?",)))
    return [*one, two, Request(turns, 20, "4"), Request((Message("user", ("No image",)),), 1, "5")]


def ask(engine: TransformersEngine) -> list[Completion]:
    async def gather() -> list[Completion]:
        return await asyncio.gather(*map(engine.generate, requests()))

    try:
        return asyncio.run(gather())
    finally:
        engine.close()


def load(folder: Path, **args: Any) -> TransformersEngine:
    return TransformersEngine(str(folder), num_threads=1, dtype="float32", **args)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_text_with_an_assistant(family: str, tmp_path: Path) -> None:
    large, small = FAMILIES[family](tmp_path / "large", 0), FAMILIES[family](tmp_path / "small", 1)
    plain = ask(load(large))
    assisted = ask(load(large, assistant_model=str(small), batch_size=8))
    assert [done.text for done in assisted] == [done.text for done in plain]
    assert [done.output_tokens for done in assisted] == [done.output_tokens for done in plain]
    assert [done.finish_reason for done in assisted] == [done.finish_reason for done in plain]
    assert all(0 < done.ttft_s <= done.e2e_s for done in assisted)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_accepts_all_that_it_drafts_itself(family: str, tmp_path: Path) -> None:
    folder = FAMILIES[family](tmp_path)
    for done in ask(load(folder, assistant_model=str(folder))):
        # Only an assistant that sees the image, at the right positions, drafts every token right.
        assert done.details["accepted_tokens"] == done.details["drafted_tokens"]
        assert done.details["drafted_tokens"] > 0 or done.output_tokens == 1


def test_an_assistant_of_another_family_is_refused(tmp_path: Path) -> None:
    qwen, internvl = random_qwen3_vl(tmp_path / "q"), random_internvl(tmp_path / "i")
    with pytest.raises(ValueError, match=r"is of another family than .*: model_type internvl against qwen3_vl"):
        load(qwen, assistant_model=str(internvl))
    with pytest.raises(ValueError, match="is of another vocabulary than"):
        load(qwen, assistant_model=str(SHIPPED_MODELS["mai-tiny-small"]))
    with pytest.raises(ValueError, match="no such folder"):
        load(qwen, assistant_model="/no/such")
    with pytest.raises(ValueError, match="an assistant model takes no argument 'dtyp'; it takes: device, dtype"):
        load(qwen, assistant_model=str(qwen), assistant_args={"num_threads": 1, "dtyp": "float16"})


def test_a_closed_engine_stops(tmp_path: Path) -> None:
    folder = random_qwen3_vl(tmp_path)
    engine = load(folder, assistant_model=str(folder))

    async def close_on_the_way() -> None:
        slow = Request((Message("user", (Image(noise()), "Tell me all.")),), 3000)
        task = asyncio.create_task(engine.generate(slow))
        await asyncio.sleep(0.5)
        await asyncio.get_running_loop().run_in_executor(None, engine.close)
        with pytest.raises(EngineError, match="is closed"):
            await task

    engine.end_tokens.clear()
    engine.model.generation_config.eos_token_id = None
    asyncio.run(close_on_the_way())


def test_the_tiny_pair() -> None:
    charts = chart_questions(12, 99)
    texts = {}
    for strategy, args in (
        ("single", {"model": "mai-tiny-large", "prompt": "R"}),
        ("speculative", {"preset": "MAI-tiny"}),
    ):
        more = {"dtype": "float32", "engine_args": {"num_threads": 1}, "store": "off", "max_reasoning_tokens": 96}
        settings = Settings.from_args(strategy, {**args, **more})  # type: ignore[arg-type]
        with Session(settings) as session:

            def item(chart: Any, session: Session = session) -> Item:
                message = Message(
                    "user", (Image(chart.image), f"{chart.question}\nAnswer the question with a single word.")
                )
                return Item(chart.id, lambda: session.question(chart.id, [message], 16))

            results, summary = session.run([item(chart) for chart in charts], progress=False)
        texts[strategy] = [result.final.text for result in results if isinstance(result, Outcome)]
    assert len(texts["single"]) == 12
    assert texts["single"] == texts["speculative"]
    assert 0 < summary.details["accepted_tokens"] < summary.details["drafted_tokens"]
    assert "drafted tokens accepted" in str(summary)
