"""What a large call store costs: to open it, and to report on it.

Two stores, of one MAI run each, as a run over lmms-eval leaves them: 450,000 calls of 200,000 questions (two short
answers each; of twenty questions one takes a reasoning too, two a reasoning and a transfer), and a hundredth of that.
They are made by a fixed rule, through the real schema and with real checksums, and the harness's results and samples
lie beside them, so that `mai report` scores them.  Times are of fresh processes.  `make bench-store`.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import machine, median, write
from PIL import Image as PILImage

from mai_plugin.core.records import Completion, Image, Message, Request
from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, TRANSFER
from mai_plugin.run.store import ADD_CALL, Store, call_row, pack, request_key

RUN = "MAI-scripted"
TASK = "chartqa"
QUESTIONS = 200_000
PROMPT = "What is the value of the {} bar in the chart of {}?\nAnswer the question with a single word."
STEP = "Step {}: the bar of {} reaches the grid line of {}, and each grid line is {} units above the one below it. "
SECONDS = {"S": 0.05, "R": 1.5, "final": 0.08}
STAGES = {
    AGREE_SIMPLE: (("small", "S"), ("large", "S")),
    AGREE_REASON: (("small", "S"), ("large", "S"), ("small", "R")),
    TRANSFER: (("small", "S"), ("large", "S"), ("small", "R"), ("large", "final")),
}

OPEN = """
import sys, time
from pathlib import Path
from mai_plugin.run.store import Store
paths, repeats = [Path(path) for path in sys.argv[2:]], int(sys.argv[1])
for _ in range(repeats):
    for path in paths:
        started = time.perf_counter()
        store = Store(path)
        print(time.perf_counter() - started)
        store.close()
