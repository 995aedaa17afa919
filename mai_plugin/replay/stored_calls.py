"""What a call store knows about each question: every call by its exact request, and every answer's score."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

from mai_plugin.core.prompts import Prompts, load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Completion, Image, Message
from mai_plugin.core.text import last_part
from mai_plugin.engines.images import digested
from mai_plugin.run.stored import Run, Sample, read_requests


@dataclass(frozen=True)
class Models:
    """The models of a replay: role to the identity that the store knows them by, and to their names."""

    identity: Mapping[str, str]
    names: Mapping[str, str]

    def roles(self, run: Run) -> dict[str, list[str]]:
        """What a run calls its models -> their roles here.  Empty if the run tells nothing of these models."""
        found = {
            own: [role for role, identity in self.identity.items() if identity == model["identity"]]
            for own, model in run.settings["models"].items()
        }
        return {own: roles for own, roles in found.items() if roles}


@dataclass(frozen=True)
class Stored:
    """One question, as far as it was ever answered.

    Attributes:
        question: built from its stored short-answer prompt, which is the harness's own.
        calls: role and digest of the request -> what came of it.
        scores: answer as it went back to the harness -> what the harness's scorer gave it, 0 to 1.
    """

    question: Question
    calls: Mapping[tuple[str, str], Completion]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`task/doc_id`."""
        return self.question.id

    @property
    def task(self) -> str:
        """The harness's task."""
        return self.id.rpartition("/")[0]


@dataclass(frozen=True)
class Evidence:
    """What a store knows.

    Attributes:
        models: whose calls.
        questions: in the order of their tasks.
        prompts: wordings of the newest run that reasoned: a call in other wordings is another call.
        max_reasoning_tokens: role to the limit of the newest run in which it reasoned.
        remarks: for the reader, one line each.
    """

    models: Models
    questions: Sequence[Stored]
    prompts: Prompts
    max_reasoning_tokens: Mapping[str, int]
    remarks: tuple[str, ...] = ()


def request_digest(described: str) -> str:
    """What tells a request from others, from its description as the store has it."""
    return sha1(described.encode("utf-8", "surrogatepass")).hexdigest()


def find_models(runs: Sequence[Run], roles: Sequence[str], named: Mapping[str, str]) -> Models:
    """The models that a replay is about: those that were named, else the only ones that any run put together.

    Args:
        runs: of one store.
        roles: of the strategy: `small` and `large` unless it is one's own.
        named: role to a model's name, the last part of it, or its identity; all roles or none.

    Raises:
        ValueError: several sets of models, none, or a model that no run used.
    """
    models = {model["identity"]: model["name"] for run in runs for model in run.settings["models"].values()}
    if named:
        if missing := [role for role in roles if role not in named]:
            raise ValueError(f"name the model of every role: {missing[0]} is missing; roles are {', '.join(roles)}")
        chosen = {role: _model(named[role], models) for role in roles}
        return Models(chosen, {role: models[identity] for role, identity in chosen.items()})
    found = {
        tuple(run.settings["models"][role]["identity"] for role in roles)
        for run in runs
        if set(roles) <= run.settings["models"].keys()
    }
    if len(found) != 1:
        wanted = " and a ".join(f"{role} model" for role in roles)
        what = f"no run has a {wanted}" if not found else f"runs of {len(found)} different sets of models"
        known = ", ".join(sorted({last_part(name) for name in models.values()})) or "none"
        raise ValueError(f"{what}; name them with --small and --large (or --model ROLE=NAME); this store has: {known}")
    chosen = dict(zip(roles, found.pop(), strict=True))
    return Models(chosen, {role: models[identity] for role, identity in chosen.items()})


