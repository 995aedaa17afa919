"""Nothing is answered twice: sharing between runs, equal questions in flight, killed runs, a store that fails."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage

from mai_plugin.core.records import Completion, Image, Message, Outcome, Request
from mai_plugin.engines.base import Engine, EngineError
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Failure, Item, Result
from mai_plugin.run.session import Session
from mai_plugin.run.stored import load_runs
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

PROMPT = "How many?\nAnswer the question with a single word."
SMALL = {f"t/{n}": {"S": "7" if n % 3 else "8", "R": f"Hm.\nAnswer: {7 if n % 2 else 9}"} for n in range(12)}
LARGE = {"*": {"S": {"text": "7", "ttft_s": 0.25, "e2e_s": 0.0}, "R": "So.\nAnswer: 7", "final": "7"}}


class Model:
    """Writes back how often it had been asked; not a script, so that the messages alone tell its calls apart."""

    def __init__(self, seconds: float = 0.0, failures: int = 0) -> None:
        self.seconds, self.failures, self.made = seconds, failures, 0

    async def generate(self, request: Request) -> Completion:
        self.made += 1
        number = self.made
        await asyncio.sleep(self.seconds)
        if number <= self.failures:
            raise EngineError("out of memory")
        return Completion(f"{number}", 5, 0, 1, 0.5, 1.0)

    def close(self) -> None: ...


def items(session: Session, prompts: list[str]) -> list[Item]:
    def item(index: int, prompt: str) -> Item:
        picture = Image(PILImage.new("RGB", (4, 4), "red"))
        return Item(f"t/{index}", lambda: session.question(f"t/{index}", [Message("user", (picture, prompt))], 16))

    return [item(index, prompt) for index, prompt in enumerate(prompts)]


def answer(
    store: Path | str, strategy: str, engines: dict[str, Engine], prompts: list[str], **args: Any
) -> tuple[list[Result], Summary]:
    models = {role: role for role in engines}
    settings = Settings.from_args(strategy, {"engine": "scripted", "store": str(store), **models, **args})  # type: ignore[arg-type]
    with Session(settings, engines) as session:
        return session.run(items(session, prompts), progress=False)


def texts(results: list[Result]) -> list[Any]:
    return [
        (result.question_id, result.route, result.answer, [(c.role, c.stage, c.text, c.usage) for c in result.calls])
        for result in results
        if isinstance(result, Outcome)
    ]


def test_runs_of_a_pair_share_calls(tmp_path: Path) -> None:
    """After MAI: the same again and large-S make no call, large-R and transfer make what is new to them."""

    def asked(strategy: str, **args: Any) -> tuple[Counter[str], Summary, list[Result]]:
        names = {"mutual_verification": "pair", "transfer": "pair"}
        roles = ("small", "large") if strategy in names else ("model",)
        engines = {role: ScriptedEngine(SMALL if role == "small" else LARGE) for role in roles}
        results, summary = answer(tmp_path, strategy, engines, [PROMPT] * 12, **args)  # type: ignore[arg-type]
        assert len(results) == summary.questions == 12
        requests = [f"{role} {r.stage}" for role, engine in engines.items() for r in engine.requests]
        return Counter(requests), summary, results

    made, first, results = asked("mutual_verification")
    assert made == {"small S": 12, "large S": 12, "small R": 4, "large final": 2}
    assert first.reused.calls == 0
    again, second, repeated = asked("mutual_verification")
    assert not again
    assert texts(repeated) == texts(results)
    assert (second.reused.calls, second.made_tokens, second.usage) == (30, 0, first.usage)
    assert "30 calls came from the store, so this is not a timing" in str(second)

    alone, summary, results = asked("single", prompt="S")
    assert not alone
    assert summary.reused.calls == 12
    assert isinstance(results[0], Outcome)
    assert results[0].final.completion.reused
    assert results[0].final.completion.ttft_s == 0.25  # as it was made
    assert asked("single", prompt="R")[0] == {"model R": 12}
    assert asked("transfer")[0] == {"small R": 8, "large final": 10}

    runs = {run.name: run for run in load_runs(tmp_path)}
    assert {name: run.reused_calls for name, run in runs.items()} == {
        "small+large-MAI": 30, "model-S": 12, "model-R": 0, "small+large-transfer-R": 6,
    }  # fmt: skip
    assert all(run.finished for run in runs.values())
    models = runs["small+large-MAI"].settings["models"]
    assert models["large"]["identity"] == runs["model-S"].settings["models"]["model"]["identity"]


def test_equal_questions_in_flight_make_one_call(tmp_path: Path) -> None:
    model = Model(seconds=0.05)
    results, summary = answer(tmp_path, "single", {"model": model}, ["One?", "One?", "Two?", "One?"])
    assert model.made == 2
    calls = [result.final.completion for result in results if isinstance(result, Outcome)]
    assert len({calls[0].call_id, calls[1].call_id, calls[3].call_id}) == 1
    assert calls[0].text == calls[1].text == calls[3].text
    assert sorted(call.reused for call in calls) == [False, False, True, True]
    assert (summary.reused.calls, summary.usage["model"].calls) == (2, 4)


def test_an_equal_question_tries_again_where_the_first_one_failed(tmp_path: Path) -> None:
    model = Model(seconds=0.02, failures=1)
    results, _ = answer(tmp_path, "single", {"model": model}, ["One?", "One?", "One?"])
    assert model.made == 2
    assert sum(isinstance(result, Failure) for result in results) == 1
    assert load_runs(tmp_path)[0].finished


def test_a_script_answers_by_question_whatever_the_messages_are(tmp_path: Path) -> None:
    model = ScriptedEngine({"t/0": {"S": "7"}, "t/1": {"S": "8"}})
    results, _ = answer(tmp_path, "single", {"model": model}, [PROMPT, PROMPT])
    assert [result.answer for result in results if isinstance(result, Outcome)] == ["7", "8"]


def test_reuse_false_makes_every_call_anew_and_keeps_it(tmp_path: Path) -> None:
    model = Model()
    prompts = ["One?", "One?", "Two?"]
    for _ in range(2):
        _, summary = answer(tmp_path, "single", {"model": model}, prompts, reuse=False)
        assert summary.reused.calls == 0
    assert model.made == 6
    assert [run.reused_calls for run in load_runs(tmp_path)] == [0, 0]
    results, _ = answer(tmp_path, "single", {"model": model}, prompts)
    assert model.made == 6
    assert isinstance(results[2], Outcome)
    assert int(results[2].final.text) <= 3  # the first one made


def test_calls_of_another_engine_are_reused_only_where_engines_are_shared(tmp_path: Path) -> None:
    made = []
    for engine, share in (("openai", False), ("vllm", False), ("vllm", False), ("transformers", True)):
        # The identity is the same: a served model with a revision, and a name with that revision on the Hub.
        args = {"engine": engine, "model": "org/m", "engine_args": {"revision": "1"}, "share_engines": share}
        if engine == "openai":
            args["base_url"] = "http://a/v1"
        model = Model()
        settings = Settings.from_args("single", {**args, "store": str(tmp_path)})
        with Session(settings, {"model": model}) as session:
            _, summary = session.run(items(session, ["One?", "Two?"]), progress=False)
        assert model.made + summary.reused.calls == 2
        made.append(model.made)
    assert made == [2, 2, 0, 0]
    assert len({run.settings["models"]["model"]["identity"] for run in load_runs(tmp_path)}) == 1


def test_failures_are_asked_again(tmp_path: Path) -> None:
    first, _ = answer(tmp_path, "single", {"model": Model(failures=1)}, ["One?", "Two?"])
    assert [isinstance(result, Failure) for result in first].count(True) == 1
    model = Model()
    again, _ = answer(tmp_path, "single", {"model": model}, ["One?", "Two?"])
    assert model.made == 1
    assert all(isinstance(result, Outcome) for result in again)


def test_a_disk_that_fills_up_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.from_args("single", {"engine": "scripted", "model": "m", "store": str(tmp_path)})
    model = Model()
    prompts = [f"Number {number} {'x' * 200}?" for number in range(400)]
    with Session(settings, {"model": model}) as session:
        assert session.recorder is not None
        connection = session.recorder.store._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
        results, summary = session.run(items(session, prompts), progress=False)
    assert (len(results), summary.questions, summary.failed) == (400, 400, 0)
    assert caplog.text.count("database or disk is full; the run continues, what follows is not stored") == 1
    (run,) = load_runs(tmp_path)
    assert (run.finished, run.wall_s) == (False, None)
    assert 0 < len(run.samples) < 400
    # What was kept is sound, and the next run goes on from there.
    with Session(settings, {"model": model}) as session:
        _, summary = session.run(items(session, prompts), progress=False)
    assert 0 < summary.reused.calls < 400
    assert model.made == 800 - summary.reused.calls
    assert load_runs(tmp_path)[-1].finished


def test_a_store_that_cannot_be_written_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    settings = Settings.from_args("single", {"engine": "scripted", "model": "m", "store": str(tmp_path)})
    model = Model()
    with Session(settings, {"model": model}) as session:
        assert session.recorder is not None
        session.recorder.store._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(ValueError, match=r"call store .*readonly database; give another file \(store=PATH\)"):
            session.run(items(session, ["One?"]), progress=False)
    assert model.made == 0


KILLED = """
import json, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_recorder import items
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.session import Session
from mai_plugin.run.store import request_key
from mai_plugin.settings import Settings

