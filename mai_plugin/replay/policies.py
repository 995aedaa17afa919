"""The policies of a replay: the built-in strategies with some arguments, over agents that answer from a call store.

So a replayed MAI is the code that runs MAI, and a strategy of one's own is replayed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mai_plugin.core import strategies
from mai_plugin.core.agent import Agent, Generate
from mai_plugin.core.agreement import Agree, agree
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Request, Sparse, Style
from mai_plugin.core.strategies import ACCEPT, AGREE_SIMPLE, Strategy
from mai_plugin.core.ways import MAI, Way
from mai_plugin.replay.stored_calls import Evidence, Stored, request_digest
from mai_plugin.run.store import describe

STOPS = (AGREE_SIMPLE, ACCEPT)
"""Routes that end a policy at its first step: all others are escalations."""

Step = tuple[str, str]
"""A role and the way that it is asked, as `Way` spells it, or what else is lacking."""


class NotStored(Exception):
    """A call that a policy needs and nobody made."""

    def __init__(self, role: str, way: Way | str) -> None:
        super().__init__(f"{role} {way}")
        self.step: Step = (role, str(way))


def stored_agents(evidence: Evidence) -> dict[str, StoredAgent]:
    """Role to model, as far as the store knows them."""
    questions = {stored.id: stored for stored in evidence.questions}
    return {
        role: StoredAgent(role, _answer_from(questions, role), evidence.prompts, limit)
        for role, limit in evidence.max_reasoning_tokens.items()
    }


def _answer_from(questions: Mapping[str, Stored], role: str) -> Generate:
    async def generate(request: Request) -> Completion:
        stored = questions[request.question_id].calls.get((role, request_digest(describe(request))))
        if stored is None:
            raise NotStored(role, request.stage)
        return stored

    return generate


@dataclass(frozen=True)
class StoredAgent(Agent):
    """A model as strategies see it, whose answers come from the store; what is missing is named by its way."""

    async def ask(self, question: Question, style: Style) -> Call:
        """The stored answer in S, E or R.

        Raises:
            NotStored: there is none.
        """
        return await self._named(super().ask(question, style), Way("single", style))

    async def ask_after(self, question: Question, reasoning: Call | Sequence[Call], style: Style | None = None) -> Call:
        """The stored short answer after reading that reasoning.

        Raises:
            NotStored: there is none.
        """
        first = reasoning if isinstance(reasoning, Call) else reasoning[0]
        read: Style = style or ("E" if first.stage == "E" else "R")
        way = Way("single", read, True) if first.role == self.role else Way("transfer", read)
        return await self._named(super().ask_after(question, reasoning, style), way)

    async def select(self, question: Question, reasoning: Call, sparse: Sparse, by: Agent | None = None) -> Call:
        """The stored selection.

        Raises:
            NotStored: there is none.
        """
        return await self._named(
            super().select(question, reasoning, sparse), Way("sparse_transfer", layer=sparse.layer)
        )

    async def _named(self, answer: object, way: Way) -> Call:
        try:
            return await answer  # type: ignore[misc,no-any-return]
        except NotStored:
            raise NotStored(self.role, way) from None


@dataclass(frozen=True)
class Policy:
    """A way to answer, and what it does, in one line.

    Attributes:
        name: in tables.
        what: one line.
        strategy: bound to its agents.
        way: how questions are asked.
        roles: whose answers go back.
    """

    name: str
    what: str
    strategy: Strategy
    way: Way
    roles: tuple[str, ...] = ("small", "large")


@dataclass(frozen=True)
class Gate:
    """A policy with a threshold on the log-probability of a short answer.

    Attributes:
        name, what: as in `Policy`.
        at: threshold -> strategy.
    """

    name: str
    what: str
    at: Callable[[float], Strategy]


def policies(agents: Mapping[str, Agent], rules: Mapping[str, Agree] | None = None) -> list[Policy]:
    """The policies that need no threshold.

    Args:
        agents: `small` and `large`.
        rules: name -> when two answers are the same; by default the exact rule.  The variants of MAI use the first.
    """
    rules = rules or {"exact": agree}
    (main, first), *others = rules.items()
    pair = {role: agents[role] for role in ("small", "large")}
    found = [
        Policy(f"{role}-{way}", f"{role} model, {what}", _single(agent, way), way, (role,))
        for role, agent in pair.items()
        for way, what in (
            (Way("single", "S"), "short answer"),
            (Way(), "reasoning"),
            (Way(two_stage=True), "two-stage"),
        )
    ]
    mai = partial(strategies.mutual_verification, **pair)  # type: ignore[arg-type]
    cascades: list[tuple[str, str, dict[str, Any]]] = [
        ("MAI", f"the cascade, agreement {main}", {"agreement": first}),
        *((f"MAI, {name}", f"agreement {name}", {"agreement": rule}) for name, rule in others),
        ("MAI-S", "agree in S, else transfer", {"agreement": first, "verify": "none"}),
        ("MAI-R-S2", "R(S2) in step 2 (table 15)", {"agreement": first, "verify": "R-S2"}),
    ]
    transfer = partial(strategies.transfer, **pair)  # type: ignore[arg-type]
    return [
        *found,
        Policy("transfer", "small reasons, large answers", transfer, Way("transfer")),
        *(Policy(name, what, partial(mai, **given), Way.of(MAI, given)) for name, what, given in cascades),
    ]


def _single(agent: Agent, way: Way) -> Strategy:
    return partial(strategies.single, model=agent, prompt=way.style, two_stage=way.two_stage)


def every_answer(agents: Mapping[str, Agent]) -> dict[str, Strategy]:
    """Each way in which one model answers, alone or after the small one's reasoning: what an oracle chooses from."""
    found: dict[str, Strategy] = {}
    for role, agent in agents.items():
        for way in (Way("single", "S"), Way("single", "E"), Way(), Way("single", "E", True), Way(two_stage=True)):
            found[f"{role} {way}"] = _single(agent, way)
    for way in (Way("transfer", "E"), Way("transfer", "R")):
        found[f"large {way}"] = partial(
            strategies.transfer, small=agents["small"], large=agents["large"], prompt="E" if way.style == "E" else "R"
        )
    return found


def gates(agents: Mapping[str, Agent]) -> list[Gate]:
    """The confidence gates."""
    pair = {role: agents[role] for role in ("small", "large")}

    def at(strategy: Callable[..., object]) -> Callable[[float], Strategy]:
        return lambda threshold: partial(strategy, **pair, threshold=threshold)  # type: ignore[return-value]

    return [
        Gate("gate on large", "large-S if confident, else transfer", at(strategies.confident_large)),
        Gate("gate on small", "small-S if confident, else large-S", at(strategies.confident_small)),
    ]
