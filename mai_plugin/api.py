"""Ask models from Python: `mai_plugin.open`, and answers and stored runs as pandas frames."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mai_plugin.core.question import Question, find_options
from mai_plugin.core.records import Call, Image, Message, Outcome, Part, critical_path, total
from mai_plugin.core.stems import split_request
from mai_plugin.run.runner import Failure, Item
from mai_plugin.run.session import Session
from mai_plugin.run.stored import Run, Sample
from mai_plugin.settings import Settings, implied_strategy

if TYPE_CHECKING:
    from pandas import DataFrame
    from PIL.Image import Image as PILImage

    ImageSource = PILImage | str | os.PathLike[str]

SHORT_REQUEST = "Answer the question using a single word or phrase."
LETTER_REQUEST = "Answer with the option's letter from the given choices directly."
TASK = "python"
"""What questions are filed under in a call store."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question, and what it cost.

    Attributes:
        question_id: `python/0`, `python/1` ... in the order of asking.
        answer: the bare answer; where the text states none, or with `raw=True`, the text.
        route: how it was reached, one of the strategy's routes.
        tokens: role to the output tokens of that model.
        seconds: the critical path: calls of one stage count as made side by side, stages one after the other.
        text: the final text as generated.
        calls: every call, in the order of their stages.
    """

    question_id: str
    answer: str
    route: str
    tokens: dict[str, int]
    seconds: float
    text: str = field(repr=False)
    calls: tuple[Call, ...] = field(repr=False)

    @classmethod
    def of(cls, outcome: Outcome) -> Answer:
        """What a strategy came to."""
        tokens: dict[str, int] = {}
        for call in outcome.calls:
            tokens[call.role] = tokens.get(call.role, 0) + call.usage.output_tokens
        returned = outcome.answer if outcome.returned is None else outcome.returned
        return cls(
            outcome.question_id,
            returned,
            outcome.route,
            tokens,
            critical_path(outcome.calls),
            outcome.final.text,
            outcome.calls,
        )

    def __str__(self) -> str:
        return self.answer


class Models:
    """Models that answer together until they are closed: made by `open`.

    Args:
        session: answers the questions; closed with this object.
        max_new_tokens: limit on short answers.

    Attributes:
        session: as given.  Its `settings` tell the models and the strategy.
    """

    def __init__(self, session: Session, max_new_tokens: int = 64) -> None:
        self.session = session
        self._limit = max_new_tokens
        self._numbers = itertools.count()
        self._asking = threading.Lock()

    def ask(self, text: str, images: ImageSource | Sequence[ImageSource] = (), *, brief: bool = True) -> Answer:
        """Answer one question; `ask_all` is faster for many.

        Args:
            text: the question.  Options go on lines of their own: `A. red`.
            images: PIL images or paths, one or a list; the text follows them.
            brief: where the text does not ask for a short answer, append the request that lmms-eval's tasks have:
                "Answer the question using a single word or phrase.", or for a question with options "Answer with the
                option's letter from the given choices directly."

        Raises:
            ValueError: the text is empty, an image cannot be read, or the models are closed.
            EngineError: a model cannot answer.
        """
        (result,) = self.ask_all([(text, images)], brief=brief)
        if isinstance(result, Failure):
            raise result.error
        return result

    def ask_all(
        self,
        questions: Iterable[tuple[str, ImageSource | Sequence[ImageSource]]],
        *,
        progress: bool = False,
        brief: bool = True,
    ) -> list[Answer | Failure]:
        """Answer many questions, `concurrency` of them at a time.  With a call store, each call of this is a run.

        Args:
            questions: text and images of each, as `ask` takes them.
            progress: whether to show a bar.
            brief: as in `ask`.

        Returns:
            A result per question, in order: an `Answer`, or a `Failure` (whose `error` says why) where there is none.

        Raises:
            ValueError: the models are closed or cannot be loaded, or the call store cannot be written.
        """
        items = [self._item(text, images, brief) for text, images in questions]
        with self._asking:  # a store takes one run of a session at a time
            results, _ = self.session.run(items, progress=progress, harness={"harness": TASK})
        return [result if isinstance(result, Failure) else Answer.of(result) for result in results]

    def close(self) -> None:
        """Free the models.  May be called twice."""
        self.session.close()

    def __enter__(self) -> Models:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        models = ", ".join(f"{role}={model.name}" for role, model in self.session.settings.models.items())
        return f"<{self.session.settings.name}: {models}{', closed' if self.session.closed else ''}>"

    def _item(self, text: str, images: ImageSource | Sequence[ImageSource], brief: bool) -> Item:
        """A question that reads its images when its turn comes."""
        question_id = f"{TASK}/{next(self._numbers)}"
        listed = images if isinstance(images, Sequence) and not isinstance(images, str) else [images]

        def build() -> Question:
            content: list[Part] = [_image(image) for image in listed]
            content.append(self._with_request(text) if brief else text)
            return self.session.question(question_id, [Message("user", tuple(content))], self._limit)

        return Item(question_id, build)

    def _with_request(self, text: str) -> str:
        _, request, _ = split_request(text, self.session.settings.prompts)
        if request or not text.strip():
            return text
        return f"{text.rstrip()}\n{LETTER_REQUEST if find_options(text) else SHORT_REQUEST}"


def open(
    preset: str | None = None,
    *,
    strategy: str | Callable[..., Any] | None = None,
    max_new_tokens: int = 64,
    store: str | os.PathLike[str] = "off",
    **arguments: Any,
) -> Models:
    """Load models and get an object to ask.

    Args:
        preset: a name from `mai presets`, or a YAML file like one; or give the models: `small=`, `large=`.
        strategy: a built-in strategy, one's own as `file.py:function`, or the function; default: the preset's, `single`
            where `model=` is given, else `mutual_verification`.
        max_new_tokens: limit on short answers; reasoning has `max_reasoning_tokens`.
        store: a folder or file to store calls in, and to reuse them from; by default nothing is stored.
        arguments: any other argument of `--model_args`, see `mai args`.

    Raises:
        ValueError: one line: an argument is wrong, a model cannot be loaded, or the store cannot be opened.
    """
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"argument max_new_tokens={max_new_tokens!r} must be a whole number, at least 1")
    given = {**arguments, "preset": preset, "strategy": strategy, "store": os.fspath(store)}
    return Models(Session(Settings.from_args(implied_strategy(given), given)), max_new_tokens)


def to_frame(source: Run | Iterable[Answer | Failure]) -> tuple[DataFrame, DataFrame]:
    """A stored run or a list of answers as two pandas frames: a row per question, and a row per call.

    `question_id` joins them.  `score` (0 to 1) is None until the harness's scores are joined to a stored run
    (`mai_plugin.harness.scores.score`).

    Raises:
        ValueError: pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ModuleNotFoundError as error:
        raise ValueError("to_frame needs pandas: pip install pandas") from error
    entries = source.samples.values() if isinstance(source, Run) else source
    questions, calls = [], []
    for entry in entries:
        made = () if isinstance(entry, Failure) else entry.calls
        questions.append(_question_row(entry, made))
        calls += [_call_row(entry.question_id, call) for call in made]
    return DataFrame(questions, columns=_QUESTION_COLUMNS), DataFrame(calls, columns=_CALL_COLUMNS)


