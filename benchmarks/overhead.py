"""What the package itself costs: runner and strategies on an engine that answers at once.

Questions per second on one core, every question going the whole way; a session's rate with the store off and on; and
whether memory grows with the number of questions: 9,000 with an image of 640 x 480 pixels each against 900, on routes
as POPE's in table 10 of the paper.  What grows is the records of the calls.  `make bench-overhead`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common import machine, median, write
from PIL import Image as PILImage

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Outcome
from mai_plugin.core.strategies import mutual_verification
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Item, run
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings

PROMPTS = load_prompts()
TEXT = "What is the value of the red bar?\nAnswer the question with a single word."
REASONING = "The red bar is as high as 4 lines.\nAnswer: 4"
# Every question goes the whole way: two short answers, a reasoning, a transfer.
SCRIPTS: dict[str, dict[str, dict[str, str]]] = {
    "small": {"*": {"S": "3", "R": REASONING}},
    "large": {"*": {"S": "5", "final": "4"}},
}


def pope_scripts() -> dict[str, dict[str, dict[str, str]]]:
    """Of 9,000 questions 8,507 agree at once and 46 after the reasoning; 447 are transferred (table 10)."""
    large = {}
    for index in range(9000):
        place = index * 7919 % 9000
        large[f"chartqa/{index}"] = {"S": "3" if place < 8507 else "4" if place < 8553 else "5", "final": "4"}
    return {"small": SCRIPTS["small"], "large": large}


def question(id: str, image: PILImage.Image) -> Question:
    """A question as a harness would make it."""
    return Question.from_messages(id, [Message("user", (Image(image), TEXT))], 16, PROMPTS)


def questions_per_s(count: int) -> float:
    """Rate of the runner and the cascade, four calls to a question, one small image for all."""
    image = PILImage.new("RGB", (8, 8))
    agents = {role: Agent(role, ScriptedEngine(script).generate, PROMPTS) for role, script in SCRIPTS.items()}
    items = [Item(f"chartqa/{index}", partial(question, f"chartqa/{index}", image)) for index in range(count)]
    started = time.perf_counter()
    results = asyncio.run(run(items, lambda q: mutual_verification(q, agents["small"], agents["large"])))
    seconds = time.perf_counter() - started
    assert all(isinstance(result, Outcome) and result.route == "transfer" for result in results)
    return count / seconds


def session_questions_per_s(
    count: int, store: str, size: tuple[int, int], scripts: dict[str, dict[str, dict[str, str]]] = SCRIPTS
) -> float:
    """Rate of a whole session, with an image of its own for each question, and with or without the call store."""
    with tempfile.TemporaryDirectory() as folder:
        for role, script in scripts.items():
            (Path(folder) / f"{role}.json").write_text(json.dumps(script), encoding="utf-8")
        args = {"small": f"{folder}/small.json", "large": f"{folder}/large.json", "engine": "scripted"}
        place = "off" if store == "off" else f"{folder}/store"
        with Session(Settings.from_args("mutual_verification", {**args, "store": place})) as session:

            class Items(Sequence[Item]):  # made one by one: what a harness keeps of its documents is not ours
                def __len__(self) -> int:
                    return count

                def __getitem__(self, index: Any) -> Any:
                    if index >= count:
                        raise IndexError
                    id = f"chartqa/{index}"

                    def build() -> Question:
                        image = PILImage.new("RGB", size, (index % 251, index // 251 % 251, 7))
                        return session.question(id, [Message("user", (Image(image), TEXT))], 16)

                    return Item(id, build)

            results, summary = session.run(Items(), progress=False)
            assert len(results) == count
            assert not summary.failed
            return count / summary.wall_s


def growth_mib(count: int) -> float:
    """Peak memory of a session over `count` questions, beyond what the process had before them.  Own process."""
    code = f"import sys; sys.path[:0] = {[str(Path(__file__).parent)]!r}; import overhead; overhead._grow({count})"
    # Freed images go back to the system at once, so that the peak is what was held and not the allocator's holes.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}
    environment = {**os.environ, **allocator}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def _grow(count: int) -> None:
    session_questions_per_s(64, "off", (64, 48))  # imports and first-time allocations
    scripts = pope_scripts()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is counted anew
    before = _peak_mib()
    session_questions_per_s(count, "off", (640, 480), scripts)
    print(_peak_mib() - before)


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    """Measure and write `out/bench/overhead.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--questions", type=int, default=5000)
    options = parser.parse_args()
    where = machine()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core
    rates = [questions_per_s(options.questions) for _ in range(options.repeats)]
    stores = {
        store: [session_questions_per_s(1000, store, (640, 480)) for _ in range(options.repeats)]
        for store in ("off", "on")
    }
    grown = {count: [growth_mib(count) for _ in range(options.repeats)] for count in (900, 9000)}
    keys = {
        "questions_per_s": median(rates),
        "memory_9000_over_900": median([a / b for a, b in zip(grown[9000], grown[900], strict=True)]),
        "session_questions_per_s_640x480": median(stores["off"]),
        "session_questions_per_s_640x480_with_store": median(stores["on"]),
    }
    write("overhead", keys, {"rates": rates, "session_rates": stores, "memory_growth_mib": grown}, where)


if __name__ == "__main__":
    main()
