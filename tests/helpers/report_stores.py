"""Call stores and lmms-eval output folders for tests, from a few words per question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mai_plugin.core.records import Call, Completion, FinishReason, Message, Outcome, Request
from mai_plugin.run.store import Store

TINY = {"small": "mai-tiny-small", "large": "mai-tiny-large"}
STAGES = {
    "S": (("model", "S"),),
    "E": (("model", "E"),),
    "R": (("model", "R"),),
    "R-S2": (("model", "R"), ("model", "final")),
    "transfer": (("small", "R"), ("large", "final")),
    "agree-simple": (("small", "S"), ("large", "S")),
    "agree-reason": (("small", "S"), ("large", "S"), ("small", "R")),
}
CASCADE_TRANSFER = (("small", "S"), ("large", "S"), ("small", "R"), ("large", "final"))
TOKENS = {"S": 2, "E": 10, "R": 30, "final": 2}
SECONDS = {"S": 0.1, "E": 0.5, "R": 1.0, "final": 0.2}


@dataclass(frozen=True)
class Asked:
    """A question of a run: how it was answered (a key of `STAGES`), what went back, and what the scorer gives."""

    route: str = "S"
    returned: str = "7"
    score: float = 1.0
    target: str = "7"


def add_run(
    store: Store,
    name: str,
    questions: Mapping[str, Sequence[Asked]],
    *,
    strategy: str = "single",
    models: Mapping[str, str] | None = None,
    engine: str = "transformers",
    results: Path | None = None,
    harness: str = "lmms-eval",
    wall_s: float | None = 10.0,
    reused: bool = False,
    failed: Sequence[str] = (),
    finish_reason: FinishReason = "stop",
    id: str | None = None,
) -> str:
    """Write a run into a store.  Questions are `task/0`, `task/1` ...; the small model takes half the time.

    Args:
        store: where to.
        name: its name.
        questions: task to its questions.
        results: the folder that the run remembers as lmms-eval's.
        wall_s: None leaves it unfinished.
        reused: mark every call as taken from the store.
        failed: ids of further questions that could not be answered.

    Returns:
        The run's id: the name, unless `id` is given.
    """
    models = models or {"model": TINY["large"]}
    id = id or name
    described = {role: {"name": model, "identity": f"{model}@1", "args": {}} for role, model in models.items()}
    environment = {"harness": harness, "results": str(results) if results else None}
    store.begin_run(id, name, strategy, engine, {"models": described}, environment)
    request = Request((Message("user", ("How many?",)),), 16)
    for task, asked in questions.items():
        for number, question in enumerate(asked):
            cascade = strategy == "mutual_verification" and question.route == "transfer"
            calls = []
            for role, stage in CASCADE_TRANSFER if cascade else STAGES[question.route]:
                seconds = SECONDS[stage] * (0.5 if role == "small" else 1)
                made = Completion(question.returned, 20, 0, TOKENS[stage], seconds / 10, seconds, finish_reason)
                row = store.add_call(f"{id}/{task}/{number}/{role}/{stage}", models[role], engine, request, made)
                made = replace(made, reused=reused, call_id=row)
                calls.append(Call(role, stage, made, question.returned or None))
            store.add_outcome(
                id, Outcome(f"{task}/{number}", question.route, calls[-1], tuple(calls)), question.returned
            )
    for question_id in failed:
        store.add_failure(id, question_id, "boom")
    if wall_s is not None:
        store.end_run(id, wall_s)
    return id


def write_results(
    folder: Path,
    name: str,
    questions: Mapping[str, Sequence[Asked]],
    *,
    metric: Mapping[str, str] | str = "relaxed_overall",
    date: str = "20990101_000000",
    aggregate: float | None = None,
    samples: bool = True,
) -> Path:
    """Write what lmms-eval writes for a run whose metrics are means.

    Args:
        metric: the metric, or task to metric.
        aggregate: what to give as the aggregate in place of the mean.
        samples: whether it was run with `--log_samples`.

    Returns:
        The results file.
    """
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for task, asked in questions.items():
        own = metric if isinstance(metric, str) else metric[task]
        mean = sum(question.score for question in asked) / len(asked)
        results[task] = {"alias": task, f"{own},none": mean if aggregate is None else aggregate}
        if samples:
            lines = [
                {"doc_id": number, "target": question.target, "filtered_resps": question.returned, own: question.score}
                for number, question in enumerate(asked)
            ]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (place / f"{date}_samples_{task}.jsonl").write_text(text)
    file = place / f"{date}_results.json"
    file.write_text(json.dumps({"model_name": name, "results": results}))
    return file


def demo_store(folder: Path, n: int = 40, metric: Mapping[str, str] | None = None) -> Store:
    """A cascade and its baselines on two benchmarks, scored: routes and scores follow a fixed pattern."""
    store = Store(folder / "calls.sqlite")
    metric = metric or {"chartqa": "relaxed_overall", "realworldqa": "exact_match"}

    def add(name: str, routes: Sequence[str], right_of_ten: Sequence[int], wall_s: float, **how: Any) -> None:
        questions = {
            task: [
                Asked(routes[number % len(routes)], "7" if number % 10 < right else "8", float(number % 10 < right))
                for number in range(n)
            ]
            for task, right in zip(metric, right_of_ten, strict=True)
        }
        add_run(store, name, questions, results=folder / "results", wall_s=wall_s, **how)
        write_results(folder / "results", name, questions, metric=metric)

    for role, scores in (("small", (5, 4)), ("large", (7, 6))):
        model = {"model": TINY[role]}
        add(f"tiny-{role}-S", ["S"], scores, 4.0, models=model)
        add(f"tiny-{role}-E", ["E"], [score + 1 for score in scores], 12.0, models=model)
        add(f"tiny-{role}-R", ["R"], [score + 2 for score in scores], 30.0 if role == "small" else 60.0, models=model)
    add("MAI-tiny-transfer-R", ["transfer"], (9, 9), 36.0, models=TINY, strategy="transfer")
    add(
        "MAI-tiny", ["agree-simple"] * 3 + ["agree-reason", "transfer"], (9, 8), 18.0, models=TINY,
        strategy="mutual_verification",
    )  # fmt: skip
    return store
