"""The strategies: each is a coroutine over one question, and its signature is its configuration.

Parameters annotated `Agent` are roles, each a model that the user names (`small=`, `large=`, ...); one with a default
of None is optional.  The other parameters are arguments, with name, type and default.  Engines do the batching and a
runner keeps many questions in flight, so that these functions read like the paper (arXiv 2604.04929).
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Awaitable, Callable
from typing import Literal

from mai_plugin.core import agreement as rules
from mai_plugin.core.agent import Agent
from mai_plugin.core.agreement import Agree
from mai_plugin.core.question import Question
from mai_plugin.core.records import Layer, Outcome, SelectBy, Share, Sparse, Style

Strategy = Callable[[Question], Awaitable[Outcome]]
"""A strategy with its models and arguments bound."""

AGREE_SIMPLE, AGREE_REASON, TRANSFER, SPARSE = "agree-simple", "agree-reason", "transfer", "sparse-transfer"
ACCEPT, ASK_LARGE = "accept", "ask-large"
LAYER, KEEP = Sparse.layer, Sparse.keep


async def single(question: Question, model: Agent, prompt: Style = "S", two_stage: bool = False) -> Outcome:
    """One model: a short answer (S), an explanation (E) or step-by-step reasoning (R), then the answer.

    With `two_stage` it then answers in S after reading its own reasoning (paper: S2, Eqn. 7).
    """
    if two_stage:
        return await _transferred(question, model, model, prompt, f"{prompt}-S2")
    call = await model.ask(question, prompt)
    return Outcome(question.id, prompt, call, (call,))


async def speculative(
    question: Question, model: Agent, prompt: Literal["E", "R"] = "R", two_stage: bool = False
) -> Outcome:
    """The large model alone with the small one as its draft model (speculative decoding, table 12)."""
    return await single(question, model, prompt, two_stage)


async def transfer(question: Question, small: Agent, large: Agent, prompt: Literal["E", "R"] = "R") -> Outcome:
    """Reasoning transfer: the small model reasons, the large one answers in S after reading that (paper: RT)."""
    return await _transferred(question, small, large, prompt, TRANSFER)


async def sparse_transfer(
    question: Question,
    small: Agent,
    large: Agent,
    selector: Agent | None = None,
    prompt: Literal["E", "R"] = "R",
    layer: Layer = LAYER,
    keep: Share = KEEP,
    select_by: SelectBy = "attention",
) -> Outcome:
    """Reasoning transfer of those tokens only that the large model attends to (paper: sparse RT, table 9)."""
    r = await small.ask(question, prompt)
    part = await large.select(question, r, Sparse(layer, keep, select_by), by=selector)
    final = await large.ask_after(question, part, prompt)
    return Outcome(question.id, SPARSE, final, (r, part, final))


async def mutual_verification(
    question: Question,
    small: Agent,
    large: Agent,
    selector: Agent | None = None,
    agreement: Agree = rules.agree,
    verify: Literal["R", "R-S2", "none"] = "R",
    transfer: Literal["full", "sparse"] = "full",
    layer: Layer = LAYER,
    keep: Share = KEEP,
    select_by: SelectBy = "attention",
) -> Outcome:
    """MAI: cheap answers first, borrowed reasoning last (paper: mutual verification and reasoning transfer).

    The second step compares the answer of the small model's reasoning (`verify`: `R`), a short answer that it gives
    after that (`R-S2`, table 15), or nothing (`none`).
    """
    s, l = await gather(small.ask(question, "S"), large.ask(question, "S"))  # noqa: E741
    calls = [s, l]
    if agreement(s.answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_SIMPLE, l, tuple(calls))
    calls.append(r := await small.ask(question, "R"))
    if verify == "R-S2":
        calls.append(await small.ask_after(question, r))
    if verify != "none" and agreement(calls[-1].answer, l.answer, question.kind):
        return Outcome(question.id, AGREE_REASON, l, tuple(calls))
    if transfer == "sparse":
        calls.append(r := await large.select(question, r, Sparse(layer, keep, select_by), by=selector))
    calls.append(final := await large.ask_after(question, r, "R"))
    return Outcome(question.id, SPARSE if transfer == "sparse" else TRANSFER, final, tuple(calls))


async def confident_large(question: Question, small: Agent, large: Agent, threshold: float) -> Outcome:
    """The large model's short answer if its log-probability is at least the threshold, else transfer."""
    l = await large.ask(question, "S")  # noqa: E741
    if l.confidence >= threshold:
        return Outcome(question.id, ACCEPT, l, (l,))
    r = await small.ask(question, "R")
    final = await large.ask_after(question, r)
    return Outcome(question.id, TRANSFER, final, (l, r, final))


async def confident_small(question: Question, small: Agent, large: Agent, threshold: float) -> Outcome:
    """The small model's short answer if its log-probability is at least the threshold, else the large model's."""
    s = await small.ask(question, "S")
    if s.confidence >= threshold:
        return Outcome(question.id, ACCEPT, s, (s,))
    l = await large.ask(question, "S")  # noqa: E741
    return Outcome(question.id, ASK_LARGE, l, (s, l))


async def _transferred(question: Question, reasoner: Agent, answerer: Agent, style: Style, route: str) -> Outcome:
    """Answer in S after reading reasoning: the model's own is two-stage, the other one's a transfer."""
    r = await reasoner.ask(question, style)
    final = await answerer.ask_after(question, r)
    return Outcome(question.id, route, final, (r, final))


STRATEGIES: dict[str, Callable[..., Awaitable[Outcome]]] = {
    function.__name__: function
    for function in (
        mutual_verification, single, transfer, sparse_transfer, speculative, confident_large, confident_small
    )
}  # fmt: skip
"""The built-in strategies by name."""