"""
# A small process starts the report: the peak of a child counts what its parent had when it was started.
REPORT = """
import os, subprocess, sys, time
started = time.perf_counter()
with open(os.devnull, "w") as nowhere:
    process = subprocess.Popen([sys.executable, "-m", "mai_plugin.cli", *sys.argv[1:]], stdout=nowhere)
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - started, usage.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Asked:
    """A question of the run: its number decides everything."""

    number: int

    @property
    def id(self) -> str:
        return f"{TASK}/{self.number}"

    @property
    def route(self) -> str:
        place = self.number * 7919 % 20
        return AGREE_SIMPLE if place < 17 else AGREE_REASON if place == 17 else TRANSFER

    @property
    def answer(self) -> str:
        return str(self.number * 31 % 997)

    @property
    def score(self) -> float:
        return float(self.number * 13 % 10 < 8)

    @property
    def prompt(self) -> str:
        return PROMPT.format(("red", "blue", "green")[self.number % 3], 1900 + self.number % 125)

    def calls(self) -> Iterator[tuple[str, Request, Completion, str]]:
        """Role, request, completion and answer of each call."""
        image = Image(PILImage.new("RGB", (2, 2), (self.number % 256, self.number // 256 % 256, self.number // 65536)))
        message = Message("user", (image, self.prompt))
        reasoning = "".join(STEP.format(step, 1900 + self.number % 125, step * 10, 10) for step in range(1, 7))
        for role, stage in STAGES[self.route]:
            wrong = self.route != AGREE_SIMPLE and (role, stage) == ("small", "S")
            answer = "0" if wrong else self.answer
            text = f"{reasoning}\nAnswer: {answer}" if stage == "R" else answer
            after = (Message("assistant", (reasoning,)), Message("user", (self.prompt,))) if stage == "final" else ()
            request = Request((message, *after), 512 if stage == "R" else 16, self.id, stage)
            seconds = SECONDS[stage] * (1 + self.number % 1013 / 1013)
            tokens = len(text) // 4 + 2
            prompt_tokens = 400 + self.number % 211
            yield role, request, Completion(text, prompt_tokens, 0, tokens, seconds / 5, seconds, "stop", -0.1), answer


def build(folder: Path, questions: int) -> int:
    """Write a store and, beside it, what lmms-eval writes for its run.

    Returns:
        The number of calls.
    """
    path = folder / "calls.sqlite"
    store = Store(path)
    models = {role: {"name": f"org/{role}", "identity": f"org/{role}@1", "args": {}} for role in ("small", "large")}
    environment = {"harness": "lmms-eval", "results": str(folder / "results")}
    store.begin_run("run", RUN, "mutual_verification", "scripted", {"models": models}, environment)
    store.close()
    calls: list[tuple[Any, ...]] = []
    used: list[tuple[Any, ...]] = []
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    made = 0
    for number in range(questions):
        asked = Asked(number)
        for position, (role, request, done, answer) in enumerate(asked.calls()):
            identity = models[role]["identity"]
            calls.append(call_row(request_key(str(identity), request), str(identity), "scripted", request, done))
            made += 1
            used.append(("run", asked.id, position, role, request.stage, pack(answer), made, 0))
        if len(calls) > 10_000 or number == questions - 1:
            connection.executemany(ADD_CALL, calls)
            connection.executemany("INSERT INTO outcome_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)", used)
            calls, used = [], []
    every = (Asked(number) for number in range(questions))
    connection.executemany(
        "INSERT INTO outcomes VALUES ('run', ?, ?, ?, ?, NULL)",
        ((asked.id, asked.route, asked.answer, asked.answer) for asked in every),
    )
    connection.execute("COMMIT")
    connection.close()
    store = Store(path)
    store.end_run("run", 3600.0)
    store.close()
    _write_results(folder / "results" / RUN, questions)
    return made


def _write_results(folder: Path, questions: int) -> None:
    folder.mkdir(parents=True)
    total = 0.0
    with (folder / f"20990101_000000_samples_{TASK}.jsonl").open("w", encoding="utf-8") as file:
        for number in range(questions):
            asked = Asked(number)
            total += asked.score
            split = "relaxed_human_split" if number % 2 else "relaxed_augmented_split"
            line = {
                "doc_id": number, "target": asked.answer, "filtered_resps": asked.answer,
                "token_counts": [{"input_tokens": None, "output_tokens": 30, "reasoning_tokens": None}],
                "doc_hash": f"{number:064x}", "relaxed_overall": asked.score, split: asked.score,
                "input": asked.prompt,
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    results = {TASK: {"alias": TASK, "relaxed_overall,none": total / questions, "relaxed_overall_stderr,none": 0.001}}
    content = {"model_name": RUN, "results": results}
    (folder / "20990101_000000_results.json").write_text(json.dumps(content), encoding="utf-8")


def python(code: str, *args: object) -> list[float]:
    """The numbers that a fresh Python process prints."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return [float(word) for word in subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()]


def main() -> None:
    """Measure and write `out/bench/store.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--opens", type=int, default=200, help="in one process, for open_ratio")
    options = parser.parse_args()
    where = machine()
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        calls, few = build(large, QUESTIONS), build(small, QUESTIONS // 100)
        files = [large / "calls.sqlite", small / "calls.sqlite"]
        size_mib = round(files[0].stat().st_size / 2**20)
        opened = [python(OPEN, 1, files[0])[0] for _ in range(options.repeats)]
        both = [python(OPEN, options.opens, *files) for _ in range(options.repeats)]
        ratios = [median(times[::2]) / median(times[1::2]) for times in both]
        reports = [python(REPORT, "report", "--store", large) for _ in range(options.repeats)]
    keys = {
        "calls": calls,
        "open_s": median(opened),
        "report_s": median([seconds for seconds, _ in reports]),
        "report_mb": median([mib for _, mib in reports]),
        "open_ratio": median(ratios),
    }
    more = {"small_calls": few, "store_mib": size_mib, "opened_s": opened, "open_ratios": ratios, "reports": reports}
    write("store", keys, more, where)


if __name__ == "__main__":
    main()
