"""What goes into a model, what comes out of it, and what a strategy returns.

All records are frozen.  `Usage` adds, so that the cost of any set of calls is their sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

Style = Literal["S", "E", "R"]
"""The paper's three ways to ask: a short answer, an explanation, step-by-step reasoning."""

Kind = Literal["short", "yes_no", "choice"]
"""What an answer looks like, told from the prompt alone."""

FinishReason = Literal["stop", "length"]

SelectBy = Literal["attention", "random", "last"]


def read_layer(value: Any) -> int | float:
    """A decoder layer: its number, counted from 0, or, with a point in it, its share of the depth.

    Raises:
        ValueError: it is neither.
    """
    try:
        number = float(value) if "." in str(value) else int(str(value))
    except ValueError:
        number = -1
    if number < 0 or (isinstance(number, float) and number >= 1):
        raise ValueError("must be a layer's number, counted from 0, or a share of the depth such as 0.44")
    return number


def read_share(value: Any) -> float:
    """A number above 0 and at most 1.

    Raises:
        ValueError: it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= 1 or isinstance(value, bool):
        raise ValueError("must be a number above 0 and at most 1")
    return number


Layer = Annotated[int | float, read_layer]
Share = Annotated[float, read_share]


@dataclass(frozen=True)
class Image:
    """An image as the harness gave it (a PIL image).  Core never looks inside."""

    data: Any = field(repr=False)


Part = str | Image


@dataclass(frozen=True)
class Message:
    """One turn of a conversation: text and images in order."""

    role: Literal["system", "user", "assistant"]
    content: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, one per line; images left out."""
        return "\n".join(part for part in self.content if isinstance(part, str))

    @property
    def images(self) -> tuple[Image, ...]:
        """The images, in order."""
        return tuple(part for part in self.content if isinstance(part, Image))


@dataclass(frozen=True)
class Sparse:
    """What of another model's reasoning is transferred in sparse transfer: the tokens that the large model attends to.

    Attributes:
        layer: the decoder layer whose attention decides: its number, counted from 0, or, as a float below 1, its share
            of the model's depth.  Default: layer 16 of Qwen3-VL-8B's 36.
        keep: share of the reasoning's attention that the smallest set of kept tokens holds (paper, table 9: 0.8).
        by: `attention` keeps that set; `random` and `last` as many tokens, drawn or from the end: what the choice is
            worth is seen beside these.
    """

    layer: int | float = 16 / 36
    keep: float = 0.8
    by: SelectBy = "attention"

    def layer_of(self, depth: int) -> int:
        """The layer's number in a model of `depth` decoder layers.

        Raises:
            ValueError: the model has no such layer.
        """
        layer = self.layer if isinstance(self.layer, int) else min(round(self.layer * depth), depth - 1)
        if not 0 <= layer < depth:
            raise ValueError(f"layer={self.layer} does not exist: the model has {depth}, counted from 0")
        return layer


@dataclass(frozen=True, slots=True)
class Request:
    """One greedy generation asked of an engine, or, with `sparse`, a selection.

    A selection writes nothing.  Its messages end as those of a second stage do: reasoning (the last assistant turn),
    then the final question.  What comes back as text is the part of the reasoning that the model looks at.

    Attributes:
        messages: the conversation so far; the model writes the next assistant turn.
        max_tokens: limit on the tokens it may write.
        question_id: which question this is for.  For logs and scripts: no model sees it.
        stage: which step of a strategy, `S`, `E`, `R`, `select` or `final`.  For logs and scripts too.
        lane: an engine that makes batches itself puts requests of one lane together, so that short ones do not wait
            behind long ones.
        logprob: whether the log-probability of the text is wanted, where the engine has it.
        sparse: what to select; None to generate.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    question_id: str = ""
    stage: str = ""
    lane: str = ""
    logprob: bool = False
    sparse: Sparse | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one or more calls.  They come from the model's own processor and tokenizer.

    Attributes:
        calls: how many calls these counts cover.
        prompt_tokens: tokens read, image tokens included.
        cached_tokens: of them, found in the engine's prefix cache.
        output_tokens: tokens written, the end-of-turn token included.
        reasoning_tokens: of them, written in an E or R stage.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine returns for a `Request`.

    Attributes:
        text: what the model wrote, special tokens left out.
        prompt_tokens, cached_tokens, output_tokens: as in `Usage`.
        ttft_s: seconds from the request's arrival at the engine to its first token, waiting included.
        e2e_s: seconds from the request's arrival to its last token.
        finish_reason: `length` if `max_tokens` cut it, else `stop`.
        logprob: summed log-probability of the written tokens, where the engine has it.
        reused: taken from the call store instead of being made; the times are those it was made with.
        call_id: its row in the call store, None where there is none.
        details: counts that only some calls have.  Of a selection `full_tokens`, those of the whole reasoning, and of
            them `kept_tokens`; of speculative decoding `drafted_tokens` and of them `accepted_tokens`.
    """

    text: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    finish_reason: FinishReason = "stop"
    logprob: float | None = None
    reused: bool = False
    call_id: int | None = None
    details: Mapping[str, int] = field(default_factory=dict)


