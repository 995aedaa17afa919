"""Run a pair over questions: both models reason, and the large one is watched while it reads either reasoning."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tqdm import tqdm

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import inert
from mai_plugin.core.question import Question
from mai_plugin.core.records import Message, Outcome, Sparse
from mai_plugin.core.strategies import Strategy
from mai_plugin.core.text import one_line
from mai_plugin.engines.attention.reasoning import Reasoning, find_reasoning
from mai_plugin.engines.base import EngineError
from mai_plugin.run.runner import Failure, Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings
from mai_plugin.study.attention.measures import EARLIER, Array, Measured, Reading, look_at
from mai_plugin.study.attention.questions import Asked, Questions

if TYPE_CHECKING:
    from mai_plugin.engines.transformers import TransformersEngine

TOY = "TOY: toy models, good for nothing but bar charts"
READINGS = {"small": "large + small-R", "large": "large + large-R"}
"""Whose reasoning the large model reads, and what that is called."""
_EXAMPLE_TOKENS = 60
"""The longest reasoning that a picture shows well, token by token."""


@dataclass(frozen=True)
class Example:
    """One question, token by token.

    Attributes:
        question_id: which one.
        question: its text, without the request for a short answer.
        readings: role (whose reasoning is read) to what was measured.
    """

    question_id: str
    question: str
    readings: Mapping[str, Measured]


@dataclass(frozen=True)
class Study:
    """What was measured.

    Attributes:
        models: role to name.
        questions: what was asked, in words.
        asked: how many questions.
        keep: the share of the weight.
        readings: role (whose reasoning is read) to its measurements, over the same questions.
        same: questions where both models' reasoning is the same text.
        left_out: question to the reason why it was not measured.
        example: reasoning that mentions its answer more than once, the longest that a picture can show.
    """

    models: Mapping[str, str]
    questions: str
    asked: int
    keep: float
    readings: Mapping[str, Reading]
    same: int
    left_out: Mapping[str, str]
    example: Example

    @property
    def n(self) -> int:
        """Questions that were measured."""
        return len(self.readings["small"].looks)

    @property
    def toy(self) -> bool:
        """Whether a model is of the tiny pair."""
        return any(name.startswith("mai-tiny") for name in self.models.values())


def check(settings: Settings, keep: float) -> None:
    """Refuse what cannot be studied, before anything is loaded.

    Raises:
        ValueError: `keep` is no share, or the engine gives no attention weights.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"--keep {keep}: must be above 0 and at most 1")
    if settings.engine != "transformers":
        raise ValueError(f"--engine {settings.engine}: attention weights require engine=transformers")


def run_study(settings: Settings, questions: Questions, keep: float = 0.8, *, progress: bool = True) -> Study:
    """Let both models reason about every question, then take the large model's attention over either reasoning.

    The prompt is that of reasoning transfer, or of the two-stage strategy where the reasoning is the large model's
    own (`Agent.ask_after`).  Attention is that of its last token, from which the answer is written, at every layer.
    A question counts for both readings or for neither.  Calls are stored and reused; no run is
    stored.

    Args:
        settings: of a pair, on the engine `transformers`.
        questions: what to ask.
        keep: share of the weight, above 0 and at most 1.
        progress: whether to show bars.

    Raises:
        ValueError: an argument does not fit, a model cannot be loaded, or no question could be measured.
    """
    check(settings, keep)
    readings = {role: Reading() for role in READINGS}
    left_out: dict[str, str] = {}
    same = 0
    example: Example | None = None
    with ExitStack() as stack:
        # The session records no run: it would be taken for one of transfer.  Its name is that of the bar.
        named = replace(settings, name="reasoning")
        session = stack.enter_context(Session(named, strategy=_both_reason, record_runs=False))
        session.load()
        session.engines["large"].check_selection(Sparse(layer=0))  # type: ignore[attr-defined]
        items = [Item(asked.id, partial(_question, session, asked)) for asked in questions.asked]
        results = session.run(items, progress=progress)[0]
        pairs = zip(questions.asked, results, strict=True)
        for asked, result in tqdm(pairs, "attention", len(results), unit="question", disable=not progress):
            try:
                if isinstance(result, Failure):
                    raise result.error
                found = _watch(session, asked, result, keep)
            except Exception as error:  # one bad question does not stop the others
                left_out[asked.id] = one_line(error)
                if not isinstance(result, Failure):  # those were said when they failed
                    tqdm.write(f"mai: question {asked.id} is left out: {left_out[asked.id]}", file=sys.stderr)
                continue
            same += found.readings["small"].tokens == found.readings["large"].tokens
            for role, reading in readings.items():
                reading.add(found.readings[role])
            example = max((example or found, found), key=_shows_well)
    if example is None:
        first = next(iter(left_out.items()))
        raise ValueError(f"none of {len(left_out)} questions could be measured; first: question {first[0]}: {first[1]}")
    names = {role: model.name for role, model in settings.models.items()}
    return Study(names, questions.what, len(questions.asked), keep, readings, same, left_out, example)


def _both_reason(agents: Mapping[str, Agent]) -> Strategy:
    """A strategy in which both models reason: an outcome with two calls."""

    async def both(question: Question) -> Outcome:
        small, large = await asyncio.gather(*(agents[role].ask(question, "R") for role in READINGS))
        return Outcome(question.id, "R", large, (small, large))

    return both


def _question(session: Session, asked: Asked) -> Question:
    return session.question(asked.id, asked.messages(), asked.max_new_tokens)


def _watch(session: Session, asked: Asked, outcome: Outcome, keep: float) -> Example:
    """Measure one question, both readings."""
    question = _question(session, asked)
    engine: TransformersEngine = session.engines["large"]  # type: ignore[assignment]
    readings = {}
    for call in outcome.calls:
        rows, reasoning = attend(engine, session.agents["large"].messages_after(question, call))
        if not reasoning.spans:
            raise EngineError(f"the reasoning of the {call.role} model is empty")
        answer = None if call.answer is None else inert(call.answer)
        readings[call.role] = look_at(
            rows, reasoning, answer, keep, question_id=asked.id, task=asked.task, cut=call.truncated
        )
    return Example(asked.id, question.stem[-1].text, readings)


def attend(engine: TransformersEngine, messages: tuple[Message, ...]) -> tuple[Array, Reasoning]:
    """Attention of a prompt's last token at every layer, and where the prompt's reasoning stands.

    Args:
        engine: of the model that reads; nothing else may run on it.
        messages: ending in the reasoning (assistant) and the question after it (user).

    Returns:
        Weights `[layers, heads, tokens]`, float32, and the reasoning's tokens.

    Raises:
        EngineError: the prompt does not fit the model's context, or the reasoning's tokens cannot be told.
        ValueError: as `attention_rows`.
    """
    import torch

    from mai_plugin.engines.attention.rows import attention_rows

    inputs = engine.inputs(messages)
    reasoning = find_reasoning(engine.processor, messages, inputs["input_ids"][0].tolist())
    if engine.model.device.type == "cuda":  # kernels that are not torch's own ask for the thread's current device
        torch.cuda.set_device(engine.model.device)
    return attention_rows(engine.model, inputs, range(engine.depth)).numpy(), reasoning


def _shows_well(example: Example) -> tuple[bool, bool, int]:
    """One with earlier mentions of the answer, the longest that a picture shows well, else the shortest."""
    longest = max(len(reading.tokens) for reading in example.readings.values())
    fits = longest <= _EXAMPLE_TOKENS
    return (
        fits,
        all(EARLIER in reading.look.groups for reading in example.readings.values()),
        longest if fits else -longest,
    )
