"""Which calls each strategy makes, with what prompts, and which answer it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from mai_plugin.core import strategies
from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Outcome, Sparse, Usage
from mai_plugin.engines.scripted import ScriptedEngine

PROMPTS = load_prompts()
PICTURE = Image("a picture")
PROMPT = "How many bars?\nAnswer the question with a single word."
QUESTION = Question.from_messages("q/0", [Message("user", (PICTURE, PROMPT))], 16, PROMPTS)


def agents(small: dict[str, object], large: dict[str, object]) -> tuple[Agent, Agent, ScriptedEngine, ScriptedEngine]:
    engines = ScriptedEngine({"*": small}), ScriptedEngine({"*": large})
    first, second = (
        Agent(role, engine.generate, PROMPTS, 100) for role, engine in zip(("small", "large"), engines, strict=True)
    )
    return first, second, *engines


def stages(outcome: Outcome) -> list[tuple[str, str]]:
    return [(call.role, call.stage) for call in outcome.calls]


def run(outcome: Awaitable[Outcome]) -> Outcome:
    async def wait() -> Outcome:
        return await outcome

    return asyncio.run(wait())


def test_equal_short_answers_are_accepted() -> None:
    small, large, _, _ = agents({"S": "7."}, {"S": "7"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    assert (outcome.route, outcome.answer) == ("agree-simple", "7")
    assert stages(outcome) == [("small", "S"), ("large", "S")]


def test_reasoning_that_confirms_the_large_answer_is_accepted() -> None:
    small, large, _, _ = agents({"S": "8", "R": "3 and 4.\nAnswer: 7"}, {"S": "7"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    assert (outcome.route, outcome.answer) == ("agree-reason", "7")
    assert stages(outcome) == [("small", "S"), ("large", "S"), ("small", "R")]


def test_else_the_large_model_answers_after_reading_the_reasoning() -> None:
    reasoning = "3 and 4 <|im_end|>.\nAnswer: 9"
    small, large, _, large_engine = agents({"S": "8", "R": reasoning}, {"S": "7", "final": "**9**"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    assert (outcome.route, outcome.answer) == ("transfer", "9")
    assert stages(outcome) == [("small", "S"), ("large", "S"), ("small", "R"), ("large", "final")]
    simple, final = large_engine.requests
    assert simple.messages == QUESTION.messages
    assert simple.max_tokens == final.max_tokens == 16
    asked, read, again = final.messages
    assert asked == Message("user", (PICTURE, f"How many bars?\n{PROMPTS.reason['short']}"))
    assert read == Message("assistant", ("3 and 4 < |im_end|>.\nAnswer: 9",))
    assert again == Message("user", (PROMPTS.final["short"],))


@pytest.mark.parametrize("empty", ["", "   ", "**"])
def test_empty_answers_agree_with_nothing(empty: str) -> None:
    small, large, _, _ = agents({"S": empty, "R": empty}, {"S": empty, "final": empty})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    assert outcome.route == "transfer"
    assert not outcome.answered
    assert outcome.answer == empty.strip()


def test_both_short_answers_are_asked_at_the_same_time() -> None:
    small, large, small_engine, large_engine = agents(
        {"S": {"text": "7", "e2e_s": 0.05}}, {"S": {"text": "7", "e2e_s": 0.05}}
    )

    async def peek() -> tuple[int, int]:
        task = asyncio.ensure_future(strategies.mutual_verification(QUESTION, small, large))
        await asyncio.sleep(0.01)
        seen = len(small_engine.requests), len(large_engine.requests)
        await task
        return seen

    assert asyncio.run(peek()) == (1, 1)


def test_an_agreement_of_ones_own() -> None:
    small, large, _, _ = agents({"S": "8"}, {"S": "7"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large, agreement=lambda a, b, kind: True))
    assert (outcome.route, outcome.answer) == ("agree-simple", "7")


def test_sparse_transfer_hands_on_what_the_large_model_selects() -> None:
    reasoning = "3 and 4 <|im_end|>.\nAnswer: 9"
    small, large, _, engine = agents({"S": "8", "R": reasoning}, {"S": "7", "select": "4 <|im_end|> 9", "final": "9"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large, transfer="sparse"))
    assert (outcome.route, outcome.answer) == ("sparse-transfer", "9")
    assert stages(outcome) == [
        ("small", "S"), ("large", "S"), ("small", "R"), ("large", "select"), ("large", "final"),
    ]  # fmt: skip
    _, select, final = engine.requests
    assert (select.sparse, select.max_tokens) == (Sparse(), 0)
    assert (final.sparse, final.max_tokens) == (None, 16)
    # It looks at the very prompt of a full transfer, and then reads the part in the reasoning's place.
    assert select.messages[1].text == "3 and 4 < |im_end|>.\nAnswer: 9"
    assert final.messages[1].text == "4 < |im_end|> 9"
    assert (select.messages[0], select.messages[2]) == (final.messages[0], final.messages[2])
    assert outcome.usage("large").output_tokens == 2
    assert outcome.usage("large").reasoning_tokens == 0


def test_a_sparse_cascade_that_agrees_selects_nothing() -> None:
    small, large, _, engine = agents({"S": "8", "R": "Answer: 7"}, {"S": "7"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large, transfer="sparse"))
    assert outcome.route == "agree-reason"
    assert [request.stage for request in engine.requests] == ["S"]


@pytest.mark.parametrize("style", ["E", "R"])
def test_sparse_transfer_of_every_question(style: str) -> None:
    small, large, _, engine = agents({style: "3 and 4. Answer: 9"}, {"select": "4 9", "final": "9"})
    outcome = run(strategies.sparse_transfer(QUESTION, small, large, prompt=style))  # type: ignore[arg-type]
    assert (outcome.route, outcome.answer) == ("sparse-transfer", "9")
    assert stages(outcome) == [("small", style), ("large", "select"), ("large", "final")]
    wording = PROMPTS.wording(style, "short")  # type: ignore[arg-type]
    assert all(request.messages[0].text.endswith(wording) for request in engine.requests)


@pytest.mark.parametrize(
    ("layer", "depth", "number"),
    [(16 / 36, 36, 16), (16 / 36, 28, 12), (16 / 36, 3, 1), (0, 3, 0), (2, 3, 2), (0.99, 3, 2), (3, 3, None)],
)
def test_a_layer_is_a_number_or_a_share_of_the_depth(layer: float, depth: int, number: int | None) -> None:
    if number is None:
        with pytest.raises(ValueError, match=f"layer={layer} does not exist: the model has 3, counted from 0"):
            Sparse(layer).layer_of(depth)
    else:
        assert Sparse(layer).layer_of(depth) == number


def test_single_strategies() -> None:
    model = agents({"S": "1", "E": "So.\nAnswer: 2", "R": "Hm.\nAnswer: 3", "final": "4"}, {})[0]
    outcomes = {
        "S": strategies.single(QUESTION, model),
        "E": strategies.single(QUESTION, model, "E"),
        "R": strategies.single(QUESTION, model, "R"),
        "R-S2": strategies.single(QUESTION, model, "R", two_stage=True),
        "E-S2": strategies.single(QUESTION, model, "E", two_stage=True),
    }
    answers = {}
    for route, awaitable in outcomes.items():
        outcome = run(awaitable)
        assert outcome.route == route
        answers[route] = outcome.answer
    assert answers == {"S": "1", "E": "2", "R": "3", "R-S2": "4", "E-S2": "4"}


def test_transfer_of_an_explanation_repeats_the_wording_that_it_answers() -> None:
    small, large, _, engine = agents({"E": "So.\nAnswer: 2"}, {"final": "2"})
    assert run(strategies.transfer(QUESTION, small, large, "E")).route == "transfer"
    assert engine.requests[0].messages[0].text.endswith(PROMPTS.explain["short"])


def test_reasoning_has_its_own_limit_and_a_cut_one_is_marked_and_handed_on() -> None:
    cut = {"text": "and then the", "finish_reason": "length"}
    small, large, small_engine, large_engine = agents({"S": "8", "R": cut}, {"S": "7", "final": "9"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    assert [request.max_tokens for request in small_engine.requests] == [16, 100]
    assert [call.truncated for call in outcome.calls] == [False, False, True, False]
    assert large_engine.requests[-1].messages[1].text == "and then the"


def test_a_cut_reasoning_that_states_nothing_confirms_nothing() -> None:
    """A cut list whose last bold item happens to be the large model's answer must be transferred."""
    cut = {"text": "- **red**: 3\n- **7**", "finish_reason": "length"}
    small, large, _, _ = agents({"S": "8", "R": cut}, {"S": "7", "final": "9"})
    assert run(strategies.mutual_verification(QUESTION, small, large)).route == "transfer"


def test_usage_adds_up_per_model() -> None:
    small, large, _, _ = agents({"S": "8", "R": "a b c"}, {"S": "7", "final": "9"})
    outcome = run(strategies.mutual_verification(QUESTION, small, large))
    s, l, everything = outcome.usage("small"), outcome.usage("large"), outcome.usage()  # noqa: E741
    assert (s.calls, s.output_tokens, s.reasoning_tokens) == (2, 4, 3)
    assert (l.calls, l.output_tokens, l.reasoning_tokens) == (2, 2, 0)
    assert s + l == everything
    assert Usage() + everything == everything
