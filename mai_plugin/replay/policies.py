"""Ways to answer with a pair of models, as strategies over agents that answer from a call store.

So a replayed MAI is the code that runs MAI, and a policy of one's own is one more coroutine.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from mai_plugin.core import answers, strategies
from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Outcome, Request, Style
from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, TRANSFER, Agree, Strategy
from mai_plugin.replay.stored_calls import Step, Stored

ACCEPT, ASK_LARGE = "accept", "ask large"
STOPS = (AGREE_SIMPLE, ACCEPT)
"""Routes that end a policy at its first step: all others are escalations."""


class NotStored(Exception):
    """A call that a policy needs and nobody made."""

    def __init__(self, step: Step) -> None:
        super().__init__(" ".join(step))
        self.step = step


def stored_pair(questions: Mapping[str, Stored]) -> tuple[StoredAgent, StoredAgent]:
    """The small and the large model as far as the store knows them."""
    small, large = (StoredAgent(role, _no_model, load_prompts(), questions=questions) for role in ("small", "large"))
    return small, large


async def _no_model(request: Request) -> Completion:
    raise AssertionError("a replay runs no model")


@dataclass(frozen=True)
class StoredAgent(Agent):
    """A model as strategies see it, which answers from stored calls.

    Attributes:
        questions: question id -> what is stored of it.
    """

    questions: Mapping[str, Stored] = field(default_factory=dict, repr=False)

    async def ask(self, question: Question, style: Style) -> Call:
        """The stored answer in S, E or R.

        Raises:
            NotStored: there is none.
        """
        return self._stored(question.id, style)

    async def ask_after(self, question: Question, reasoning: Call, style: Style = "R") -> Call:
        """The stored short answer after reading that reasoning.

        Raises:
            NotStored: there is none.
        """
        own = reasoning.role == self.role
        return self._stored(question.id, f"{reasoning.stage}-S2" if own else f"transfer-{reasoning.stage}")

    def _stored(self, question_id: str, step: str) -> Call:
        call = self.questions[question_id].calls.get((self.role, step))
        if call is None:
            raise NotStored((self.role, step))
        return call


async def agree_in_short_only(question: Question, small: Agent, large: Agent, agree: Agree) -> Outcome:
    """MAI without its second step: what the short answers do not settle is transferred."""
    s, l = await gather(small.ask(question, "S"), large.ask(question, "S"))  # noqa: E741
    if agree(s.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_SIMPLE, l, (s, l))
    r = await small.ask(question, "R")
    final = await large.ask_after(question, r)
    return Outcome(question.id, TRANSFER, final, (s, l, r, final))


async def mai_two_stage(question: Question, small: Agent, large: Agent, agree: Agree) -> Outcome:
    """MAI with R(S2) in its second step (table 15): the small model sums its reasoning up before it is compared."""
    s, l = await gather(small.ask(question, "S"), large.ask(question, "S"))  # noqa: E741
    if agree(s.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_SIMPLE, l, (s, l))
    r = await small.ask(question, "R")
    short = await small.ask_after(question, r)
    if agree(short.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_REASON, l, (s, l, r, short))
    final = await large.ask_after(question, r)
    return Outcome(question.id, TRANSFER, final, (s, l, r, short, final))


async def confident_large(question: Question, small: Agent, large: Agent, threshold: float) -> Outcome:
    """The large model's short answer if its log-probability is at least the threshold, else transfer."""
    l = await large.ask(question, "S")  # noqa: E741
    if confidence(l) >= threshold:
        return Outcome(question.id, ACCEPT, l, (l,))
    r = await small.ask(question, "R")
    final = await large.ask_after(question, r)
    return Outcome(question.id, TRANSFER, final, (l, r, final))


async def confident_small(question: Question, small: Agent, large: Agent, threshold: float) -> Outcome:
    """The small model's short answer if its log-probability is at least the threshold, else the large model's."""
    s = await small.ask(question, "S")
    if confidence(s) >= threshold:
        return Outcome(question.id, ACCEPT, s, (s,))
    l = await large.ask(question, "S")  # noqa: E741
    return Outcome(question.id, ASK_LARGE, l, (s, l))


def confidence(call: Call) -> float:
    """Summed log-probability of a short answer.

    Raises:
        NotStored: the engine gave none.
    """
    if call.completion.logprob is None:
        raise NotStored((call.role, "log-probability of S"))
    return call.completion.logprob


@dataclass(frozen=True)
class Policy:
    """A way to answer with the pair, and what it does, in one line."""

    name: str
    what: str
    strategy: Strategy


@dataclass(frozen=True)
class Gate:
    """A policy with a threshold on the log-probability of a short answer.

    Attributes:
        name, what: as in `Policy`.
        role: whose short answer it looks at.
        at: threshold -> strategy.
    """

    name: str
    what: str
    role: str
    at: Callable[[float], Strategy]


def policies(small: Agent, large: Agent, rules: Mapping[str, Agree] | None = None) -> list[Policy]:
    """The policies that need no threshold.

    Args:
        small, large: the pair.
        rules: name -> when two answers are the same; by default the exact rule.  The variants of MAI use the first.
    """
    rules = rules or {"exact": answers.agree}
    main, *others = rules.items()
    found = []
    for role, agent in (("small", small), ("large", large)):
        found += [
            Policy(f"{role}-S", f"{role} model, short answer", partial(strategies.simple, model=agent)),
            Policy(f"{role}-R", f"{role} model reasons", partial(strategies.reason, model=agent)),
            Policy(f"{role}-R-S2", f"{role} model, two-stage", partial(strategies.two_stage, model=agent)),
        ]
    transfer = partial(strategies.transfer, reasoner=small, answerer=large)
    mai = partial(strategies.mutual_verification, small=small, large=large)
    return [
        *found,
        Policy("transfer", "small reasons, large answers", transfer),
        Policy("MAI", f"the cascade, agreement {main[0]}", partial(mai, agree=main[1])),
        *(Policy(f"MAI, {name}", f"agreement {name}", partial(mai, agree=agree)) for name, agree in others),
        Policy(
            "MAI, S only",
            "agree in S, else transfer",
            partial(agree_in_short_only, small=small, large=large, agree=main[1]),
        ),
        Policy(
            "MAI, R(S2)",
            "R(S2) in step 2 (table 15)",
            partial(mai_two_stage, small=small, large=large, agree=main[1]),
        ),
    ]


def gates(small: Agent, large: Agent) -> list[Gate]:
    """The confidence gates."""
    return [
        Gate(
            "gate on large",
            "large-S if confident, else transfer",
            "large",
            lambda threshold: partial(confident_large, small=small, large=large, threshold=threshold),
        ),
        Gate(
            "gate on small",
            "small-S if confident, else large-S",
            "small",
            lambda threshold: partial(confident_small, small=small, large=large, threshold=threshold),
        ),
    ]
