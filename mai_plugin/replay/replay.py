"""Policies evaluated from stored calls: what each would have answered, at what cost, without running a model."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mai_plugin.core.records import NoConfidence, Outcome, Usage, total
from mai_plugin.core.strategies import AGREE_REASON, ASK_LARGE, TRANSFER, Strategy
from mai_plugin.replay.latency import Latency
from mai_plugin.replay.policies import STOPS, Gate, NotStored, Policy, Step, every_answer, stored_agents
from mai_plugin.replay.stored_calls import Evidence, Stored

SCORED = "scored answer"
LOGPROB = "log-probability of S"
"""What a policy may lack beside calls."""


@dataclass(frozen=True)
class Cost:
    """How calls are turned into time.

    Attributes:
        latency: role to the fit of that model.
        parallel: the two short answers of a cascade are made at the same time, on a machine for each model, so that
            the slower one counts.  Otherwise one after the other, which is the paper's way to count (table 11).
    """

    latency: Mapping[str, Latency]
    parallel: bool = False

    def seconds(self, outcome: Outcome) -> float:
        """Modelled seconds of one answer."""
        spent = [self.latency[call.role].seconds(call.completion.output_tokens) for call in outcome.calls]
        together = [call.stage for call in outcome.calls[:2]] == ["S", "S"] and outcome.route != ASK_LARGE
        return sum(spent) - (min(spent[:2]) if self.parallel and together else 0.0)


@dataclass(frozen=True)
class Replayed:
    """What a policy would have come to on some questions.

    Attributes:
        policy, what: its name, and what it does.
        n: questions.
        routes: route to how many questions took it.
        usage: role to token counts.
        seconds: modelled time, summed over the questions.
        scored: how many of the answers some run's harness scored.
        points: sum of their scores.
        missing: step that nobody made -> for how many questions.  If there are any, the policy was not evaluated.
        threshold: of a confidence gate.
    """

    policy: str
    what: str
    n: int
    routes: Mapping[str, int]
    usage: Mapping[str, Usage]
    seconds: float
    scored: int
    points: float
    missing: Mapping[Step, int] = field(default_factory=dict)
    threshold: float | None = None

    @property
    def score(self) -> float | None:
        """Mean score, 0 to 1; None unless every answer was scored."""
        return self.points / self.n if self.n and self.scored == self.n else None

    @property
    def bounds(self) -> tuple[float, float]:
        """What the mean score lies between, whatever the answers that nobody scored are worth."""
        return self.points / max(1, self.n), (self.points + self.n - self.scored) / max(1, self.n)

    @property
    def escalated(self) -> float | None:
        """Share of questions that went beyond the first step; None for one model alone, which has no other."""
        stopped = sum(count for route, count in self.routes.items() if route in STOPS)
        return 1 - stopped / self.n if stopped or {AGREE_REASON, TRANSFER, ASK_LARGE} & set(self.routes) else None


class Replay:
    """Policies over the stored questions of one task.

    Args:
        evidence: what is stored.
        questions: of one task.
        cost: how calls are turned into time.

    Attributes:
        agents: role to model, for strategies to be bound to.
    """

    def __init__(self, evidence: Evidence, questions: Iterable[Stored], cost: Cost) -> None:
        self.questions = {stored.id: stored for stored in questions}
        self.cost = cost
        self.agents = stored_agents(evidence)
        self._answered: dict[Strategy, dict[str, Outcome | Step]] = {}

    def run(self, policy: Policy, ids: Sequence[str] | None = None) -> Replayed:
        """Evaluate a policy on all questions, or on some."""
        outcomes, missing = self._outcomes(policy.strategy, ids)
        return self._replayed(policy.name, policy.what, outcomes, missing)

    def outcomes(self, policy: Policy) -> dict[str, Outcome]:
        """What a policy would have handed back, question by question; questions that lack a call are left out."""
        return self._outcomes(policy.strategy, None)[0]

    def sweep(
        self,
        gate: Gate,
        ids: Sequence[str],
        thresholds: Sequence[float] | None = None,
    ) -> list[Replayed]:
        """A gate at every threshold, on some questions.

        Args:
            gate: with this replay's agents.
            ids: the questions.
            thresholds: by default every confidence that occurs, at most 101 of them, evenly spread by rank, and beyond
                both ends: accept all, accept none.

        Returns:
            One result per threshold; a single one, with what is missing, if the gate cannot be evaluated.
        """
        # What each question comes to is settled by which side of the threshold it is on.
        accepted, missing = self._outcomes(gate.at(-math.inf), ids)
        escalated, missing_beyond = self._outcomes(gate.at(math.inf), ids)
        if missing or missing_beyond or not ids:
            return [self._replayed(gate.name, gate.what, {}, missing + missing_beyond)]
        confident = {id: accepted[id].final.confidence for id in ids}
        if thresholds is None:
            distinct = sorted(set(confident.values()))
            step = max(1, math.ceil(len(distinct) / 100))
            thresholds = [-math.inf, *distinct[::step], math.inf]
        return [
            replace(
                self._replayed(
                    gate.name,
                    gate.what,
                    {id: (accepted if confident[id] >= threshold else escalated)[id] for id in ids},
                    {},
                ),
                threshold=threshold,
            )
            for threshold in thresholds
        ]

    def oracle(self, ids: Sequence[str] | None = None) -> Replayed:
        """The best answer that is stored and scored for each question, and among equals the one at the least time.

        Its cost is that of the calls which lead to this answer alone, as if one knew beforehand.  No policy over the
        same stored answers can score higher.
        """
        answers = {name: self._outcomes(strategy, None)[0] for name, strategy in self._every_answer.items()}
        outcomes = {}
        for id in self.questions if ids is None else ids:
            scores = self.questions[id].scores
            ways = [
                replace(found[id], route=name)
                for name, found in answers.items()
                if id in found and found[id].answer in scores
            ]
            if ways:
                outcomes[id] = min(ways, key=lambda way: (-scores[way.answer], self.cost.seconds(way)))
        without = len(self.questions if ids is None else ids) - len(outcomes)
        missing: Counter[Step] = Counter({("any", SCORED): without} if without else {})
        return self._replayed("oracle", "best stored answer at the least time", outcomes, missing)

    @cached_property
    def _every_answer(self) -> dict[str, Strategy]:
        return every_answer(self.agents)

    def _outcomes(self, strategy: Strategy, ids: Sequence[str] | None) -> tuple[dict[str, Outcome], Counter[Step]]:
        if strategy not in self._answered:
            self._answered[strategy] = asyncio.run(self._answer_all(strategy))
        answered = self._answered[strategy]
        chosen = {id: answered[id] for id in (answered if ids is None else ids)}
        outcomes = {id: outcome for id, outcome in chosen.items() if isinstance(outcome, Outcome)}
        return outcomes, Counter(step for step in chosen.values() if not isinstance(step, Outcome))

    async def _answer_all(self, strategy: Strategy) -> dict[str, Outcome | Step]:
        """What a strategy makes of each question, or the step that it lacks."""
        answered: dict[str, Outcome | Step] = {}
        for id, stored in self.questions.items():
            try:
                answered[id] = await strategy(stored.question)
            except NotStored as error:
                answered[id] = error.step
            except NoConfidence as error:
                answered[id] = (error.role, LOGPROB)
        return answered

    def _replayed(self, name: str, what: str, outcomes: Mapping[str, Outcome], missing: Mapping[Step, int]) -> Replayed:
        calls = [call for outcome in outcomes.values() for call in outcome.calls]
        scores = [self.questions[id].scores.get(outcome.answer) for id, outcome in outcomes.items()]
        known = [score for score in scores if score is not None]
        return Replayed(
            policy=name,
            what=what,
            n=len(outcomes),
            routes=dict(Counter(outcome.route for outcome in outcomes.values()).most_common()),
            usage={role: total(call.usage for call in calls if call.role == role) for role in self.agents},
            seconds=sum(self.cost.seconds(outcome) for outcome in outcomes.values()),
            scored=len(known),
            points=sum(known),
            missing=dict(missing),
        )


def halves(ids: Iterable[str], seed: int = 0) -> tuple[list[str], list[str]]:
    """Questions split in two at random: one half to choose a threshold on, the other to report."""
    shuffled = sorted(ids)
    random.Random(seed).shuffle(shuffled)
    middle = len(shuffled) // 2
    return shuffled[:middle], shuffled[middle:]


def choose(swept: Sequence[Replayed], target: float | None) -> Replayed | None:
    """The result in the least modelled time whose score is at least the target; else the best score.

    Args:
        swept: a gate at several thresholds, on the half of the questions that thresholds are chosen on.
        target: MAI's score on that half; None to take the best score.

    Returns:
        None if no result has a score.
    """
    scored = [(result.score, result) for result in swept if result.score is not None]
    if not scored:
        return None
    if target is not None and (enough := [result for score, result in scored if score >= target]):
        return min(enough, key=lambda result: result.seconds)
    return max(scored, key=lambda pair: (pair[0], -pair[1].seconds))[1]
