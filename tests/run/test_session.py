"""Models loaded once, a loop in a thread: results, journal, failures, closing, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mai_plugin.core.records import Message, Outcome, Usage
from mai_plugin.engines.base import Engine
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Failure, Item
from mai_plugin.run.session import Session
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

PROMPT = "How many?\nAnswer the question with a single word."


def settings(folder: Path, **args: object) -> Settings:
    return Settings.from_args(
        "mutual_verification", {"engine": "scripted", "small": "s", "large": "l", "store": str(folder), **args}
    )


def engines(small: dict[str, object], large: dict[str, object]) -> dict[str, Engine]:
    return {"small": ScriptedEngine(small), "large": ScriptedEngine(large)}  # type: ignore[dict-item]


def items(session: Session, *prompts: str) -> list[Item]:
    def item(index: int, prompt: str) -> Item:
        name = f"t/{index}"
        return Item(name, lambda: session.question(name, [Message("user", (prompt,))], 16))

    return [item(index, prompt) for index, prompt in enumerate(prompts)]


def test_results_summary_and_journal(tmp_path: Path) -> None:
    small = {"t/0": {"S": "7"}, "t/1": {"S": "8", "R": "Hm.\nAnswer: 9"}, "t/3": {"S": {"error": "boom"}}}
    large = {"*": {"S": "7", "final": "9"}}
    with Session(settings(tmp_path), engines(small, large)) as session:  # type: ignore[arg-type]
        results, summary = session.run(items(session, PROMPT, PROMPT, "", PROMPT), progress=False)
        assert session.journal is not None
        path = session.journal.path
    first, second, third, fourth = results
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert (first.answer, second.answer) == ("7", "9")
    assert isinstance(third, Failure)
    assert isinstance(fourth, Failure)
    assert summary.routes == {"agree-simple": 1, "transfer": 1}
    assert (summary.questions, summary.failed) == (2, 2)
    assert "2 questions in" in str(summary)
    assert "2 failed" in str(summary)
    lines = {line["question"]: line for line in map(json.loads, path.read_text().splitlines())}
    assert lines["t/1"]["route"] == "transfer"
    assert lines["t/1"]["returned"] == "9"
    assert [(call["role"], call["stage"]) for call in lines["t/1"]["calls"]] == [
        ("small", "S"), ("large", "S"), ("small", "R"), ("large", "final"),
    ]  # fmt: skip
    assert "boom" in lines["t/3"]["error"]


def test_nothing_is_written_with_store_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(settings(tmp_path, store="off"), engines({}, {})) as session:
        session.run(items(session, PROMPT), progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"argument store=.*; give a folder to write to, or store=off"):
        Session(settings(tmp_path / "file"), engines({}, {}))


def test_a_full_disk_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Session(settings(tmp_path), engines({"*": {"S": "7"}}, {"*": {"S": "7"}})) as session:  # type: ignore[arg-type]
        assert session.journal is not None

        def full() -> None:
            raise OSError(28, "No space left on device")

        session.journal._file.flush = full  # type: ignore[method-assign]
        results, _ = session.run(items(session, *[PROMPT] * 5), progress=False)
    assert all(isinstance(result, Outcome) for result in results)
    assert caplog.text.count("No space left on device; the run goes on") == 1


def test_a_lone_surrogate_is_kept(tmp_path: Path) -> None:
    with Session(settings(tmp_path), engines({"*": {"S": "\ud800 hi"}}, {"*": {"S": "\ud800 hi"}})) as session:  # type: ignore[arg-type]
        results, _ = session.run(items(session, PROMPT), progress=False)
    assert isinstance(results[0], Outcome)
    (journal,) = tmp_path.rglob("*.jsonl")
    assert json.loads(journal.read_text())["returned"] == "\ud800 hi"


def test_a_closed_session_says_so_and_a_failed_one_leaves_no_file(tmp_path: Path) -> None:
    session = Session(settings(tmp_path), engines({}, {}))
    session.close()
    with pytest.raises(ValueError, match="the session is closed"):
        session.run([])
    with pytest.raises(ValueError, match="script s"):
        Session(settings(tmp_path / "failed"))
    assert not list((tmp_path / "failed").rglob("*.jsonl"))


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
    one = Summary(2, {"S": 2}, {"model": Usage(2, 10, 0, 4)}, 3.0, failed=1)
    two = Summary(1, {"S": 1}, {"model": Usage(1, 5, 0, 2)}, 4.0, no_answer=1)
    assert Summary.merge([one, two]) == Summary(3, {"S": 3}, {"model": Usage(3, 15, 0, 6)}, 4.0, 1, 1)


def test_an_empty_run_has_a_summary() -> None:
    assert Summary.of([], 0.0).as_metrics() == {"no_answer": 0, "cut_reasoning": 0}
    assert str(Summary.of([], 0.0)).startswith("0 questions")


def test_ctrl_c_cancels_cleanly(tmp_path: Path) -> None:
    """What is in flight is cancelled, what was answered is on disk, and the process ends at once."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_session import PROMPT, engines, items, settings
from mai_plugin.run.session import Session
script = {{"t/0": {{"S": "7"}}, "*": {{"S": {{"text": "7", "e2e_s": 60}}}}}}
with Session(settings(Path({str(tmp_path)!r})), engines(script, script)) as session:
    print("running", flush=True)
    session.run(items(session, *[PROMPT] * 50), progress=False)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not "".join(path.read_text() for path in tmp_path.rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT or process.returncode == 1
    assert "KeyboardInterrupt" in errors
    (journal,) = tmp_path.rglob("*.jsonl")
    assert [json.loads(line)["question"] for line in journal.read_text().splitlines()] == ["t/0"]
