"""Models loaded once, a loop in a thread: results, what is kept of them, failures, closing, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.sessions import PROMPT, engines, items, settings

from mai_plugin.core.records import Outcome, Usage
from mai_plugin.engines.base import Engine, ModelSpec
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Failure, Stop
from mai_plugin.run.session import Session
from mai_plugin.run.stored import load_runs
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings


def test_results_summary_and_what_is_kept(tmp_path: Path) -> None:
    small = {"t/0": {"S": "7"}, "t/1": {"S": "8", "R": "Hm.\nAnswer: 9"}, "t/3": {"S": {"error": "boom"}}}
    large = {"*": {"S": "7", "final": "9"}}
    with Session(settings(tmp_path), engines(small, large)) as session:  # type: ignore[arg-type]
        results, summary = session.run(items(session, PROMPT, PROMPT, "", PROMPT), progress=False)
    first, second, third, fourth = results
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert (first.answer, second.answer) == ("7", "9")
    assert isinstance(third, Failure)
    assert isinstance(fourth, Failure)
    assert summary.routes == {"agree-simple": 1, "transfer": 1}
    assert (summary.questions, summary.failed, summary.reused.calls) == (2, 2, 0)
    assert "2 questions in" in str(summary)
    assert "2 failed" in str(summary)
    (run,) = load_runs(tmp_path)
    assert (run.name, run.strategy, run.engine, run.finished) == ("s+l-MAI", "mutual_verification", "scripted", True)
    assert run.tasks == ("t",)
    kept = run.samples["t/1"]
    assert (kept.route, kept.answer, kept.returned, kept.calls) == ("transfer", "9", "9", second.calls)
    assert [(call.role, call.stage) for call in kept.calls] == [
        ("small", "S"), ("large", "S"), ("small", "R"), ("large", "final"),
    ]  # fmt: skip
    assert "boom" in str(run.samples["t/3"].error)
    assert "empty" in str(run.samples["t/2"].error)


def test_nothing_is_written_with_store_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(settings(tmp_path, store="off"), engines({"*": {"S": "7"}}, {"*": {"S": "7"}})) as session:  # type: ignore[arg-type]
        (result,), _ = session.run(items(session, PROMPT), progress=False)
    assert isinstance(result, Outcome)
    assert result.final.completion.call_id is None
    assert list(tmp_path.iterdir()) == []


def test_a_lone_surrogate_is_kept(tmp_path: Path) -> None:
    with Session(settings(tmp_path), engines({"*": {"S": "\ud800 hi"}}, {"*": {"S": "\ud800 hi"}})) as session:  # type: ignore[arg-type]
        results, _ = session.run(items(session, PROMPT), progress=False)
    assert isinstance(results[0], Outcome)
    assert load_runs(tmp_path)[0].samples["t/0"].returned == "\ud800 hi"


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = Session(settings(tmp_path), engines({}, {}))
    session.close()
    with pytest.raises(ValueError, match="the session is closed"):
        session.run([])


def test_closing_stops_the_thread_and_may_be_done_twice(tmp_path: Path) -> None:
    session = Session(settings(tmp_path), engines({}, {}))
    session.close()
    session.close()
    assert not session._thread.is_alive()


def test_engines_that_are_loaded_are_closed_when_another_fails(tmp_path: Path) -> None:
    closed = []

    class Watched(ScriptedEngine):
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(ValueError, match="script l"):
        Session(settings(tmp_path), {"small": Watched({})})
    assert closed == [True]


def test_summaries_of_ranks_merge() -> None:
    one = Summary(2, {"S": 2}, {"model": Usage(2, 10, 0, 4)}, 3.0, failed=1, reused=Usage(1, 5, 0, 3))
    two = Summary(1, {"S": 1}, {"model": Usage(1, 5, 0, 2)}, 4.0, no_answer=1)
    both = Summary.merge([one, two])
    assert both == Summary(3, {"S": 3}, {"model": Usage(3, 15, 0, 6)}, 4.0, 1, 1, reused=Usage(1, 5, 0, 3))
    assert both.made_tokens == 3
    assert both.as_metrics()["reused_calls"] == 1
    assert str(both).endswith("; 1 calls came from the store, so this is not a timing")


def test_an_empty_run_has_a_summary() -> None:
    assert Summary.of([], 0.0).as_metrics() == {"no_answer": 0, "cut_reasoning": 0, "reused_calls": 0}
    assert str(Summary.of([], 0.0)).startswith("0 questions")


def test_ctrl_c_cancels_cleanly(tmp_path: Path) -> None:
    """What is in flight is cancelled, what was answered is on disk, and the process ends at once."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from helpers.sessions import PROMPT, engines, items, settings
from mai_plugin.run.session import Session
script = {{"t/0": {{"S": "7"}}, "*": {{"S": {{"text": "7", "e2e_s": 60}}}}}}
with Session(settings(Path({str(tmp_path)!r})), engines(script, script)) as session:
    begin = session.recorder.begin
    session.recorder.begin = lambda *args: (begin(*args), print("running", flush=True))
    session.run(items(session, *[PROMPT] * 50), progress=False)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not load_runs(tmp_path)[0].samples and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT or process.returncode == 1
    assert "KeyboardInterrupt" in errors
    (run,) = load_runs(tmp_path)
    assert (list(run.samples), run.finished, run.wall_s) == (["t/0"], False, None)


