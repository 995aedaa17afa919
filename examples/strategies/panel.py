"""A panel: several small models reason, and the large one answers after reading all of them.

    lmms-eval --model mai_cascade --tasks chartqa \\
        --model_args strategy=examples/strategies/panel.py:panel,first=MODEL,second=MODEL,large=MODEL
"""

from __future__ import annotations

from asyncio import gather

from mai_plugin import Agent, Agree, Outcome, Question, agree


async def panel(
    question: Question,
    first: Agent,
    second: Agent,
    large: Agent,
    third: Agent | None = None,
    agreement: Agree = agree,
) -> Outcome:
    """Two or three models reason side by side; where they do not all agree, the large one judges."""
    members = [member for member in (first, second, third) if member]
    reasons = await gather(*(member.ask(question, "R") for member in members))
    leader, *others = reasons
    if all(agreement(leader.answer, other.answer, question.kind) for other in others):
        return Outcome(question.id, "unanimous", leader, tuple(reasons))
    final = await large.ask_after(question, reasons)
    return Outcome(question.id, "judged", final, (*reasons, final))
