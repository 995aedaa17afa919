"""The strategies: each is a coroutine over one question, and takes its models as arguments.

Engines do the batching and a runner keeps many questions in flight, so that these functions read like the paper
(arXiv 2604.04929).
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Awaitable, Callable

from mai_plugin.core import answers
from mai_plugin.core.agent import Agent
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Kind, Outcome, Style

Strategy = Callable[[Question], Awaitable[Outcome]]
Agree = Callable[[str | None, str | None, Kind], bool]
Select = Callable[[Question, Call, Style], Awaitable[Call]]
"""Selects what is handed on of some reasoning: `Agent.select` of the answering model, or of its first layers."""

AGREE_SIMPLE, AGREE_REASON, TRANSFER, SPARSE = "agree-simple", "agree-reason", "transfer", "sparse-transfer"


async def simple(question: Question, model: Agent) -> Outcome:
    """S: the harness's own prompt, and a short answer."""
    s = await model.ask(question, "S")
    return Outcome(question.id, "S", s, (s,))


async def explain(question: Question, model: Agent) -> Outcome:
    """E: an explanation, then the answer."""
    e = await model.ask(question, "E")
    return Outcome(question.id, "E", e, (e,))


async def reason(question: Question, model: Agent) -> Outcome:
    """R: step-by-step reasoning, then the answer."""
    r = await model.ask(question, "R")
    return Outcome(question.id, "R", r, (r,))


async def transfer(
    question: Question, reasoner: Agent, answerer: Agent, style: Style = "R", route: str = TRANSFER
) -> Outcome:
    """Reasoning transfer: one model reasons, the other answers in S after reading that (paper: RT)."""
    r = await reasoner.ask(question, style)
    final = await answerer.ask_after(question, r, style)
    return Outcome(question.id, route, final, (r, final))


async def sparse_transfer(
    question: Question, reasoner: Agent, answerer: Agent, select: Select, style: Style = "R"
) -> Outcome:
    """Reasoning transfer of those tokens only that the answering model looks at (paper: sparse RT, table 9)."""
    r = await reasoner.ask(question, style)
    kept = await select(question, r, style)
    final = await answerer.ask_after(question, kept, style)
    return Outcome(question.id, SPARSE, final, (r, kept, final))


async def two_stage(question: Question, model: Agent, style: Style = "R") -> Outcome:
    """Reason, then answer in S after reading one's own reasoning (paper: S2, Eqn. 7)."""
    return await transfer(question, model, model, style, route=f"{style}-S2")


async def mutual_verification(
    question: Question, small: Agent, large: Agent, agree: Agree = answers.agree, select: Select | None = None
) -> Outcome:
    """MAI: cheap answers first, borrowed reasoning last (paper: mutual verification and reasoning transfer).

    With `select` the last step is a sparse transfer.
    """
    s, l = await gather(small.ask(question, "S"), large.ask(question, "S"))  # noqa: E741
    if agree(s.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_SIMPLE, l, (s, l))
    r = await small.ask(question, "R")
    if agree(r.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_REASON, l, (s, l, r))
    read = (r, await select(question, r, "R")) if select else (r,)
    final = await large.ask_after(question, read[-1])
    return Outcome(question.id, SPARSE if select else TRANSFER, final, (s, l, *read, final))
