"""A model as the strategies see it: something to ask in a style, or to ask after it has read reasoning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

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
        role: `small`, `large`, or `model` where a strategy has one only; names the model in records.
        generate: the engine's coroutine.
        prompts: wordings of E, R and the second-stage question.
        max_reasoning_tokens: limit on an E or R answer.  S and second-stage answers have the harness's limit.
        sparse: how `select` chooses.
    """

    role: str
    generate: Generate
    prompts: Prompts
    max_reasoning_tokens: int = 2048
    sparse: Sparse = field(default_factory=Sparse)

    async def ask(self, question: Question, style: Style) -> Call:
        """Ask in S, E or R.  S is the harness's prompt, byte for byte; E and R append their wording to the stem."""
        if style == "S":
            return await self._call(question, "S", question.messages, question.max_new_tokens)
        messages = question.asking(self.prompts.wording(style, question.kind))
        return await self._call(question, style, messages, self.max_reasoning_tokens)

    async def ask_after(self, question: Question, reasoning: Call, style: Style = "R") -> Call:
        """Ask for the short answer after reading reasoning, the model's own or another's (Eqn. 7; RT).

        Reasoning that the token limit cut is handed on as it stands, and without special tokens: see `inert`.
        """
        messages = self.messages_after(question, reasoning, style)
        return await self._call(question, "final", messages, question.max_new_tokens)

    async def select(self, question: Question, reasoning: Call, style: Style = "R") -> Call:
        """The part of reasoning that this model looks at before it answers (sparse RT, table 9)."""
        messages = self.messages_after(question, reasoning, style)
        kept = await self.generate(Request(messages, 0, question.id, "select", self.sparse))
        return Call(self.role, "select", kept, None)

    def messages_after(self, question: Question, reasoning: Call, style: Style = "R") -> tuple[Message, ...]:
        """The prompt in which this model answers after reading reasoning."""
        return (
            *question.asking(self.prompts.wording(style, question.kind)),
            Message("assistant", (inert(reasoning.text),)),
            Message("user", (self.prompts.final[question.kind],)),
        )

    async def _call(self, question: Question, stage: str, messages: tuple[Message, ...], limit: int) -> Call:
        completion = await self.generate(Request(messages, limit, question.id, stage))
        cut = stage in ("E", "R") and completion.finish_reason == "length"
        answer = answers.extract(completion.text, question.kind, question.options, cut=cut)
        return Call(self.role, stage, completion, answer)
