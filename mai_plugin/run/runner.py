"""Many questions at once: a bounded window in flight, order kept, one bad question does not stop the others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mai_plugin.core.question import Question
from mai_plugin.core.records import NoConfidence, Outcome
from mai_plugin.core.strategies import Strategy
from mai_plugin.engines.base import EngineError


@dataclass(frozen=True)
class Item:
    """A question that is not built yet: its images are loaded when its turn comes, so memory does not grow."""

    question_id: str
    build: Callable[[], Question]


@dataclass(frozen=True)
class Failure:
    """A question that could not be answered, and why.

    Attributes:
        question_id: the question's id.
        error: what was raised.
        unforeseen: the strategy raised it and no engine did: its type is a part of the message.
    """

    question_id: str
    error: Exception
    unforeseen: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        name = f"question {self.question_id}"
        reason = re.sub(r" <_io[^>]*>", "", " ".join(str(self.error).split())).removeprefix(f"{name}: ")
        if self.unforeseen or not reason:
            reason = f"{type(self.error).__name__}: {reason}".removesuffix(": ")
        return f"{name} could not be answered: {reason}"


Result = Outcome | Failure


class Stop(ValueError):
    """What makes every further question useless, such as a model that cannot be loaded: the run ends with it."""


async def answer(question_id: str, build: Awaitable[Question] | Question, strategy: Strategy) -> Result:
    """Answer one question, or tell why it cannot be answered.

    Raises:
        Stop: no other question could be answered either.
    """
    try:
        question = build if isinstance(build, Question) else await build
    except Exception as error:
        return Failure(question_id, error)
    try:
        outcome = await strategy(question)
        if not isinstance(outcome, Outcome):  # a strategy of the user's own that forgot to return one
            raise TypeError(f"the strategy returned {type(outcome).__name__}, expected an Outcome")
        return outcome
    except Stop:
        raise
    except NoConfidence as error:  # the engine gives none for any question
        raise Stop(str(error)) from error
    except Exception as error:
        return Failure(question_id, error, unforeseen=not isinstance(error, EngineError))


async def run(
    items: Sequence[Item],
    strategy: Strategy,
    *,
    concurrency: int = 64,
    on_result: Callable[[Result], Result | None] | None = None,
) -> list[Result]:
    """Answer every item, at most `concurrency` of them in flight at any time.

    Args:
        items: built one by one, as there is room.
        strategy: the coroutine that answers one question.
        concurrency: size of the window.
        on_result: called with each result as it comes, in no particular order; may return another in its place.

    Returns:
        One `Outcome` or `Failure` per item, in the order of the items.

    Raises:
        ValueError: `concurrency` is below 1.
        Stop: see `answer`; all questions in flight are cancelled.
        asyncio.CancelledError: the run was cancelled; all questions in flight are cancelled with it.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency} must be at least 1")
    source = enumerate(items)
    results: list[Result | None] = [None] * len(items)
    loop = asyncio.get_running_loop()

    async def worker(builder: ThreadPoolExecutor) -> None:
        for index, item in source:  # shared by all workers
            result = await answer(item.question_id, loop.run_in_executor(builder, item.build), strategy)
            results[index] = (on_result(result) if on_result else None) or result

    # One thread builds the questions (decoding images), beside the loop and in order.
    with ThreadPoolExecutor(1, thread_name_prefix="mai-questions") as builder:
        workers = [asyncio.create_task(worker(builder)) for _ in range(min(concurrency, len(items)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return [result for result in results if result is not None]
