"""The scripted engine: answers, wildcards, counts, errors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mai_plugin.core.records import Message, Request
from mai_plugin.engines.base import EngineError, load_engine
from mai_plugin.engines.scripted import ScriptedEngine


def request(question_id: str, stage: str) -> Request:
    return Request((Message("user", ("How many bars",)),), 16, question_id, stage)


def test_answers_by_question_and_stage_with_wildcards(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"a": {"S": "7", "*": "eight"}, "*": {"R": "so\nAnswer: 9"}}))
    engine = load_engine("scripted", str(file), {})
    answers = [asyncio.run(engine.generate(request(*key))).text for key in [("a", "S"), ("a", "R"), ("b", "R")]]
    assert answers == ["7", "eight", "so\nAnswer: 9"]


def test_counts_words_unless_the_script_counts() -> None:
    engine = ScriptedEngine(
        {"*": {"S": "two words", "R": {"text": "x", "output_tokens": 40, "finish_reason": "length"}}}
    )
    s, r = (asyncio.run(engine.generate(request("a", stage))) for stage in "SR")
    assert (s.prompt_tokens, s.output_tokens, s.finish_reason) == (3, 2, "stop")
    assert (r.output_tokens, r.finish_reason) == (40, "length")


def test_takes_the_time_that_the_script_says() -> None:
    engine = ScriptedEngine({"*": {"S": {"text": "x", "e2e_s": 0.03, "ttft_s": 0.01}}})
    done = asyncio.run(engine.generate(request("a", "S")))
    assert (done.ttft_s, done.e2e_s) == (0.01, 0.03)


def test_errors_are_named(tmp_path: Path) -> None:
    engine = ScriptedEngine({"a": {"S": {"error": "out of memory"}}})
    with pytest.raises(EngineError, match="out of memory"):
        asyncio.run(engine.generate(request("a", "S")))
    with pytest.raises(EngineError, match="no answer for stage 'R' of 'a'"):
        asyncio.run(engine.generate(request("a", "R")))
    for content in ("{", '{"a": 1}', "[]"):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(ValueError, match="script"):
            ScriptedEngine(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="script"):
        ScriptedEngine(tmp_path / "missing.json")


def test_loading_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="unknown engine 'vlm'; engines are: transformers"):
        load_engine("vlm", "x", {})
    with pytest.raises(ValueError, match="engine 'scripted' takes no argument 'dtype'; it takes: latency_s"):
        load_engine("scripted", "x", {"dtype": "float32"})


def test_hints_give_way_and_are_dropped_where_an_engine_has_no_use_for_them(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text("{}")
    engine = load_engine(
        "scripted", str(tmp_path / "script.json"), {"latency_s": 2.0}, {"batch_size": 4, "latency_s": 1.0}
    )
    assert isinstance(engine, ScriptedEngine)
    assert engine.latency_s == 2.0