folder, n = Path(sys.argv[2]), int(sys.argv[3])
log = (folder / "requests.log").open("a", buffering=1)
finished = (folder / "finished.log").open("ab", buffering=0)

class Logged(ScriptedEngine):
    async def generate(self, request):
        log.write(f"{request.question_id} {request.stage}\\n")
        done = await super().generate(request)
        finished.write(b".")
        return done

def script(seed):
    chosen = random.Random(seed)
    def answer(text):
        return {"text": text, "e2e_s": chosen.uniform(0.01, 0.04)}
    return {f"t/{i}": {"S": answer(chosen.choice("78")), "R": answer("Hm. Answer: " + chosen.choice("78")),
                       "final": answer(chosen.choice("789"))} for i in range(n)}

settings = Settings.from_args("mutual_verification", {
    "engine": "scripted", "small": "s", "large": "l", "store": str(folder / "store"), "concurrency": 8})
with Session(settings, {"small": Logged(script(1)), "large": Logged(script(2))}) as session:
    print("running", flush=True)
    results, summary = session.run(items(session, [f"How many {i}?" for i in range(n)]), progress=False)
json.dump([[r.question_id, r.route, r.answer, [[c.role, c.stage, c.text, c.completion.output_tokens] for c in r.calls]]
           for r in results], (folder / "results.json").open("w"))
