"""Window, order, failures and cancellation of a run."""

from __future__ import annotations

import asyncio

import pytest

from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Message, NoConfidence, Outcome
from mai_plugin.engines.base import EngineError
from mai_plugin.run.runner import Failure, Item, Result, Stop, run

PROMPTS = load_prompts()


def item(index: int) -> Item:
    name = f"task/{index}"
    return Item(name, lambda: Question.from_messages(name, [Message("user", (str(index),))], 4, PROMPTS))


def outcome(question: Question) -> Outcome:
    call = Call("model", "S", Completion(question.messages[0].text), None)
    return Outcome(question.id, "S", call, (call,))


def test_order_is_kept_whatever_finishes_first() -> None:
    async def answer(question: Question) -> Outcome:
        await asyncio.sleep(0.01 * (5 - int(question.messages[0].text) % 5))
        return outcome(question)

    results = asyncio.run(run([*map(item, range(20))], answer, concurrency=7))
    assert [result.question_id for result in results] == [f"task/{index}" for index in range(20)]


def test_no_more_than_the_window_is_built_or_in_flight() -> None:
    built = flying = most = 0
    ahead = []

    def build(index: int) -> Question:
        nonlocal built
        built += 1
        return item(index).build()

    async def answer(question: Question) -> Outcome:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        ahead.append(built - int(question.messages[0].text))
        await asyncio.sleep(0.002)
        flying -= 1
        return outcome(question)

    items = [Item(f"task/{index}", lambda index=index: build(index)) for index in range(40)]  # type: ignore[misc]
    asyncio.run(run(items, answer, concurrency=5))
    assert most == 5
    assert max(ahead) <= 6


def test_a_failure_is_named_and_the_others_finish() -> None:
    def broken() -> Question:
        raise OSError("image file is truncated")

    async def answer(question: Question) -> Outcome:
        if question.id == "task/3":
            raise EngineError("out of memory")
        return outcome(question)

    seen: list[Result] = []
    items = [item(0), Item("task/1", broken), item(2), item(3), item(4)]
    results = asyncio.run(run(items, answer, concurrency=2, on_result=seen.append))
    assert [isinstance(result, Failure) for result in results] == [False, True, False, True, False]
    assert str(results[1]) == "question task/1 could not be answered: image file is truncated"
    assert str(results[3]) == "question task/3 could not be answered: out of memory"
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyError("x"), "KeyError: 'x'"), (ValueError("x"), "ValueError: x"), (TypeError(), "TypeError")],
)
def test_what_a_strategy_itself_raises_is_named_with_its_type(error: Exception, message: str) -> None:
    async def answer(question: Question) -> Outcome:
        if question.id == "task/1":
            raise error
        return outcome(question)

    results = asyncio.run(run([item(0), item(1), item(2)], answer, concurrency=2))
    assert [isinstance(result, Failure) for result in results] == [False, True, False]
    assert str(results[1]) == f"question task/1 could not be answered: {message}"


@pytest.mark.parametrize("error", [Stop("no model"), NoConfidence("large")])
def test_what_no_question_can_do_without_ends_the_run(error: Exception) -> None:
    asked = []

    async def answer(question: Question) -> Outcome:
        asked.append(question.id)
        raise error

    with pytest.raises(Stop) as stop:
        asyncio.run(run([*map(item, range(20))], answer, concurrency=2))
    assert str(stop.value) == str(error)
    assert len(asked) <= 2


def test_cancelling_cancels_what_is_in_flight() -> None:
    cancelled = []

    async def answer(question: Question) -> Outcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(question.id)
            raise
        return outcome(question)

    async def main() -> None:
        task = asyncio.ensure_future(run([*map(item, range(9))], answer, concurrency=3))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancelled == ["task/0", "task/1", "task/2"]


def test_a_window_wider_than_the_run_costs_nothing() -> None:
    async def answer(question: Question) -> Outcome:
        return outcome(question)

    assert len(asyncio.run(run([item(0)], answer, concurrency=10**9))) == 1


def test_the_window_has_room() -> None:
    with pytest.raises(ValueError, match="concurrency 0 must be at least 1"):
        asyncio.run(run([], None, concurrency=0))  # type: ignore[arg-type]
