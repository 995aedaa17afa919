"""Three models: two cheap answers first, then the medium model's reasoning, and the large model only if that fails.

    lmms-eval --model mai_cascade --tasks chartqa \\
        --model_args strategy=examples/strategies/chain.py:chain,small=MODEL,medium=MODEL,large=MODEL
"""

from __future__ import annotations

from asyncio import gather

from mai_plugin import Agent, Agree, Outcome, Question, agree


async def chain(question: Question, small: Agent, medium: Agent, large: Agent, agreement: Agree = agree) -> Outcome:
    """The small and the medium model agree; or the medium one's reasoning confirms one; or the large reads it."""
    s, m = await gather(small.ask(question, "S"), medium.ask(question, "S"))
    if agreement(s.answer, m.answer, question.kind):
        return Outcome(question.id, "agree-simple", m, (s, m))
    r = await medium.ask(question, "R")
    for short in (m, s):
        if agreement(r.answer, short.answer, question.kind):
            return Outcome(question.id, "agree-reason", short, (s, m, r))
    final = await large.ask_after(question, r)
    return Outcome(question.id, "transfer", final, (s, m, r, final))
