"""What a call store knows about each question for one pair of models: every call, and every score of an answer."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mai_plugin.core.prompts import Prompts, load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Image, Kind, Message
from mai_plugin.run.stored import Run, Sample, store_file

Step = tuple[str, str]
"""Role and step: a stage, or what a `final` call read (`R-S2`: its own reasoning, `transfer-R`: the small model's)."""


@dataclass(frozen=True)
class Pair:
    """A small and a large model, by the identities that the store knows them by, and their names."""

    identity: Mapping[str, str]
    names: Mapping[str, str]

    def roles(self, run: Run) -> dict[str, str]:
        """What a run calls its models -> their role in the pair.  Empty if the run tells nothing of the pair.

        A run of two models is of use only if both are the pair's: its reasoning and its answers mix.
        """
        used = {own: model["identity"] for own, model in run.settings["models"].items()}
        if set(used) == {"small", "large"}:
            return {"small": "small", "large": "large"} if used == dict(self.identity) else {}
        by_identity = {self.identity[role]: role for role in ("large", "small")}
        return {own: by_identity[identity] for own, identity in used.items() if identity in by_identity}


@dataclass(frozen=True)
class Stored:
    """One question, as far as it was ever answered.

    Attributes:
        id: `task/doc_id`.
        kind: what an answer looks like: what counts as agreement depends on it.
        calls: the calls that were made for it, with the roles `small` and `large` whatever the strategy called them.
        scores: answer as it went back to the harness -> what the harness's scorer gave it, 0 to 1.
    """

    id: str
    kind: Kind
    calls: Mapping[Step, Call]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The harness's task."""
        return self.id.rpartition("/")[0]


def find_pair(runs: Sequence[Run], small: str | None = None, large: str | None = None) -> Pair:
    """The pair that a replay is about: the one that was named, else the only one that any run put together.

    Args:
        runs: of one store.
        small, large: a model's name, the last part of it, or its identity.

    Raises:
        ValueError: several pairs, none, or a model that no run used.
    """
    models = {model["identity"]: model["name"] for run in runs for model in run.settings["models"].values()}
    if (small is None) != (large is None):
        raise ValueError("give both --small and --large, or neither")
    if small is not None and large is not None:
        chosen = {"small": _model(small, models), "large": _model(large, models)}
        return Pair(chosen, {role: models[identity] for role, identity in chosen.items()})
    pairs = {
        (run.settings["models"]["small"]["identity"], run.settings["models"]["large"]["identity"])
        for run in runs
        if {"small", "large"} <= run.settings["models"].keys()
    }
    if len(pairs) != 1:
        what = "no run has a small and a large model" if not pairs else f"runs of {len(pairs)} pairs of models"
        known = ", ".join(sorted({_last(name) for name in models.values()})) or "none"
        raise ValueError(f"{what}; name them with --small and --large; models in this store: {known}")
    chosen = dict(zip(("small", "large"), pairs.pop(), strict=True))
    return Pair(chosen, {role: models[identity] for role, identity in chosen.items()})


def gather(runs: Sequence[Run], pair: Pair, kinds: Mapping[str, Kind]) -> tuple[list[Stored], list[str]]:
    """Put together what all runs of a pair, and of either of its models, know of each question.

    Where two runs have different texts for the same call (other prompts, another limit, another engine) the newest
    counts, and an answer that was given after reading other reasoning than the one that counts is left out.

    Args:
        runs: any runs; those of other models add nothing.  Their samples' scores are used where they have one.
        pair: the models.
        kinds: question id -> kind; questions without one are left out.

    Returns:
        Questions in the order of their tasks, and remarks for the reader, one line each.
    """
    calls: dict[str, dict[Step, Call]] = {}
    scores: dict[str, dict[str, float]] = {}
    trouble: Counter[str] = Counter()
    used = [run for run in sorted(runs, key=lambda run: (run.started_at, run.id)) if pair.roles(run)]
    for run in used:
        for sample in run.samples.values():
            if sample.error is not None:
                trouble["questions that a run could not answer give nothing from that run"] += 1
                continue
            known = calls.setdefault(sample.question_id, {})
            for step, call in _steps(sample, pair.roles(run)):
                if step in known and known[step].text != call.text:
                    trouble["calls have different texts in different runs: the newest counts"] += 1
                known[step] = call
            if sample.score is not None and sample.returned is not None:
                given = scores.setdefault(sample.question_id, {})
                if given.get(sample.returned, sample.score) != sample.score:
                    trouble["answers were scored differently in different runs: the newest score counts"] += 1
                given[sample.returned] = sample.score
    read = {
        (sample.question_id, step): _reasoning(sample, call)
        for run in used for sample in run.samples.values() for step, call in _steps(sample, pair.roles(run))
        if call.stage == "final"
    }  # fmt: skip
    for question_id, known in calls.items():
        for step in [step for step in known if known[step].stage == "final"]:
            role, stage = step[0], step[1].removeprefix("transfer-").removesuffix("-S2")
            source = (role if step[1].endswith("-S2") else "small", stage)
            if source not in known or known[source].text != read[question_id, step]:
                trouble["answers were given after other reasoning than the one that counts: left out"] += 1
                del known[step]
    unknown = sum(question_id not in kinds for question_id, known in calls.items() if known)
    trouble["questions have no short-answer call that tells their kind: left out"] += unknown
    found = [
        Stored(question_id, kinds[question_id], known, scores.get(question_id, {}))
        for question_id, known in calls.items()
        if question_id in kinds and known
    ]
    order = {question_id: place for place, question_id in enumerate(_in_order(used))}
    remarks = [f"{count:,} {what}" for what, count in trouble.items() if count]
    return sorted(found, key=lambda stored: order[stored.id]), remarks


def read_kinds(path: Path, runs: Iterable[Run], prompts: Prompts | None = None) -> dict[str, Kind]:
    """What each question asks for, told from its stored short-answer prompt, which is the harness's own.

    Args:
        path: the store's file or folder.
        runs: of that store.
        prompts: whose requests for brevity count as known; the package's own by default.

    Returns:
        Question id -> kind, for every question of which a short-answer call is stored.
    """
    wanted: dict[str, int] = {}
    for run in runs:
        for sample in run.samples.values():
            for call in sample.calls:
                if call.stage == "S" and call.completion.call_id is not None:
                    wanted[sample.question_id] = call.completion.call_id
    kinds: dict[str, Kind] = {}
    with closing(sqlite3.connect(f"{store_file(path).resolve().as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
        for question_id, call_id in wanted.items():
            (request,) = connection.execute("SELECT request FROM calls WHERE id = ?", (call_id,)).fetchone()
            messages = [Message(role, tuple(map(_part, content))) for role, content in json.loads(request)["messages"]]
            kinds[question_id] = Question.from_messages(question_id, messages, 1, prompts or load_prompts()).kind
    return kinds


def _part(part: Any) -> str | Image:
    return part if isinstance(part, str) else Image(part["image"])


def _steps(sample: Sample, roles: Mapping[str, str]) -> list[tuple[Step, Call]]:
    """A sample's calls with the step each of them is."""
    steps = []
    sparse = any(call.stage == "select" for call in sample.calls)
    for call in sample.calls:
        role = roles[call.role]
        if sparse and call.stage in ("select", "final"):  # no policy that is replayed hands on a part of a reasoning
            continue
        if call.stage == "final":
            before = _reasoner(sample, call)
            step = f"{before.stage}-S2" if before.role == call.role else f"transfer-{before.stage}"
        else:
            step = call.stage
        steps.append(((role, step), replace(call, role=role)))
    return steps


def _reasoner(sample: Sample, final: Call) -> Call:
    """The reasoning that a final call read: the last one before it."""
    return next(call for call in reversed(sample.calls) if call.stage in ("E", "R"))


def _reasoning(sample: Sample, final: Call) -> str:
    return _reasoner(sample, final).text


def _in_order(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(question_id for run in runs for question_id in run.samples))


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _model(wanted: str, models: Mapping[str, str]) -> str:
    found = [identity for identity, name in models.items() if wanted in (identity, name, _last(name))]
    if len(found) != 1:
        known = ", ".join(sorted(set(models.values()))) or "none"
        what = "no model is called" if not found else f"{len(found)} models are called"
        raise ValueError(f"{what} {wanted!r} in this store; it knows: {known}")
    return found[0]
