"""A model as the strategies see it: something to ask in a style, or to ask after it has read reasoning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from mai_plugin.core import answers
from mai_plugin.core.prompts import Prompts, inert
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Message, Request, Sparse, Style

Generate = Callable[[Request], Awaitable[Completion]]
"""An engine's way to answer one request."""


@dataclass(frozen=True)
class Agent:
    """One model with the wordings that it is asked in.

    Attributes:
        role: the parameter of the strategy that it was given for, such as `small`; names the model in records.
        generate: the engine's coroutine.
        prompts: wordings of E, R and the second-stage question.
        max_reasoning_tokens: limit on an E or R answer.  S and second-stage answers have the harness's limit.
    """

    role: str
    generate: Generate
    prompts: Prompts
    max_reasoning_tokens: int = 2048

    async def ask(self, question: Question, style: Style) -> Call:
        """Ask in S, E or R.  S is the harness's prompt, byte for byte; E and R append their wording to the stem."""
        if style == "S":
            return await self._call(question, "S", question.messages, question.max_new_tokens)
        messages = question.asking(self.prompts.wording(style, question.kind))
        return await self._call(question, style, messages, self.max_reasoning_tokens)

    async def ask_after(self, question: Question, reasoning: Call | Sequence[Call], style: Style | None = None) -> Call:
        """Ask for the short answer after reading reasoning, the model's own or another's (Eqn. 7; RT).

        Reasoning that the token limit cut is passed on as is, and without special tokens: see `inert`.

        Args:
            question: what is asked.
            reasoning: one reasoning text, or several, which are read one after the other.
            style: what the reasoning answered, `E` or `R`; default: the stage of the (first) call.
        """
        messages = self.messages_after(question, reasoning, style)
        return await self._call(question, "final", messages, question.max_new_tokens)

    async def select(self, question: Question, reasoning: Call, sparse: Sparse, by: Agent | None = None) -> Call:
        """The part of reasoning that this model attends to before it answers (sparse RT, table 9).

        Args:
            question: what is asked.
            reasoning: an E or R call.
            sparse: how tokens are selected.
            by: what selects where this model's own engine gives no attention: the first layers of the same checkpoint.
        """
        messages = self.messages_after(question, reasoning)
        request = Request(messages, 0, question.id, "select", lane="select", sparse=sparse)
        return Call(self.role, "select", await (by or self).generate(request), None)

    def messages_after(
        self, question: Question, reasoning: Call | Sequence[Call], style: Style | None = None
    ) -> tuple[Message, ...]:
        """The prompt in which this model answers after reading reasoning."""
        calls = [reasoning] if isinstance(reasoning, Call) else list(reasoning)
        if style is None:
            style = "E" if calls[0].stage == "E" else "R"
        return (
            *question.asking(self.prompts.wording(style, question.kind)),
            Message("assistant", (inert("\n\n".join(call.text for call in calls)),)),
            Message("user", (self.prompts.final[question.kind],)),
        )

    async def _call(self, question: Question, stage: str, messages: tuple[Message, ...], limit: int) -> Call:
        short = stage in ("S", "final")
        completion = await self.generate(Request(messages, limit, question.id, stage, lane=stage, logprob=short))
        cut = not short and completion.finish_reason == "length"
        answer = answers.extract(completion.text, question.kind, question.options, cut=cut)
        return Call(self.role, stage, completion, answer)