_QUESTION_COLUMNS = (
    "question_id", "route", "answer", "score", "calls", "prompt_tokens", "output_tokens", "reasoning_tokens", "seconds",
    "error",
)  # fmt: skip
_CALL_COLUMNS = (
    "question_id", "role", "stage", "answer", "text", "prompt_tokens", "cached_tokens", "output_tokens", "ttft_s",
    "e2e_s", "finish_reason", "logprob", "reused",
)  # fmt: skip


def _question_row(entry: Answer | Failure | Sample, calls: Sequence[Call]) -> tuple[Any, ...]:
    usage = total(call.usage for call in calls)
    spent = (usage.calls, usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens, critical_path(calls))
    if isinstance(entry, Failure):
        return entry.question_id, None, None, None, *spent, str(entry.error)
    if isinstance(entry, Answer):
        return entry.question_id, entry.route, entry.answer, None, *spent, None
    return entry.question_id, entry.route, entry.returned, entry.score, *spent, entry.error


def _call_row(question_id: str, call: Call) -> tuple[Any, ...]:
    done = call.completion
    return (
        question_id, call.role, call.stage, call.answer, done.text, done.prompt_tokens, done.cached_tokens,
        done.output_tokens, done.ttft_s, done.e2e_s, done.finish_reason, done.logprob, done.reused,
    )  # fmt: skip


def _image(source: ImageSource) -> Image:
    """An image as the strategies take it, decoded.

    Raises:
        ValueError: it is no image, or cannot be read.
    """
    from PIL import Image as images

    try:
        found = images.open(source) if isinstance(source, str | os.PathLike) else source
        return Image(found.convert("RGB"))
    except (OSError, SyntaxError, ValueError, AttributeError) as error:
        named = repr(str(source)) if isinstance(source, str | os.PathLike) else f"of type {type(source).__name__}"
        raise ValueError(f"image {named} cannot be read: {error}; expected a PIL image or a path") from error
