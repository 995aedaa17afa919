"""Models loaded once, and an event loop in a thread that answers questions with them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType

from tqdm import tqdm

from mai_plugin.core import strategies
from mai_plugin.core.agent import Agent
from mai_plugin.core.question import Question
from mai_plugin.core.records import Message, Outcome, Style
from mai_plugin.core.strategies import Strategy
from mai_plugin.engines.base import Engine, Model, close_engines, load_engines
from mai_plugin.run.journal import Journal
from mai_plugin.run.runner import Failure, Item, Result, run
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

log = logging.getLogger("mai_plugin")


def build_strategy(settings: Settings, agents: dict[str, Agent]) -> Strategy:
    """The strategy that the settings name, bound to its models."""
    if settings.strategy == "mutual_verification":
        small, large = agents["small"], agents["large"]
        return partial(strategies.mutual_verification, small=small, large=large, agree=settings.agree)
    style: Style = "E" if settings.prompt == "E" else "R"
    if settings.strategy == "transfer":
        return partial(strategies.transfer, reasoner=agents["small"], answerer=agents["large"], style=style)
    if settings.two_stage:
        return partial(strategies.two_stage, model=agents["model"], style=style)
    ask = {"S": strategies.simple, "E": strategies.explain, "R": strategies.reason}[settings.prompt]
    return partial(ask, model=agents["model"])


class Session:
    """Loads the models of some settings and answers questions until it is closed.

    Args:
        settings: what to load and how to answer.
        engines: role to engine, to use engines that are loaded already; they are closed with the session.

    Raises:
        ValueError: a model cannot be loaded.
    """

    def __init__(self, settings: Settings, engines: dict[str, Engine] | None = None) -> None:
        self.settings = settings
        self.journal = Journal(settings.store, settings.name) if settings.store else None
        self.engines: dict[str, Engine] = engines or {}
        try:
            missing = {role: Model(model.source, model.args, model.hints)
                       for role, model in settings.models.items() if role not in self.engines}  # fmt: skip
            self.engines.update(load_engines(settings.engine, missing) if missing else {})
        except BaseException:
            close_engines(self.engines)
            if self.journal:
                self.journal.close(discard=True)
            raise
        agents = {
            role: Agent(role, engine.generate, settings.prompts, settings.max_reasoning_tokens)
            for role, engine in self.engines.items()
        }
        self.strategy = build_strategy(settings, agents)
        self._unknown_requests: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mai-loop", daemon=True)
        self._thread.start()

    def question(self, id: str, messages: Sequence[Message], max_new_tokens: int) -> Question:
        """Build a question; says once per task if the table of requests for brevity does not know its prompt."""
        question = Question.from_messages(id, messages, max_new_tokens, self.settings.prompts)
        task = id.rpartition("/")[0]
        wordings = {*self.settings.prompts.explain.values(), *self.settings.prompts.reason.values()}
        cascade = self.settings.strategy == "mutual_verification"
        if cascade and question.request in wordings and task not in self._unknown_requests:
            self._unknown_requests.add(task)
            log.warning(
                "mai: %s: the task itself asks for reasoning (a *_mai_e or *_mai_r task?), so that the cascade has no "
                "short answers: choose the plain task", task or id
            )  # fmt: skip
        if not question.known and task not in self._unknown_requests:
            self._unknown_requests.add(task)
            found = f"took {question.request!r} for" if question.request else "found no"
            log.warning(
                "mai: %s: the prompt ends with no known request for brevity; %s request by the general rule "
                "(E and R are put behind the rest; add yours with prompts=FILE, key 'brevity')", task or id, found
            )  # fmt: skip
        return question

    def run(self, items: Sequence[Item], *, progress: bool = True) -> tuple[list[Result], Summary]:
        """Answer questions, `settings.concurrency` at a time, with a progress bar.

        A question that fails is reported at once, by its id; the others go on.  Ctrl-C cancels what is in flight.

        Returns:
            A result per item, in order, and the run's summary.
        """
        if self.closed:
            raise ValueError("the session is closed: its models are gone, open another one")
        started = time.perf_counter()
        routes: dict[str, int] = {}
        with tqdm(total=len(items), desc=self.settings.name, unit="question", disable=not progress) as bar:

            def take(result: Result) -> None:
                if self.journal:
                    self.journal.write(result, None if isinstance(result, Failure) else self.text(result))
                if isinstance(result, Failure):
                    tqdm.write(f"mai: {result}", file=sys.stderr)
                else:
                    routes[result.route] = routes.get(result.route, 0) + 1
                    bar.set_postfix(routes, refresh=False)
                bar.update()

            future = asyncio.run_coroutine_threadsafe(
                run(items, self.strategy, concurrency=self.settings.concurrency, on_result=take), self._loop
            )
            try:
                results = future.result()
            except BaseException:  # Ctrl-C lands here, in the main thread, while the loop's thread still works
                future.cancel()
                raise
        return results, Summary.of(results, time.perf_counter() - started)

    def text(self, outcome: Outcome) -> str:
        """What to hand to a scorer: the bare answer, or the text as the model wrote it (`raw`)."""
        return outcome.final.text if self.settings.raw else outcome.answer

    @property
    def closed(self) -> bool:
        """Whether the models are gone."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Free the models and stop the loop.  May be called twice."""
        if self.closed:
            return
        close_engines(self.engines)
        if self.journal:
            self.journal.close()
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