"""


def run_killed(folder: Path, n: int, after: int | None = None) -> list[str]:
    """Answer n questions in a process, killed when its engines got `after` requests if that is given; what they got."""
    folder.mkdir(exist_ok=True)
    log = folder / "requests.log"
    log.write_text("")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(folder), str(n)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    if after is not None:
        while log.read_text().count("\n") < after and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == (0 if after is None else -signal.SIGKILL)
    return [line for line in log.read_text().splitlines() if line]


def calls_kept(folder: Path) -> list[str]:
    connection = sqlite3.connect(folder / "store" / "calls.sqlite")
    rows = connection.execute("SELECT question_id, stage, model FROM calls").fetchall()
    connection.close()
    return [f"{question} {stage} {model}" for question, stage, model in rows]


def test_killed_at_five_random_moments_nothing_is_made_again(tmp_path: Path) -> None:
    n, moments = 120, random.Random(time.time_ns())
    undisturbed = run_killed(tmp_path / "undisturbed", n)
    expected = json.loads((tmp_path / "undisturbed" / "results.json").read_text())

    folder, requests, kept = tmp_path / "killed", 0, 0
    for _ in range(5):
        before = calls_kept(folder) if (folder / "store").exists() else []
        asked = run_killed(folder, n, after=moments.randint(10, 60))
        requests += len(asked)
        after = calls_kept(folder)
        assert after[: len(before)] == before  # nothing lost
        assert (
            len(asked) - (len(after) - len(before)) <= 16
        )  # not kept is only what was in flight: 8 questions, 2 calls
        kept = len(after)
    last = run_killed(folder, n)
    assert len(last) == len(undisturbed) - kept  # no call that was kept is made again
    assert json.loads((folder / "results.json").read_text()) == expected
    calls = calls_kept(folder)
    assert sorted(calls) == sorted(calls_kept(tmp_path / "undisturbed"))
    assert max(Counter(calls).values()) == 1
    runs = load_runs(folder / "store")
    assert [run.finished for run in runs][-1]
    assert not any(run.finished for run in runs[:-1])
    again = (folder / "finished.log").stat().st_size - len(undisturbed)
    print(
        f"killed five times: {len(undisturbed)} calls, {kept} kept before the last start, none of them made again; "
        f"{requests + len(last) - len(undisturbed)} in flight when killed, {again} of them finished but not yet kept"
    )