class Counted:
    """Takes the place of `load_engines`: scripted engines, and how often they were loaded."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.loaded = error, 0

    def __call__(self, name: str, models: Mapping[str, ModelSpec]) -> dict[str, Engine]:
        self.loaded += 1
        if self.error:
            time.sleep(0.05)  # so that other questions wait for the same loading
            raise self.error
        return {role: ScriptedEngine(model.source) for role, model in models.items()}


@pytest.fixture
def script(tmp_path: Path) -> dict[str, str]:
    """Arguments of a pair that answers everything alike, with the paths of its scripts."""
    for role in ("small", "large"):
        (tmp_path / f"{role}.json").write_text(f'{{"*": {{"S": "7"}}, "{role}": {{}}}}')
    return {role: str(tmp_path / f"{role}.json") for role in ("small", "large")}


def test_a_run_whose_calls_are_all_stored_loads_no_engine(
    tmp_path: Path, script: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load = Counted()
    monkeypatch.setattr("mai_plugin.run.session.load_engines", load)
    line = "mai: all calls came from the store: no model was loaded"
    found = []
    with caplog.at_level("INFO", "mai_plugin"):
        for count, reused in ((2, 0), (2, 4), (3, 4)):
            caplog.clear()
            with Session(settings(tmp_path, **script)) as session:
                _, summary = session.run(items(session, *[PROMPT] * count), progress=False)
            found.append((load.loaded, line in caplog.messages))
            assert (summary.questions, summary.reused.calls) == (count, reused)
    assert found == [(1, False), (1, True), (2, False)]
    assert load_runs(tmp_path)[1].finished


@pytest.mark.parametrize("args", [{"reuse": False}, {"store": "off"}])
def test_where_no_call_can_be_reused_engines_are_loaded_at_once(
    tmp_path: Path, script: dict[str, str], monkeypatch: pytest.MonkeyPatch, args: dict[str, object]
) -> None:
    load = Counted()
    monkeypatch.setattr("mai_plugin.run.session.load_engines", load)
    with Session(settings(tmp_path, **{**script, **args})):
        assert load.loaded == 1


@pytest.mark.parametrize(
    ("error", "line"), [(ValueError("no such model"), "no such model"), (OSError("disk\ngone"), "OSError: disk gone")]
)
def test_an_engine_that_cannot_be_loaded_ends_the_run_and_is_tried_once(
    tmp_path: Path, script: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    with Session(settings(tmp_path, **script)) as session:
        session.run(items(session, PROMPT), progress=False)
    load = Counted(error)
    monkeypatch.setattr("mai_plugin.run.session.load_engines", load)
    with Session(settings(tmp_path, **script)) as session:
        for _ in range(2):
            with pytest.raises(ValueError) as stop:  # noqa: PT011
                session.run(items(session, *[PROMPT] * 20), progress=False)
            assert str(stop.value) == line
        run = session.open_run(["t"])  # as VLMEvalKit asks
        with pytest.raises(Stop):
            run.ask(items(session, *[PROMPT] * 5)[4])
    assert load.loaded == 1
    assert [run.finished for run in load_runs(tmp_path)] == [True, False, False, False]


def test_a_closed_session_loads_nothing(
    tmp_path: Path, script: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Counted()
    monkeypatch.setattr("mai_plugin.run.session.load_engines", load)
    session = Session(settings(tmp_path, **script))
    session.close()
    with pytest.raises(ValueError, match="the session is closed"):
        session.load()
    assert load.loaded == 0


@pytest.mark.parametrize("strategy", ["confident_large", "confident_small"])
def test_an_engine_without_log_probabilities_ends_a_run_that_needs_them(tmp_path: Path, strategy: str) -> None:
    given = engines({"*": {"S": "7"}}, {"*": {"S": "7"}})
    message = r"^the engine of '(small|large)' gives no log-probabilities: use engine=vllm"
    with (
        Session(settings(tmp_path, strategy=strategy, threshold=-1), given) as session,
        pytest.raises(Stop, match=message),
    ):
        session.run(items(session, *[PROMPT] * 30), progress=False)
    (run,) = load_runs(tmp_path)
    assert not run.finished
    assert not run.samples


def test_a_strategy_of_ones_own(tmp_path: Path) -> None:
    """It answers, its bugs fail the question that they are met at, by name, and the others are answered."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from mai_plugin.core.agent import Agent\nfrom mai_plugin.core.records import Outcome\n"
        "async def careful(question, first: Agent, second: Agent | None = None, times: int = 2):\n"
        "    calls = [await first.ask(question, 'S') for _ in range(times)]\n"
        "    if question.id == 't/1':\n        {}['answer']\n"
        "    return Outcome(question.id, 'asked', calls[-1], tuple(calls))\n"
    )
    args = {"engine": "scripted", "first": "s", "store": str(tmp_path), "strategy": f"{file}:careful", "times": 3}
    mine = Settings.from_args("mutual_verification", args)
    assert (mine.name, dict(mine.arguments)) == ("s-careful-times3", {"times": 3})
    with Session(mine, {"first": ScriptedEngine({"*": {"S": "7"}})}) as session:
        results, summary = session.run(items(session, *[PROMPT] * 3), progress=False)
    assert str(results[1]) == "question t/1 could not be answered: KeyError: 'answer'"
    assert [result.answer for result in results if isinstance(result, Outcome)] == ["7", "7"]
    assert (summary.routes, summary.usage["first"].calls) == ({"asked": 2}, 6)
    assert "KeyError" in str(load_runs(tmp_path)[0].samples["t/1"].error)
