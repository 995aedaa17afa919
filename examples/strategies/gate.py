"""A gate before the cascade: where the small model is sure of its short answer, nothing else is asked.

    lmms-eval --model mai_cascade --tasks chartqa --model_args \\
        strategy=examples/strategies/gate.py:gate,engine=vllm,small=MODEL,large=MODEL,threshold=-0.1
"""

from __future__ import annotations

from mai_plugin import Agent, Agree, Outcome, Question, agree


async def gate(question: Question, small: Agent, large: Agent, threshold: float, agreement: Agree = agree) -> Outcome:
    """The small model's short answer if its log-probability is at least the threshold, else the cascade's steps.

    It needs an engine that gives log-probabilities: `vllm`, or a server that returns them.
    """
    s = await small.ask(question, "S")
    if s.confidence >= threshold:
        return Outcome(question.id, "accept", s, (s,))
    l = await large.ask(question, "S")  # noqa: E741
    if agreement(s.answer, l.answer, question.kind):
        return Outcome(question.id, "agree-simple", l, (s, l))
    r = await small.ask(question, "R")
    if agreement(r.answer, l.answer, question.kind):
        return Outcome(question.id, "agree-reason", l, (s, l, r))
    final = await large.ask_after(question, r)
    return Outcome(question.id, "transfer", final, (s, l, r, final))
