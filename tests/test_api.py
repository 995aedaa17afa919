"""The Python API: questions in, answers out, and frames."""

from __future__ import annotations

import doctest
import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage

import mai_plugin as mai
from mai_plugin.api import LETTER_REQUEST, SHORT_REQUEST
from mai_plugin.core.prompts import load_prompts
from mai_plugin.engines.base import EngineError
from mai_plugin.tiny.charts import chart_questions

TRANSFERRED = {"small": {"S": "7", "R": "Two bars.\nAnswer: 9"}, "large": {"S": "8", "final": "**9**"}}


def scripted(folder: Path, scripts: dict[str, dict[str, Any]] = TRANSFERRED, **arguments: Any) -> mai.Models:
    """Models that answer every question with a script's stages; `python/N` may have its own."""
    paths = {}
    for role, script in scripts.items():
        full = script if any(key == "*" or "/" in key for key in script) else {"*": script}
        paths[role] = folder / f"{role}.json"
        paths[role].write_text(json.dumps(full))
    return mai.open(engine="scripted", **{role: str(path) for role, path in paths.items()}, **arguments)


@pytest.fixture
def chart() -> PILImage.Image:
    return PILImage.new("RGB", (8, 8))


def prompt(pair: mai.Models, role: str = "small") -> mai.Message:
    """What a model was last asked."""
    return pair.session.engines[role].requests[-1].messages[-1]  # type: ignore[attr-defined, no-any-return]


def test_an_answer(tmp_path: Path, chart: PILImage.Image) -> None:
    timed = {
        "small": {"S": {"text": "7", "e2e_s": 0.02}, "R": {"text": "Two.\nAnswer: 9", "e2e_s": 0.1}},
        "large": {"S": {"text": "8", "e2e_s": 0.05}, "final": {"text": "**9**", "e2e_s": 0.03}},
    }
    with scripted(tmp_path, timed) as pair:
        answer = pair.ask("How many?", chart)
    assert (str(answer), answer.answer, answer.text, answer.route) == ("9", "9", "**9**", "transfer")
    assert [(call.role, call.stage) for call in answer.calls] == [
        ("small", "S"), ("large", "S"), ("small", "R"), ("large", "final"),
    ]  # fmt: skip
    assert answer.tokens == {"small": 4, "large": 2}
    assert answer.seconds == pytest.approx(0.05 + 0.1 + 0.03)


def test_the_tiny_pair_answers_a_chart() -> None:
    question = chart_questions(1, 5, {"value": 1.0})[0]
    with mai.open("MAI-tiny") as pair:
        assert pair.ask(question.question, question.image).answer == question.answer
    assert pair.session.settings.store is None


def test_images_come_first_in_their_order_whatever_they_are_given_as(tmp_path: Path, chart: PILImage.Image) -> None:
    chart.save(tmp_path / "red.png")
    with scripted(tmp_path) as pair:
        pair.ask("How many?", [tmp_path / "red.png", str(tmp_path / "red.png"), chart.convert("L")])
        content = prompt(pair).content
        assert [part.data.mode for part in content[:3] if isinstance(part, mai.Image)] == ["RGB"] * 3
        pair.ask("How many?")
        assert prompt(pair).images == ()


@pytest.mark.parametrize(
    ("text", "brief", "sent"),
    [
        ("How many?", True, f"How many?\n{SHORT_REQUEST}"),
        ("How many?", False, "How many?"),
        ("Which?\nA. red\nB. blue", True, f"Which?\nA. red\nB. blue\n{LETTER_REQUEST}"),
        ("How many?\nAnswer with a single number.", True, "How many?\nAnswer with a single number."),
        (f"How many?\n{SHORT_REQUEST}", True, f"How many?\n{SHORT_REQUEST}"),
    ],
)
def test_the_request_for_a_short_answer(tmp_path: Path, text: str, brief: bool, sent: str) -> None:
    same = {"small": {"S": "B"}, "large": {"S": "B"}}
    with scripted(tmp_path, same) as pair:
        pair.ask(text, brief=brief)
        assert prompt(pair).text == sent


def test_the_requests_are_known_ones() -> None:
    assert {SHORT_REQUEST, LETTER_REQUEST} <= set(load_prompts().brevity)


def test_many_questions_keep_their_order_and_failures_their_place(tmp_path: Path, chart: PILImage.Image) -> None:
    script = {"python/1": {"S": {"error": "out of memory"}}, **{f"python/{n}": {"S": str(n)} for n in (0, 2, 3)}}
    with scripted(tmp_path, {"small": script, "large": script}) as pair:
        found = pair.ask_all([("How many?", chart), ("How many?", chart), ("How many?", []), ("Why?", "none.png")])
        assert isinstance(found[1], mai.Failure)
        assert isinstance(found[1].error, EngineError)
        assert [str(found[place]) for place in (0, 2)] == ["0", "2"]
        assert "image 'none.png' cannot be read" in str(found[3])


