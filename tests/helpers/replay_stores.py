"""Call stores made from scripted answers, by the package's own strategies, for tests of what reads stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mai_plugin.core import strategies
from mai_plugin.core.agent import Agent, Generate
from mai_plugin.core.agreement import Agree
from mai_plugin.core.agreement import agree as exact
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Message, Outcome, Request
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Failure, Item
from mai_plugin.run.runner import run as answer_all
from mai_plugin.run.store import Store, request_key
from mai_plugin.run.stored import Run

Script = Mapping[str, Mapping[str, Any]]
YES_NO = "Is there a dog in the image?\nAnswer the question using a single word or phrase."
SHORT = "What is the value of the red bar?\nAnswer the question with a single word."


def question(id: str, prompt: str) -> Question:
    return Question.from_messages(id, [Message("user", (f"{id}\n{prompt}",))], 128, load_prompts())


def record(
    path: Path,
    name: str,
    strategy: str,
    models: Mapping[str, str],
    scripts: Mapping[str, Script],
    prompts: Mapping[str, str],
    *,
    style: str = "S",
    two_stage: bool = False,
    agree: Agree = exact,
    engine: str = "scripted",
    environment: Mapping[str, Any] | None = None,
    identities: Mapping[str, str] | None = None,
    reuse: bool = True,
) -> list[Outcome | Failure]:
    """Run a strategy on scripted models and keep it in a store, as a session does.

    Args:
        path: the store's file.
        name: the run's.
        strategy: `mutual_verification`, `single` or `transfer`.
        models: role to model name.
        scripts: role to script.
        prompts: question id to prompt.
        style, two_stage: for `single` and `transfer`.
    """
    store = Store(path)
    store._connection.execute("PRAGMA synchronous = OFF")  # thousands of calls, of which none need last
    known = {role: (identities or {}).get(role, f"id-of-{models[role]}") for role in models}
    agents = {
        role: Agent(role, _keeping(store, ScriptedEngine(scripts[role]), known[role], reuse), load_prompts())
        for role in models
    }
    settings = {
        "models": {role: {"name": models[role], "identity": known[role], "args": {}} for role in models},
        "prompt": style,
        "two_stage": two_stage,
    }
    run_id = f"{name}-{len(list(path.parent.glob('*')))}-{store._connection.execute('SELECT count(*) FROM runs').fetchone()[0]}"
    store.begin_run(run_id, name, strategy, engine, settings, {"harness": "lmms-eval", **(environment or {})})
    items = [Item(id, partial(question, id, prompt)) for id, prompt in prompts.items()]
    results = asyncio.run(answer_all(items, _strategy(strategy, agents, style, two_stage, agree), concurrency=8))
    for result in results:
        if isinstance(result, Failure):
            store.add_failure(run_id, result.question_id, str(result))
        else:
            store.add_outcome(run_id, result, result.answer)
    store.end_run(run_id, 1.0)
    store.close()
    return results


def _strategy(name: str, agents: Mapping[str, Agent], style: Any, two_stage: bool, agree: Agree) -> Any:
    given: dict[str, Any] = {
        "mutual_verification": {"agreement": agree}, "transfer": {"prompt": style},
        "single": {"prompt": style, "two_stage": two_stage},
    }[name]  # fmt: skip
    return partial(strategies.STRATEGIES[name], **agents, **given)


def _keeping(store: Store, engine: ScriptedEngine, identity: str, reuse: bool) -> Generate:
    async def generate(request: Request) -> Any:
        # A script answers by question and stage, whatever the messages are.
        key = request_key(f"{request.question_id} {request.stage} {identity}", request)
        found = store.find(key) if reuse else None
        if found:
            return replace(found[1], reused=True, call_id=found[0])
        done = await engine.generate(request)
        return replace(done, call_id=store.add_call(key, identity, "scripted", request, done))

    return generate


def scorer(gold: Mapping[str, str]) -> Callable[[Run], Run]:
    """Scores by equality with the right answer, in place of a harness."""

    def score(run: Run) -> Run:
        samples = {
            id: replace(sample, score=None if sample.returned is None else float(sample.returned == gold[id]))
            for id, sample in run.samples.items()
        }
        return replace(run, samples=samples)

    return score


def lengths(n: int, mean: float) -> list[int]:
    """Whole numbers with that mean (to 1/n), spread evenly, so that the mean of every part is nearly the same."""
    return [int((i + 1) * mean + 1e-9) - int(i * mean + 1e-9) for i in range(n)]
