"""Runs of a plan without a model: answers by rule, in a real store, with results in lmms-eval's form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.replay_stores import SHORT, question
from mai_plugin.core.agent import Agent, Generate
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.records import Completion, Request
from mai_plugin.harness.lmms_eval.command import Evaluation, EvaluationFailed
from mai_plugin.run.provenance import new_run_id
from mai_plugin.run.store import Store, request_key
from mai_plugin.study.reproduce.plan import Plan, Planned, make_plan, parse_request, settings
from mai_plugin.study.reproduce.runner import _described

N = 40
GOLD = "7"
# small in S, large in S, small in R, small in R-S2, large after the small one's R; by question number modulo 5.
ANSWERS = ["77777", "57777", "56777", "55777", "57474"]
# MAI: agree-simple (0, 3), agree-reason (1), transfer (2 right, 4 wrong); with R(S2) number 4 is agree-reason, and right.
WALL_S = {"S": 10.0, "R": 60.0, "transfer-R": 50.0, "MAI": 20.0}
TOKENS = {"S": 2, "E": 10, "R": 30, "select": 0, "final": 2}


def plan_of(out: Path, **options: Any) -> Plan:
    """A plan from options as they stand on the command line; those not given are None."""
    names = ("tables", "benchmarks", "models", "base_urls", "engine_args")
    return make_plan(parse_request(**{**dict.fromkeys(names), "family": "qwen3-vl", "out": out, **options}))


def text_of(run: Planned, size: str, stage: str, number: int) -> str:
    """What a model generates for a question."""
    small, large, r, r_s2, final = ANSWERS[number % 5]
    short = small if size == "2B" else large
    after = r_s2 if run.need[1].strategy == "single" else final
    answer = {"S": short, "select": r, "final": after}.get(stage, r)
    return f"only {answer}" if stage == "select" else f"Answer: {answer}"


class Pretended:
    """Takes the place of `Evaluation.run`.

    Attributes:
        made: keys of the runs that were run, in order.
        fails: keys of those that are to write no results.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.runs: Mapping[str, Planned] = {run.key: run for run in plan.runs}
        self.made: list[str] = []
        self.fails: set[str] = set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Pretended:
        monkeypatch.setattr(Evaluation, "run", lambda evaluation, log: self.run(evaluation))
        return self

    def run(self, evaluation: Evaluation) -> Path:
        run = self.runs[evaluation.output.name]
        self.made.append(run.key)
        if run.key in self.fails:
            raise EvaluationFailed("lmms-eval wrote no results (exit code 0): out of memory (log: somewhere)")
        wanted = settings(self.plan.request, run)
        folder = evaluation.output / wanted.name
        id = new_run_id(run.key)
        date = f"20990101_{len(list(evaluation.output.rglob('*_results.json'))):06}"
        store = Store(self.plan.request.store)
        environment = {"harness": "lmms-eval", "results": str(folder.absolute()), "tasks": run.tasks}
        store.begin_run(id, wanted.name, wanted.strategy, wanted.engine, _described(wanted), environment)
        strategy = wanted.bind({
            role: Agent(role, self._generate(store, run, role), load_prompts(), wanted.max_reasoning_tokens)
            for role in wanted.models if role != "selector"
        })  # fmt: skip
        samples: dict[str, list[dict[str, Any]]] = {task: [] for task in run.tasks}
        for task in run.tasks:
            for number in range(self.plan.request.limit or N):
                outcome = asyncio.run(strategy(question(f"{task}/{number}", SHORT)))
                returned = outcome.answer
                store.add_outcome(id, outcome, returned)
                score = float(returned == GOLD)
                samples[task].append(
                    {"doc_id": number, "target": GOLD, "filtered_resps": returned, "relaxed_overall": score}
                )
        store.end_run(id, WALL_S.get(str(run.need[1]), 5.0))
        store.close()
        folder.mkdir(parents=True, exist_ok=True)
        results = {}
        for task, lines in samples.items():
            mean = sum(line["relaxed_overall"] for line in lines) / len(lines)
            results[task] = {"alias": task, "relaxed_overall,none": mean}
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{date}_samples_{task}.jsonl").write_text(text)
        file = folder / f"{date}_results.json"
        file.write_text(json.dumps({"model_name": wanted.name, "results": results}))
        return file

    def _generate(self, store: Store, run: Planned, role: str) -> Generate:
        sizes = run.need[0]
        size = sizes[-1] if role == "large" else sizes[0]

        async def generate(request: Request) -> Completion:
            stage, number = request.stage, int(request.question_id.rpartition("/")[2])
            text = text_of(run, size, stage, number)
            tokens = TOKENS[stage] + (number % 3 if stage in ("E", "R") else 0)
            done = Completion(text, 20, 0, tokens, 0.1, 1.0)
            if stage == "select":
                done = replace(done, details={"full_tokens": 30, "kept_tokens": 12 + number % 2})
            key = request_key(f"{run.key if run.timed else ''}{request.question_id}{size}{run.need}", request)
            return replace(done, call_id=store.add_call(key, size, "transformers", request, done))

        return generate
