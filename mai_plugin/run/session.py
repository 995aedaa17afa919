"""Models, loaded at the first call that the store does not hold, and an event loop that answers questions with them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from tqdm import tqdm

from mai_plugin.core.agent import Agent, Generate
from mai_plugin.core.question import Question
from mai_plugin.core.records import Completion, Message, Outcome, Request, Sparse
from mai_plugin.core.strategies import Strategy
from mai_plugin.engines.base import ENGINES, Engine, close_engines, load_engine, load_engines
from mai_plugin.engines.identity import is_settled
from mai_plugin.run.open_run import OpenRun
from mai_plugin.run.provenance import model_identities, new_run_id
from mai_plugin.run.recorder import Recorder
from mai_plugin.run.runner import Failure, Item, Result, Stop
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

log = logging.getLogger("mai_plugin")


class Session:
    """Answers questions with the models of some settings until it is closed.

    Args:
        settings: what to load and how to answer.
        engines: role to engine, to use engines that are loaded already and have answered in no other session (those
            of vLLM are bound to its event loop); they are closed with this one.
        strategy: makes another strategy of the models than the one that the settings name.
        record_runs: whether runs are stored, beside their calls.

    Attributes:
        agents: role to model, as strategies see them.
        engines: role to engine; empty until they are loaded.
        loading_s: seconds that loading them took.

    Raises:
        ValueError: the call store cannot be opened; or, where no call can be reused (`store=off`, `reuse=false`, a
            Hub name that is not cached yet), a model cannot be loaded.
    """

    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, Engine] | None = None,
        strategy: Callable[[Mapping[str, Agent]], Strategy] | None = None,
        record_runs: bool = True,
    ) -> None:
        self.settings = settings
        self.engines: dict[str, Engine] = dict(engines or {})
        self.loading_s = 0.0
        self._loading = threading.Lock()
        self._unusable: Exception | None = None
        self._record_runs = record_runs
        self.recorder = Recorder(settings.store, settings.reuse, settings.share_engines) if settings.store else None
        self._identities: dict[str, str] = {}
        try:
            settled = self._identify()
            if not (self.recorder and settings.reuse and settled):
                self.load()
        except BaseException:
            close_engines(self.engines)
            if self.recorder:
                self.recorder.close()
            raise
        self.agents = {
            role: Agent(role, self._generate(role), settings.prompts, settings.max_reasoning_tokens)
            for role in settings.models
        }
        self.strategy = (strategy or settings.bind)(self.agents)
        self._warned: set[str] = set()
        self._warning = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mai-loop", daemon=True)
        self._thread.start()

    def _identify(self) -> bool:
        """Note who the models are, as far as that is known before they are loaded; whether that is settled."""
        self._identities = model_identities(self.settings, self.engines)
        return all(
            role in self.engines or is_settled(self.settings.engine_of(role), model)
            for role, model in self.settings.models.items()
        )

    def load(self) -> None:
        """Load what is not loaded yet.  What cannot be loaded is not tried again.

        Raises:
            ValueError: a model cannot be loaded, or the session is closed.
        """
        with self._loading:
            if self._unusable:
                raise self._unusable
            missing = {role: model for role, model in self.settings.models.items() if role not in self.engines}
            if not missing:
                return
            started = time.perf_counter()
            log.info("mai: loading %s", ", ".join(f"{role} ({model.name})" for role, model in missing.items()))
            loaded: dict[str, Engine] = {}
            try:
                if selector := missing.pop("selector", None):
                    # Before the others: vLLM takes what memory it finds free.
                    loaded["selector"] = load_engine("transformers", selector.source, selector.args, selector.hints)
                loaded.update(load_engines(self.settings.engine, missing))
                self._check_selection({**self.engines, **loaded})
            except Exception as error:
                close_engines(loaded)
                self._unusable = error
                raise
            self.engines.update(loaded)
            self._identify()
            seconds = time.perf_counter() - started
            self.loading_s += seconds
            log.info("mai: loaded in %.1f s", seconds)

    def _check_selection(self, engines: Mapping[str, Engine]) -> None:
        """Refuse a layer that the model does not have before any question is answered."""
        if "selector" in self.settings.spec.roles and self.settings.arguments.get("transfer") != "full":
            selects = engines.get("selector") or engines.get("large")
            if check := getattr(selects, "check_selection", None):  # a script selects whatever it says
                check(Sparse(self.settings.arguments["layer"]))

    def _generate(self, role: str) -> Generate:
        """A role's way to answer a request: from the store, else by its engine, which is loaded then."""

        async def generate(request: Request) -> Completion:
            if role not in self.engines:
                try:
                    await asyncio.get_running_loop().run_in_executor(None, self.load)
                except Exception as error:  # a checkpoint's own code may run here
                    named = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                    raise Stop(" ".join(named.split())) from error
            return await self.engines[role].generate(request)

        if not self.recorder:
            return generate
        name = self.settings.engine_of(role)
        by_question = getattr(self.engines[role], "by_question", False) if role in self.engines else None
        if by_question is None:
            by_question = ENGINES[name].by_question
        return self.recorder.keeping(generate, name, lambda: self._identities[role], by_question)

    def question(self, id: str, messages: Sequence[Message], max_new_tokens: int) -> Question:
        """Build a question; warns once per task whose prompt ends with no known request for a short answer."""
        question = Question.from_messages(id, messages, max_new_tokens, self.settings.prompts)
        with self._warning:
            self._warn_once(question, id.rpartition("/")[0])
        return question

    def _warn_once(self, question: Question, task: str) -> None:
        if task in self._warned:
            return
        wordings = {*self.settings.prompts.explain.values(), *self.settings.prompts.reason.values()}
        if self.settings.strategy == "mutual_verification" and question.request in wordings:
            log.warning(
                "mai: %s: the task itself asks for reasoning (a *_mai_e or *_mai_r task?), so that the cascade has no "
                "short answers: choose the plain task", task or question.id
            )  # fmt: skip
        elif not question.known:
            guessed = f"guessed {question.request!r}" if question.request else "found none"
            log.warning(
                "mai: %s: no known 'answer briefly' sentence at the end of the prompt; %s (E and R are appended to the "
                "rest). Add yours under 'brevity' in prompts=FILE",
                task or question.id, guessed,
            )  # fmt: skip
        else:
            return
        self._warned.add(task)

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

        A question that fails is reported at once, by its id; the others continue.  Ctrl-C cancels what is in flight.

        Args:
            items: the questions.
            progress: whether to show the bar.
            harness: stored with the run, see `describe_environment`.
            run_id: the run's id in the store; default: a new one.
            part_of: rank 0's run id, where several ranks make one run together.

        Returns:
            A result per item, in order, and the run's summary.

        Raises:
            ValueError: the session is closed, the call store cannot be written, or a model cannot be loaded.
        """
        tasks = list(dict.fromkeys(item.question_id.rpartition("/")[0] for item in items))
        opened = self.open_run(tasks, harness=harness, run_id=run_id, part_of=part_of)
        routes: dict[str, int] = {}
        with tqdm(total=len(items), desc=self.settings.name, unit="question", disable=not progress) as bar:

            def show(result: Result) -> None:
                if not isinstance(result, Failure):
                    routes[result.route] = routes.get(result.route, 0) + 1
                    bar.set_postfix(routes, refresh=False)
                bar.update()

            results = opened.ask_all(items, show)
        summary = opened.end()
        if not self.engines and items:
            log.info("mai: all calls came from the store: no model was loaded")
        return results, summary

    def open_run(
        self,
        tasks: Sequence[str],
        *,
        harness: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        part_of: str | None = None,
        resumes: tuple[str, Sequence[str]] | None = None,
        text: Callable[[Outcome], str] | None = None,
    ) -> OpenRun:
        """Open a run, whose questions may come one at a time, from threads of the harness.

        Args:
            tasks: the harness's tasks that they are of.
            harness, run_id, part_of: as in `run`.
            resumes: an earlier run's id and the questions (ids) whose answers, which the harness has from it, count as
                this one's too.
            text: what goes back to the harness, in place of `Session.text`.

        Raises:
            ValueError: as `run`.
        """
        if self.closed:
            raise ValueError("the session is closed: its models are gone, open another one")
        recorder = self.recorder if self._record_runs else None
        if recorder:
            run_id = run_id or new_run_id(self.settings.name)
            recorder.begin(run_id, self.settings, self._identities, list(tasks), harness or {}, part_of, resumes)
        concurrency, text = self.settings.concurrency, text or self.text
        return OpenRun(self.strategy, self._loop, concurrency, text, recorder, lambda: self.loading_s)

    def text(self, outcome: Outcome) -> str:
        """What to return to a scorer: the bare answer, or the text as generated (`raw`)."""
        return outcome.final.text if self.settings.raw else outcome.answer

    @property
    def closed(self) -> bool:
        """Whether the models are gone."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Free the models and stop the loop.  May be called twice."""
        if self.closed:
            return
        with self._loading:
            close_engines(self.engines)
            self._unusable = ValueError("the session is closed")
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
