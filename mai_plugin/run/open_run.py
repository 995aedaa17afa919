"""A run whose questions come one at a time, from any thread: for harnesses that bring threads of their own."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from tqdm import tqdm

from mai_plugin.core.question import Question
from mai_plugin.core.records import Outcome
from mai_plugin.core.strategies import Strategy
from mai_plugin.run.recorder import Recorder
from mai_plugin.run.runner import Failure, Item, Result
from mai_plugin.run.summary import Summary


class OpenRun:
    """Made by `Session.open_run`; its time begins there.

    Args:
        strategy: answers one question.
        loop: where it runs.
        concurrency: questions in flight at most; further askers wait.
        text: what of an outcome goes back to the harness.
        recorder: where the run has been opened, None to keep nothing.
    """

    def __init__(
        self,
        strategy: Strategy,
        loop: asyncio.AbstractEventLoop,
        concurrency: int,
        text: Callable[[Outcome], str],
        recorder: Recorder | None,
    ) -> None:
        self._strategy, self._loop, self._text, self._recorder = strategy, loop, text, recorder
        self._window = asyncio.Semaphore(concurrency)
        self._results: list[Result] = []
        self._in_flight: set[Future[Outcome]] = set()
        self._lock = threading.Lock()
        self._cancelled = False
        self._started = time.perf_counter()

    def ask(self, item: Item) -> Result:
        """Answer a question, built in the calling thread, which waits.  What came of it is on disk on return.

        Raises:
            CancelledError: the run was cancelled.
        """
        try:
            result: Result = self._answer(item.build())
        except CancelledError:
            raise
        except Exception as error:
            result = Failure(item.question_id, error)
            tqdm.write(f"mai: {result}", file=sys.stderr)
        if self._recorder:
            self._recorder.add(result, "" if isinstance(result, Failure) else self._text(result)).result()
        with self._lock:
            self._results.append(result)
        return result

    def _answer(self, question: Question) -> Outcome:
        async def answer() -> Outcome:
            async with self._window:
                return await self._strategy(question)

        with self._lock:
            if self._cancelled:
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(answer(), self._loop)
            self._in_flight.add(future)
        try:
            return future.result()
        finally:
            with self._lock:
                self._in_flight.discard(future)

    def cancel(self) -> None:
        """Give up: what is in flight is cancelled, and nothing is asked any more."""
        with self._lock:
            self._cancelled = True
            for future in self._in_flight:
                future.cancel()

    @property
    def failures(self) -> list[Failure]:
        """Questions so far that could not be answered."""
        with self._lock:
            return [result for result in self._results if isinstance(result, Failure)]

    def end(self) -> Summary:
        """Close the run, all its questions having been asked."""
        wall_s = time.perf_counter() - self._started
        if self._recorder:
            self._recorder.end(wall_s)
        return Summary.of(self._results, wall_s)
