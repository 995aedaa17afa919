"""A run whose questions come one at a time from threads: what comes back, what is kept, the window, giving up."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.sessions import PROMPT, engines, items, settings

from mai_plugin.core.records import Completion, Outcome, Request
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.open_run import OpenRun
from mai_plugin.run.runner import Failure, Result
from mai_plugin.run.session import Session
from mai_plugin.run.stored import load_runs

AGREED: dict[str, Any] = {"*": {"S": "7"}}


class Counting(ScriptedEngine):
    """Knows how many of its calls were in flight at once."""

    now = most = 0

    async def generate(self, request: Request) -> Completion:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.02)
            return await super().generate(request)
        finally:
            self.now -= 1


def ask_all(run: OpenRun, session: Session, count: int, threads: int = 8) -> list[Result]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run.ask, items(session, *[PROMPT] * count)))


def test_results_come_back_to_their_askers_and_are_kept(tmp_path: Path) -> None:
    small = {"t/1": {"S": {"error": "boom"}}, "t/2": {"S": "8", "R": "Hm.\nAnswer: 7"}, "*": {"S": "7"}}
    with Session(settings(tmp_path), engines(small, AGREED)) as session:
        run = session.open_run(["t"], harness={"harness": "h"}, text=lambda outcome: f"<{outcome.answer}>")
        results = ask_all(run, session, 4)
        assert [result.question_id for result in results] == ["t/0", "t/1", "t/2", "t/3"]
        assert [isinstance(result, Failure) for result in results] == [False, True, False, False]
        assert [failure.question_id for failure in run.failures] == ["t/1"]
        summary = run.end()
    assert (summary.questions, summary.failed) == (3, 1)
    assert summary.routes == {"agree-simple": 2, "agree-reason": 1}
    (kept,) = load_runs(tmp_path)
    assert (kept.finished, kept.environment["harness"], kept.environment["tasks"]) == (True, "h", ["t"])
    assert kept.samples["t/0"].returned == "<7>"
    assert "boom" in str(kept.samples["t/1"].error)


def test_what_was_answered_is_on_disk_before_its_asker_goes_on(tmp_path: Path) -> None:
    with Session(settings(tmp_path), engines(AGREED, AGREED)) as session:
        run = session.open_run(["t"])
        for count, item in enumerate(items(session, *[PROMPT] * 5), 1):
            run.ask(item)
            (kept,) = load_runs(tmp_path)
            assert len(kept.samples) == count
        assert not kept.finished
        run.end()


def test_many_are_in_flight_but_no_more_than_the_window(tmp_path: Path) -> None:
    small = Counting(AGREED)
    with Session(settings(tmp_path, concurrency=6), {"small": small, "large": ScriptedEngine(AGREED)}) as session:
        run = session.open_run(["t"])
        assert len(ask_all(run, session, 40, threads=20)) == 40
        run.end()
    assert small.most == 6


def test_cancelling_ends_all_that_wait_and_keeps_what_was_answered(tmp_path: Path) -> None:
    slow = {"t/0": {"S": "7"}, "*": {"S": {"text": "7", "e2e_s": 60}}}
    with Session(settings(tmp_path), engines(slow, AGREED)) as session:
        run = session.open_run(["t"])
        first, *rest = items(session, *[PROMPT] * 6)
        assert isinstance(run.ask(first), Outcome)
        errors: list[BaseException] = []

        def ask(index: int) -> None:
            try:
                run.ask(rest[index])
            except CancelledError as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(5)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while len(run._in_flight) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        run.cancel()
        for thread in threads:
            thread.join(20)
        assert len(errors) == 5
        with pytest.raises(CancelledError):
            run.ask(rest[0])
        assert run.failures == []
    (kept,) = load_runs(tmp_path)
    assert (list(kept.samples), kept.finished) == (["t/0"], False)


def test_a_run_goes_on_with_the_answers_of_an_earlier_one(tmp_path: Path) -> None:
    """Their calls count as reused; a question that is asked anew, and one that is not of this run, are not taken."""
    small = {"t/1": {"S": "8", "R": "Hm.\nAnswer: 7"}, "t/3": {"S": {"error": "boom"}}, "*": {"S": "7"}}
    with Session(settings(tmp_path, reuse=False), engines(small, AGREED)) as session:
        run = session.open_run(["t"], run_id="first")
        ask_all(run, session, 4)
        run.end()
        small["t/1"] = {"S": "7"}
        small["t/3"] = {"S": "7"}
        run = session.open_run(["t"], run_id="second", resumes=("first", ["t/0", "t/1", "t/3", "t/9"]))
        for item in items(session, *[PROMPT] * 4)[1::2]:
            run.ask(item)
        run.end()
    first, second = load_runs(tmp_path)
    assert (first.id, list(second.samples)) == ("first", ["t/0", "t/1", "t/3"])
    assert second.samples["t/0"].calls == tuple(
        type(call)(call.role, call.stage, _reused(call.completion), call.answer) for call in first.samples["t/0"].calls
    )
    assert [sample.route for sample in second.samples.values()] == ["agree-simple"] * 3
    assert len(first.samples["t/1"].calls) == 3
    assert len(second.samples["t/1"].calls) == 2
    assert second.samples["t/3"].error is None
    assert second.reused_calls == 2


def test_a_failure_in_the_place_of_an_answer_leaves_no_calls(tmp_path: Path) -> None:
    with Session(settings(tmp_path, reuse=False), engines({"t/0": {"S": "7"}}, AGREED)) as session:
        run = session.open_run(["t"], run_id="first")
        run.ask(items(session, PROMPT)[0])
        run.end()
        engine = session.engines["small"]
        assert isinstance(engine, ScriptedEngine)
        engine.script = {"*": {"S": {"error": "boom"}}}
        run = session.open_run(["t"], run_id="second", resumes=("first", ["t/0"]))
        run.ask(items(session, PROMPT)[0])
        run.end()
    assert load_runs(tmp_path)[1].samples["t/0"].calls == ()


def _reused(done: Completion) -> Completion:
    return replace(done, reused=True)