def test_a_question_that_fails_raises(tmp_path: Path) -> None:
    with scripted(tmp_path, {"small": {"S": {"error": "out of memory"}}, "large": {"S": "1"}}) as pair:
        with pytest.raises(EngineError, match="out of memory"):
            pair.ask("How many?")
        with pytest.raises(ValueError, match="image of type int cannot be read"):
            pair.ask("How many?", 7)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="empty"):
            pair.ask(" ")


def test_a_strategy_of_ones_own_from_a_file_and_as_a_function(tmp_path: Path) -> None:
    async def ask_judge(question: mai.Question, judge: mai.Agent, times: int = 1) -> mai.Outcome:
        call = await judge.ask(question, "S")
        return mai.Outcome(question.id, f"judged-{times}", call, (call,))

    ask_judge.__annotations__ = {"question": mai.Question, "judge": mai.Agent, "times": int, "return": mai.Outcome}
    (tmp_path / "mine.py").write_text(
        "from mai_plugin import Agent, Outcome, Question\n"
        "async def judged(question: Question, judge: Agent, times: int = 1) -> Outcome:\n"
        "    call = await judge.ask(question, 'S')\n"
        "    return Outcome(question.id, f'judged-{times}', call, (call,))\n"
    )
    for strategy in (ask_judge, f"{tmp_path}/mine.py:judged"):
        with scripted(tmp_path, {"judge": {"S": "5"}}, strategy=strategy, times=3) as models:
            answer = models.ask("How many?")
        assert (answer.answer, answer.route, answer.tokens) == ("5", "judged-3", {"judge": 1})


def test_models_that_are_closed(tmp_path: Path) -> None:
    pair = scripted(tmp_path)
    assert repr(pair) == f"<small+large-MAI: small={tmp_path}/small.json, large={tmp_path}/large.json>"
    pair.close()
    pair.close()
    assert repr(pair).endswith(", closed>")
    with pytest.raises(ValueError, match="the session is closed"):
        pair.ask("How many?")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_new_tokens": 0}, "argument max_new_tokens=0 must be a whole number, at least 1"),
        ({"preset": "MAI-tinny"}, "unknown preset 'MAI-tinny' .did you mean 'MAI-tiny'"),
        ({"small": "a"}, "argument 'large' is missing"),
        ({"model": "a", "promt": "S"}, "unknown argument 'promt'"),
    ],
)
def test_a_wrong_argument(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        mai.open(**arguments)


def test_a_store_holds_the_calls_and_the_runs(tmp_path: Path) -> None:
    with scripted(tmp_path, store=tmp_path / "runs") as pair:
        first = pair.ask("How many?")
        pair.ask_all([("How many?", ())] * 2)
    single, many = mai.load_runs(tmp_path / "runs")
    assert (len(single.samples), len(many.samples), single.finished, many.finished) == (1, 2, True, True)
    assert single.environment["harness"] == "python"
    assert single.samples[first.question_id].returned == first.answer == "9"


def test_frames_of_answers_and_of_a_stored_run(tmp_path: Path) -> None:
    script = {"python/1": {"S": {"error": "out of memory"}}, "*": {"S": "4", "R": "Four.\nAnswer: 4", "final": "4"}}
    with scripted(
        tmp_path, {"small": script, "large": {"*": {"S": "5", "final": "4"}}}, store=tmp_path / "runs"
    ) as pair:
        found = pair.ask_all([("How many?", ())] * 3)
    (run,) = mai.load_runs(tmp_path / "runs")
    for questions, calls in (mai.to_frame(found), mai.to_frame(run)):
        assert list(questions["question_id"]) == ["python/0", "python/1", "python/2"]
        assert list(questions["calls"]) == [4, 0, 4]
        assert list(questions["answer"].fillna("none")) == ["4", "none", "4"]
        assert list(questions["route"].fillna("none")) == ["transfer", "none", "transfer"]
        assert "out of memory" in questions["error"][1]
        assert list(calls["stage"]) == ["S", "S", "R", "final"] * 2
        assert calls.merge(questions, on="question_id")["output_tokens_x"].sum() == questions["output_tokens"].sum()


def test_frames_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ValueError, match="to_frame needs pandas: pip install pandas"):
        mai.to_frame([])


def test_a_strategy_that_returns_nothing_fails_by_question(tmp_path: Path) -> None:
    async def forgets(question: Any, judge: Any) -> None:
        await judge.ask(question, "S")

    forgets.__annotations__ = {"judge": mai.Agent}
    with scripted(tmp_path, {"judge": {"S": "5"}}, strategy=forgets) as models:
        (found,) = models.ask_all([("How many?", ())])
    assert "the strategy returned NoneType, expected an Outcome" in str(found)


def test_the_page_s_examples_print_what_it_says() -> None:
    page = (Path(__file__).parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "__main__"}
    examples = doctest.DocTestParser().get_examples("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    for example in examples:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(example.source, "python.md", "single"), scope)
        assert untimed(printed.getvalue()) == untimed(example.want)
    assert len(examples) > 10


def untimed(text: str) -> str:
    return re.sub(r"seconds=[\d.]+", "seconds=", text)
