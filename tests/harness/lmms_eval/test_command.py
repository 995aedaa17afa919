"""One command of lmms-eval, with a small program in its place that fails or writes what it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mai_plugin.harness.lmms_eval.command import Evaluation, EvaluationFailed, results


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    return Evaluation("mai_single", "preset=x", ["chartqa", "pope"], 4, tmp_path / "results", 5)


def program(folder: Path, text: str) -> None:
    file = folder / "lmms-eval"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_its_words(evaluation: Evaluation) -> None:
    assert evaluation.command() == [
        "lmms-eval", "--model", "mai_single", "--model_args", "preset=x", "--tasks", "chartqa,pope", "--batch_size", "4",
        "--limit", "5", "--output_path", str(evaluation.output), "--log_samples",
    ]  # fmt: skip


def test_results_are_what_counts(evaluation: Evaluation, tmp_path: Path) -> None:
    """Not those of an earlier run; and not the exit code, which is 0."""
    old = evaluation.output / "name" / "20200101_000000_results.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"old": true}')
    program(tmp_path, 'echo "mai: the disk is full"; echo "see you"; exit 0')
    with pytest.raises(
        EvaluationFailed, match=r"no results \(exit code 0\): mai: the disk is full \(log: .*run\.log\)"
    ):
        evaluation.run(tmp_path / "logs" / "run.log")
    program(tmp_path, "echo '{\"score\": 1}' > results/name/20260101_000000_results.json; exit 1")
    assert results(evaluation.run(tmp_path / "run.log", tmp_path)) == {"score": 1}
    assert old.is_file()


def test_without_a_line_of_ours_the_last_one_tells(evaluation: Evaluation, tmp_path: Path) -> None:
    program(tmp_path, 'echo "first"; echo "CUDA error" >&2; echo')
    with pytest.raises(EvaluationFailed, match="CUDA error"):
        evaluation.run(tmp_path / "run.log")
    program(tmp_path, "exit 3")
    with pytest.raises(EvaluationFailed, match=r"exit code 3\): no output"):
        evaluation.run(tmp_path / "run.log")


def test_variables_reach_it(evaluation: Evaluation, tmp_path: Path) -> None:
    program(tmp_path, 'mkdir -p results; echo "{\\"x\\": \\"$MARK\\"}" > results/1_results.json')
    assert results(evaluation.run(tmp_path / "run.log", tmp_path, {"MARK": "here"})) == {"x": "here"}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's prctl")
def test_a_run_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """It would go on beside the one that resumes it."""
    program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    code = (
        "import sysconfig\n"
        "from pathlib import Path\n"
        "from mai_plugin.harness.lmms_eval.command import Evaluation\n"
        f"sysconfig.get_path = lambda name: {str(tmp_path)!r}\n"
        f"Evaluation('m', '', ['t'], 1, Path({str(tmp_path)!r}, 'out')).run(Path({str(tmp_path)!r}, 'log'))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    pid, until = tmp_path / "pid", time.monotonic() + 60
    while not (pid.is_file() and pid.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.02)
    child = Path("/proc", pid.read_text().strip(), "cmdline")
    while not child.read_bytes() and time.monotonic() < until:  # empty while it becomes another program
        time.sleep(0.02)
    assert b"sleep" in child.read_bytes() or b"lmms-eval" in child.read_bytes()
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while child.is_file() and child.read_bytes() and time.monotonic() < until:  # a zombie has no command line
        time.sleep(0.02)
    left = child.is_file() and child.read_bytes()
    if left:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert not left
