"""Models loaded once, and an event loop in a thread that answers questions with them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from tqdm import tqdm

from mai_plugin.core import strategies
from mai_plugin.core.agent import Agent, Generate
from mai_plugin.core.question import Question
from mai_plugin.core.records import Message, Outcome, Style
from mai_plugin.core.strategies import Strategy
from mai_plugin.engines.base import Engine, close_engines, load_engine, load_engines
from mai_plugin.engines.identity import model_identity
from mai_plugin.run.open_run import OpenRun
from mai_plugin.run.provenance import new_run_id
from mai_plugin.run.recorder import Recorder
from mai_plugin.run.runner import Failure, Item, Result, run
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

log = logging.getLogger("mai_plugin")


def build_strategy(settings: Settings, agents: dict[str, Agent]) -> Strategy:
    """The strategy that the settings name, bound to its models."""
    select = agents["selector"].select if settings.sparse else None
    if settings.strategy == "mutual_verification":
        small, large = agents["small"], agents["large"]
        return partial(strategies.mutual_verification, small=small, large=large, agree=settings.agree, select=select)
    style: Style = "E" if settings.prompt == "E" else "R"
    if settings.strategy == "transfer":
        return partial(strategies.transfer, reasoner=agents["small"], answerer=agents["large"], style=style)
    if select:
        small, large = agents["small"], agents["large"]
        return partial(strategies.sparse_transfer, reasoner=small, answerer=large, select=select, style=style)
    if settings.two_stage:
        return partial(strategies.two_stage, model=agents["model"], style=style)
    ask = {"S": strategies.simple, "E": strategies.explain, "R": strategies.reason}[settings.prompt]
    return partial(ask, model=agents["model"])


class Session:
    """Loads the models of some settings and answers questions until it is closed.

    Args:
        settings: what to load and how to answer.
        engines: role to engine, to use engines that are loaded already and have answered in no other session (those
            of vLLM are bound to its event loop); they are closed with this one.

    Attributes:
        agents: role to model, as strategies see them.

    Raises:
        ValueError: a model cannot be loaded, or the call store cannot be opened.
    """

    def __init__(self, settings: Settings, engines: dict[str, Engine] | None = None) -> None:
        self.settings = settings
        self.recorder = Recorder(settings.store, settings.reuse) if settings.store else None
        self.engines: dict[str, Engine] = engines or {}
        self._identities: dict[str, str] = {}
        generate: dict[str, Generate] = {}
        try:
            self._load()
            for role, (name, model) in self.settings.loaded.items():
                engine = self.engines[role]
                generate[role] = engine.generate
                if self.recorder:
                    self._identities[role] = model_identity(name, model, engine)
                    generate[role] = self.recorder.keeping(engine, name, self._identities[role])
        except BaseException:
            close_engines(self.engines)
            if self.recorder:
                self.recorder.close()
            raise
        if self.recorder:
            log.info("mai: calls are kept in %s", self.recorder.store.path.absolute())
        self.agents = {
            role: Agent(role, generate[role], settings.prompts, settings.max_reasoning_tokens)
            for role in settings.models
        }
        if settings.sparse:  # by whatever engine, it is the large model that selects
            selects = generate.get("selector", generate["large"])
            self.agents["selector"] = replace(self.agents["large"], generate=selects, sparse=settings.sparse)
        self.strategy = build_strategy(settings, self.agents)
        self._unknown_requests: set[str] = set()
        self._saying = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mai-loop", daemon=True)
        self._thread.start()

    def _load(self) -> None:
        """Load what is not there yet."""
        missing = {role: model
                   for role, (_, model) in self.settings.loaded.items() if role not in self.engines}  # fmt: skip
        if selector := missing.pop("selector", None):
            # Before the others: vLLM takes what memory it finds free.
            args = {**selector.args, "only_selects": self.settings.sparse}
            self.engines["selector"] = load_engine("transformers", selector.source, args, selector.hints)
        self.engines.update(load_engines(self.settings.engine, missing) if missing else {})
        if self.settings.sparse:
            selects = self.engines.get("selector", self.engines["large"])
            if check := getattr(selects, "check_selection", None):  # a script selects whatever it says
                check(self.settings.sparse)

    def question(self, id: str, messages: Sequence[Message], max_new_tokens: int) -> Question:
        """Build a question; says once per task if the table of requests for brevity does not know its prompt."""
        question = Question.from_messages(id, messages, max_new_tokens, self.settings.prompts)
        with self._saying:
            self._say_what_is_odd(question, id.rpartition("/")[0])
        return question

    def _say_what_is_odd(self, question: Question, task: str) -> None:
        wordings = {*self.settings.prompts.explain.values(), *self.settings.prompts.reason.values()}
        cascade = self.settings.strategy == "mutual_verification"
        if cascade and question.request in wordings and task not in self._unknown_requests:
            self._unknown_requests.add(task)
            log.warning(
                "mai: %s: the task itself asks for reasoning (a *_mai_e or *_mai_r task?), so that the cascade has no "
                "short answers: choose the plain task", task or question.id
            )  # fmt: skip
        if not question.known and task not in self._unknown_requests:
            self._unknown_requests.add(task)
            found = f"took {question.request!r} for" if question.request else "found no"
            log.warning(
                "mai: %s: the prompt ends with no known request for brevity; %s request by the general rule "
                "(E and R are put behind the rest; add yours with prompts=FILE, key 'brevity')",
                task or question.id, found,
            )  # fmt: skip

    def run(
        self,
        items: Sequence[Item],
        *,
        progress: bool = True,
        harness: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        part_of: str | None = None,
    ) -> tuple[list[Result], Summary]:
        """Answer questions, `settings.concurrency` at a time, with a progress bar.

        A question that fails is reported at once, by its id; the others go on.  Ctrl-C cancels what is in flight.

        Args:
            items: the questions.
            progress: whether to show the bar.
            harness: kept with the run, see `describe_environment`.
            run_id: the run's id in the store; default: a new one.
            part_of: rank 0's run id, where several ranks make one run together.

        Returns:
            A result per item, in order, and the run's summary.

        Raises:
            ValueError: the session is closed, or the call store cannot be written.
        """
        tasks = list(dict.fromkeys(item.question_id.rpartition("/")[0] for item in items))
        self._begin(run_id, tasks, harness, part_of)
        recorder = self.recorder
        started = time.perf_counter()
        routes: dict[str, int] = {}
        with tqdm(total=len(items), desc=self.settings.name, unit="question", disable=not progress) as bar:

            def take(result: Result) -> None:
                if recorder:
                    recorder.add(result, "" if isinstance(result, Failure) else self.text(result))
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
        wall_s = time.perf_counter() - started
        if recorder:
            recorder.end(wall_s)
        return results, Summary.of(results, wall_s)

    def open_run(
        self,
        tasks: Sequence[str],
        *,
        harness: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        goes_on: tuple[str, Sequence[str]] | None = None,
        text: Callable[[Outcome], str] | None = None,
    ) -> OpenRun:
        """Open a run whose questions come one at a time, from threads of the harness.

        Args:
            tasks: the harness's tasks that they are of.
            harness, run_id: as in `run`.
            goes_on: an earlier run's id and the questions (ids) whose answers, which the harness has kept from it,
                count as this one's too.
            text: what goes back to the harness, in place of `Session.text`.

        Raises:
            ValueError: as `run`.
        """
        self._begin(run_id, tasks, harness, None, goes_on)
        return OpenRun(self.strategy, self._loop, self.settings.concurrency, text or self.text, self.recorder)

    def _begin(
        self,
        run_id: str | None,
        tasks: Sequence[str],
        harness: Mapping[str, Any] | None,
        part_of: str | None,
        goes_on: tuple[str, Sequence[str]] | None = None,
    ) -> None:
        if self.closed:
            raise ValueError("the session is closed: its models are gone, open another one")
        if self.recorder:
            run_id = run_id or new_run_id(self.settings.name)
            self.recorder.begin(run_id, self.settings, self._identities, list(tasks), harness or {}, part_of, goes_on)

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
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        if self.recorder:
            self.recorder.close()
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