def gather(path: Path, runs: Sequence[Run], models: Models) -> Evidence:
    """Put together what all runs of some models know of each question.

    Where two runs made the same call with different texts, the newest counts.

    Args:
        path: the store's file or folder.
        runs: of that store; those of other models add nothing.  Their samples' scores are used where they have one.
        models: whose calls.
    """
    used = [run for run in sorted(runs, key=lambda run: (run.started_at, run.id)) if models.roles(run)]
    prompts, limits = _wordings(used, models)
    ids = {call.completion.call_id for run in used for sample in run.samples.values() for call in sample.calls}
    requests = read_requests(path, [id for id in ids if id is not None])
    digests = {id: request_digest(described) for id, described in requests.items()}
    calls: dict[str, dict[tuple[str, str], Completion]] = {}
    scores: dict[str, dict[str, float]] = {}
    asked: dict[str, int] = {}
    trouble: Counter[str] = Counter()
    for run in used:
        roles = models.roles(run)
        for sample in run.samples.values():
            if sample.error is not None:
                trouble["questions that a run could not answer give nothing from that run"] += 1
                continue
            known = calls.setdefault(sample.question_id, {})
            for call in sample.calls:
                id = call.completion.call_id
                if id is None or call.role not in roles:
                    continue
                if call.stage == "S":
                    asked[sample.question_id] = id
                for key in ((role, digests[id]) for role in roles[call.role]):
                    if key in known and known[key].text != call.text:
                        trouble["calls have different texts in different runs: the newest counts"] += 1
                    known[key] = call.completion
            _note_score(sample, scores, trouble)
    trouble["questions have no short-answer call that tells what they ask: left out"] += sum(
        question_id not in asked for question_id, known in calls.items() if known
    )
    other = [
        run.name
        for run in used
        if _reasons(run) and _wording_of(run) != (prompts.explain, prompts.reason, prompts.final)
    ]
    if other:
        trouble[
            f"runs have other wordings than the newest, so that their reasoning is not used: {', '.join(other)}"
        ] = len(other)
    questions = [
        Stored(
            _question(question_id, requests[asked[question_id]], prompts),
            calls[question_id],
            scores.get(question_id, {}),
        )
        for question_id in _in_order(used)
        if question_id in asked and calls.get(question_id)
    ]
    remarks = tuple(f"{count:,} {what}" for what, count in trouble.items() if count)
    return Evidence(models, questions, prompts, limits, remarks)


def _note_score(sample: Sample, scores: dict[str, dict[str, float]], trouble: Counter[str]) -> None:
    if sample.score is None or sample.returned is None:
        return
    given = scores.setdefault(sample.question_id, {})
    if given.get(sample.returned, sample.score) != sample.score:
        trouble["answers were scored differently in different runs: the newest score counts"] += 1
    given[sample.returned] = sample.score


def _reasons(run: Run, *own: str) -> bool:
    """Whether a run has reasoning, of some of its models if they are named."""
    calls = (call for sample in run.samples.values() for call in sample.calls)
    return any(call.stage in ("E", "R") and (not own or call.role in own) for call in calls)


def _wording_of(run: Run) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    own, default = run.settings.get("prompts", {}), load_prompts()
    return own.get("explain", default.explain), own.get("reason", default.reason), own.get("final", default.final)


def _wordings(runs: Sequence[Run], models: Models) -> tuple[Prompts, dict[str, int]]:
    """Wordings and limits of the newest runs that reasoned (else of the newest)."""
    default, limits = load_prompts(), {}
    latest = next((run for run in reversed(runs) if _reasons(run)), runs[-1] if runs else None)
    for role in models.identity:
        own = [(run, [own for own, roles in models.roles(run).items() if role in roles]) for run in reversed(runs)]
        reasoned = next((run for run, names in own if names and _reasons(run, *names)), latest)
        limits[role] = int(reasoned.settings.get("max_reasoning_tokens", 2048)) if reasoned else 2048
    if latest is None:
        return default, limits
    brevity = tuple(latest.settings.get("prompts", {}).get("brevity", default.brevity))
    return Prompts(*_wording_of(latest), brevity), limits


def _question(id: str, request: str, prompts: Prompts) -> Question:
    described = json.loads(request)
    messages = [Message(role, tuple(map(_part, content))) for role, content in described["messages"]]
    return Question.from_messages(id, messages, described["max_tokens"], prompts)


def _part(part: Any) -> str | Image:
    return part if isinstance(part, str) else digested(part["image"])


def _in_order(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(question_id for run in runs for question_id in run.samples))


def _model(wanted: str, models: Mapping[str, str]) -> str:
    found = [identity for identity, name in models.items() if wanted in (identity, name, last_part(name))]
    if len(found) != 1:
        known = ", ".join(sorted(set(models.values()))) or "none"
        what = "no model is called" if not found else f"{len(found)} models are called"
        raise ValueError(f"{what} {wanted!r} in this store; it has: {known}")
    return found[0]