class NoConfidence(ValueError):
    """A strategy needs a log-probability that the engine does not give."""

    def __init__(self, role: str) -> None:
        super().__init__(f"the engine of {role!r} gives no log-probabilities: use engine=vllm, or openai where served")
        self.role = role


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a strategy made.

    Attributes:
        role: which model of the strategy: `small` or `large`, `model` where there is one only, or a role of one's own.
        stage: `S`, `E`, `R`, `select` (which reasoning is transferred), or `final` (a short answer after reading it).
        answer: the answer found in the text, None if it states none.
    """

    role: str
    stage: str
    completion: Completion
    answer: str | None

    @property
    def text(self) -> str:
        """What the model wrote."""
        return self.completion.text

    @property
    def confidence(self) -> float:
        """Summed log-probability of the text.

        Raises:
            NoConfidence: the engine gave none.
        """
        if self.completion.logprob is None:
            raise NoConfidence(self.role)
        return self.completion.logprob

    @property
    def truncated(self) -> bool:
        """Whether the token limit cut it."""
        return self.completion.finish_reason == "length"

    @property
    def usage(self) -> Usage:
        """Token counts of this call."""
        done = self.completion
        reasoning = done.output_tokens if self.stage in ("E", "R") else 0
        return Usage(1, done.prompt_tokens, done.cached_tokens, done.output_tokens, reasoning)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy returns for one question.

    Attributes:
        question_id: the question's id.
        route: the way the answer was reached, one of the strategy's named routes.
        final: the call whose answer is returned.
        calls: every call made, in the order of their stages.
        returned: what goes back to the harness, once a run has worked it out.
    """

    question_id: str
    route: str
    final: Call
    calls: tuple[Call, ...]
    returned: str | None = None

    @property
    def answer(self) -> str:
        """The bare answer, as scorers want it; where the text states none, the text as it stands."""
        return self.final.text.strip() if self.final.answer is None else self.final.answer

    @property
    def answered(self) -> bool:
        """Whether the final text states an answer at all."""
        return self.final.answer is not None

    def usage(self, role: str | None = None) -> Usage:
        """Token counts of all calls, or of one model's."""
        return total(call.usage for call in self.calls if role in (None, call.role))


def in_order(roles: Iterable[str]) -> list[str]:
    """Roles as tables list them: the small model first, the large one last, others between."""
    places = {"small": 0, "large": 2, "model": 3}
    return sorted(dict.fromkeys(roles), key=lambda role: places.get(role, 1))


def total_details(completions: Iterable[Completion]) -> dict[str, int]:
    """The sums of the counts that only some calls have, see `Completion`."""
    sums: Counter[str] = Counter()
    for done in completions:
        sums.update(done.details)
    return dict(sums)


def critical_path(calls: Iterable[Call]) -> float:
    """Seconds of a question's calls one after the other; calls of one stage run side by side: the longest counts.

    For the cascade: the slower of both S calls, then R, then the final answer.
    """
    stages: dict[str, float] = {}
    for call in calls:
        seconds = call.completion.e2e_s
        if seconds > stages.get(call.stage, 0.0):
            stages[call.stage] = seconds
    return sum(stages.values())


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of some `Usage` records."""
    return sum(usages, Usage())
