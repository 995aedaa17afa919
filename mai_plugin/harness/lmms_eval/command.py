"""One `lmms-eval` command: its words, a run of it with a log, and the results file that tells whether it came off."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = "[0-9]*_results.json"
"""Results files.  Some benchmarks keep files of their own, also called *_results.json, in submissions/."""
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class EvaluationFailed(RuntimeError):
    """A run of lmms-eval came to no result; the message says where its log is."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation by lmms-eval.

    Attributes:
        model: as in `--model`.
        model_args: as in `--model_args`.
        tasks: names of tasks.
        batch_size: as in lmms-eval.
        output: folder for its results.
        limit: questions per task; None for all.
    """

    model: str
    model_args: str
    tasks: Sequence[str]
    batch_size: int
    output: Path
    limit: int | None = None

    def command(self) -> list[str]:
        """The command line."""
        limit = [] if self.limit is None else ["--limit", str(self.limit)]
        return [
            "lmms-eval", "--model", self.model, "--model_args", self.model_args, "--tasks", ",".join(self.tasks),
            "--batch_size", str(self.batch_size), *limit, "--output_path", str(self.output), "--log_samples",
        ]  # fmt: skip

    def run(self, log: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Path:
        """Run it and wait for its end.  It ends with this process, however that ends (on Linux).

        Args:
            log: file for all that it prints.
            folder: where to run it, and what `output` is relative to; default: the working directory.
            environment: variables to set for it beside this process's own.

        Returns:
            The results file.

        Raises:
            EvaluationFailed: it wrote no results.  Its exit code is 0 on most failures, so that is what counts.
        """
        program, *arguments = self.command()
        output = (folder or Path()) / self.output
        before = set(output.rglob(RESULTS))
        log.parent.mkdir(parents=True, exist_ok=True)
        executable = Path(sysconfig.get_path("scripts")) / program
        if not executable.is_file():
            raise EvaluationFailed(f"there is no {executable}: pip install 'mai-plugin[lmms-eval]'")
        with log.open("w", encoding="utf-8") as stream:
            done = subprocess.run(
                [str(executable), *arguments], cwd=folder, stdout=stream,
                stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, check=False,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
        found = sorted(set(output.rglob(RESULTS)) - before)
        if not found:
            raise EvaluationFailed(f"lmms-eval wrote no results (exit code {done.returncode}): {_last_word(log)}")
        return found[-1]


def results(file: Path) -> dict[str, Any]:
    """What a results file holds."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _last_word(log: Path) -> str:
    """Why it failed, as far as one line tells: our models' own last line, else the last line of all."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("mai: ")]
    return f"{(ours or lines or ['no output'])[-1]} (log: {log})"


def _end_with_parent() -> None:
    # A killed parent could not end its run, which would run on beside the one that resumes it, and make calls twice.
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
