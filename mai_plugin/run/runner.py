"""Many questions at once: a bounded window in flight, order kept, one bad question does not stop the others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mai_plugin.core.question import Question
from mai_plugin.core.records import Outcome
from mai_plugin.core.strategies import Strategy


@dataclass(frozen=True)
class Item:
    """A question that is not built yet: its images are loaded when its turn comes, so memory does not grow."""

    question_id: str
    build: Callable[[], Question]


@dataclass(frozen=True)
class Failure:
    """A question that could not be answered, and why."""

    question_id: str
    error: Exception

    def __str__(self) -> str:
        name = f"question {self.question_id}"
        reason = re.sub(r" <_io[^>]*>", "", " ".join(str(self.error).split())) or type(self.error).__name__
        return f"{name} could not be answered: {reason.removeprefix(f'{name}: ')}"


Result = Outcome | Failure


async def run(
    items: Sequence[Item],
    strategy: Strategy,
    *,
    concurrency: int = 64,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Answer every item, at most `concurrency` of them in flight at any time.

    Args:
        items: built one by one, as there is room.
        strategy: the coroutine that answers one question.
        concurrency: size of the window.
        on_result: called with each result as it comes, in no particular order.

    Returns:
        One `Outcome` or `Failure` per item, in the order of the items.

    Raises:
        ValueError: `concurrency` is below 1.
        asyncio.CancelledError: the run was cancelled; all questions in flight are cancelled with it.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency} must be at least 1")
    source = enumerate(items)
    results: list[Result | None] = [None] * len(items)
    loop = asyncio.get_running_loop()

    async def worker(builder: ThreadPoolExecutor) -> None:
        for index, item in source:  # shared by all workers
            try:
                question = await loop.run_in_executor(builder, item.build)
                result: Result = await strategy(question)
            except Exception as error:
                result = Failure(item.question_id, error)
            results[index] = result
            if on_result:
                on_result(result)

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
