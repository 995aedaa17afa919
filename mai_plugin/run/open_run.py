"""A run in progress: what every result goes through, whether questions come as a list or one at a time."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace

from tqdm import tqdm

from mai_plugin.core.records import Outcome
from mai_plugin.core.strategies import Strategy
from mai_plugin.run.recorder import Recorder
from mai_plugin.run.runner import Failure, Item, Result, answer, run
from mai_plugin.run.summary import Summary


class OpenRun:
    """Made by `Session.open_run`; its time begins there.

    Args:
        strategy: answers one question.
        loop: where it runs.
        concurrency: questions in flight at most; further askers wait.
        text: what of an outcome goes back to the harness.
        recorder: where the run has been opened, None to store nothing.
        loading_s: seconds that models have been loading so far; the time that they take is not the run's.
    """

    def __init__(
        self,
        strategy: Strategy,
        loop: asyncio.AbstractEventLoop,
        concurrency: int,
        text: Callable[[Outcome], str],
        recorder: Recorder | None,
        loading_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._strategy, self._loop, self._text, self._recorder = strategy, loop, text, recorder
        self._concurrency, self._loading_s = concurrency, loading_s
        self._window = asyncio.Semaphore(concurrency)
        self._results: list[Result] = []
        self._in_flight: set[Future[Result]] = set()
        self._lock = threading.Lock()
        self._cancelled = False
        self._started = time.perf_counter() - loading_s()

    def ask(self, item: Item) -> Result:
        """Answer a question, built in the calling thread, which waits.  Its result is on disk on return.

        Raises:
            CancelledError: the run was cancelled.
            Stop: no question can be answered, see `runner.answer`.
        """
        try:
            question = item.build()
        except Exception as error:
            result: Result = Failure(item.question_id, error)
        else:

            async def in_window() -> Result:
                async with self._window:
                    return await answer(item.question_id, question, self._strategy)

            with self._lock:
                if self._cancelled:
                    raise CancelledError
                future = asyncio.run_coroutine_threadsafe(in_window(), self._loop)
                self._in_flight.add(future)
            try:
                result = future.result()
            finally:
                with self._lock:
                    self._in_flight.discard(future)
        result, stored = self._take(result)
        if stored:
            stored.result()
        return result

    def ask_all(self, items: Sequence[Item], on_result: Callable[[Result], None]) -> list[Result]:
        """Answer many questions, built beside the loop as there is room.

        Args:
            items: the questions.
            on_result: called with each result as it comes, in no particular order.

        Returns:
            A result per item, in order.

        Raises:
            Stop: no question can be answered, see `runner.answer`.
        """

        def take(result: Result) -> Result:
            taken, _ = self._take(result)
            on_result(taken)
            return taken

        running = run(items, self._strategy, concurrency=self._concurrency, on_result=take)
        future = asyncio.run_coroutine_threadsafe(running, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C lands here, in the main thread, while the loop's thread still works
            future.cancel()
            raise

    def _take(self, result: Result) -> tuple[Result, Future[None] | None]:
        """Work out what goes back, report a failure, store and count."""
        if isinstance(result, Failure):
            tqdm.write(f"mai: {result}", file=sys.stderr)
        else:
            result = replace(result, returned=self._text(result))
        stored = self._recorder.add(result) if self._recorder else None
        with self._lock:
            self._results.append(result)
        return result, stored

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
        wall_s = time.perf_counter() - self._started - self._loading_s()
        if self._recorder:
            self._recorder.end(wall_s)
        return Summary.of(self._results, wall_s)
