"""The model that VLMEvalKit sees.  It is an API model to the kit, whose threads then ask many questions at once."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from PIL import Image as PILImage

from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Outcome, Part
from mai_plugin.harness.vlmevalkit.files import Predictions, data_digest
from mai_plugin.run.open_run import OpenRun
from mai_plugin.run.provenance import describe_settings, model_identities, new_run_id
from mai_plugin.run.runner import Item, Stop
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings, implied_strategy

FAIL_MSG = "Failed to obtain answer via API."
"""What the kit takes for "no answer": it asks again in the next run (`vlmeval.inference.FAIL_MSG`)."""

NO_ANSWER = "-"
"""Returned where the final text states no answer and is no short text either: no scorer finds an answer in it."""

LONGEST_TEXT = 200
"""Characters up to which a text that states no answer is returned as is."""

DEFAULT_MAX_NEW_TOKENS = 1024
"""Limit on a short answer: the kit's data sets set none."""


def settings_for(args: Mapping[str, Any]) -> tuple[Settings, int]:
    """The settings of a model of ours, and the limit on its short answers.

    Args:
        args: those of `Settings.from_args`, with `strategy` (by default the preset's) and `max_new_tokens`.

    Raises:
        ValueError: one line that names the argument and the values it may take.
    """
    given = dict(args)
    limit = given.pop("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"argument max_new_tokens={limit!r} must be a whole number, at least 1")
    return Settings.from_args(implied_strategy(given), given), limit


def described(settings: Settings, max_new_tokens: int) -> dict[str, Any]:
    """All that decides the answers, as it is stored beside predictions.  Nothing is loaded for it."""
    identities = model_identities(settings)
    kept = describe_settings(settings, identities)
    for key in ("models", "concurrency", "reuse"):
        del kept[key]
    kept["prompts"] = sha256(repr(settings.prompts).encode()).hexdigest()[:16]
    return {**kept, "max_new_tokens": max_new_tokens, **{f"{role} model": who for role, who in identities.items()}}


@dataclass
class _Evaluation:
    """A data set that is being answered."""

    predictions: Predictions
    settings: dict[str, Any]
    question_ids: list[str]
    earlier: str | None


class MaiVLM:
    """A cascade, a transfer or a single model, for `supported_VLM` and for the `class` of a `--config` file.

    The models are loaded at the first question, and gone when another `MaiVLM` loads its own.

    Args:
        args: `preset`, `strategy`, `max_new_tokens`, and the arguments of `Settings.from_args`.

    Raises:
        SystemExit: an argument is wrong.  It is no `Exception`, because the kit logs those and continues.
    """

    is_api = True
    INTERLEAVE = True
    _loaded: ClassVar[MaiVLM | None] = None

    def __init__(self, **args: Any) -> None:
        try:
            self.settings, self.max_new_tokens = settings_for(args)
        except ValueError as error:
            _stop(str(error))
        self.session: Session | None = None
        self._dataset: Any = None
        self._evaluation: _Evaluation | None = None
        self._run: OpenRun | None = None
        self._stopped: BaseException | None = None
        self._lock = threading.Lock()
        self._unnamed = itertools.count()

    def set_dump_image(self, dump_image: Any) -> None:
        """Called by the kit before each data set: the method is the data set's, so that this tells which it is."""
        self._dataset = getattr(dump_image, "__self__", None)

    def use_custom_prompt(self, dataset: str | None) -> bool:
        """Whether `build_prompt` is to be used: it is where a question's index can be noted."""
        return self._dataset is not None

    def build_prompt(self, line: Any, dataset: str | None = None) -> list[dict[str, Any]]:
        """The data set's own prompt, untouched, with the row's index as a further key."""
        # The row holds the gold answer too: it goes into the data set's own method and nowhere else.
        prompt: list[dict[str, Any]] = self._dataset.build_prompt(line)
        return [{**part, "index": line["index"]} for part in prompt]

    def generate(self, message: Any, dataset: str | None = None) -> str:
        """Answer one question; called from as many threads as questions are to be in flight.

        Args:
            message: a prompt as the kit builds it, or a list of texts and image files.
            dataset: the data set's name.

        Returns:
            The bare answer, and nothing of the reasoning; `FAIL_MSG` where it could not be answered while a data set
            is evaluated, which then ends in an error and without a score.

        Raises:
            RuntimeError: it could not be answered, outside of such an evaluation.
            SystemExit: the models cannot be loaded, or no question can be answered with them.
        """
        session, run = self._ready(dataset)
        parts = [message] if isinstance(message, str | Mapping) else list(message)
        index = next((part["index"] for part in parts if isinstance(part, Mapping) and "index" in part), None)
        question_id = f"{dataset or 'none'}/{f'unnamed-{next(self._unnamed)}' if index is None else index}"

        def build() -> Question:
            return session.question(question_id, to_messages(parts), self.max_new_tokens)

        try:
            result = run.ask(Item(question_id, build))
        except Stop as stop:
            with self._lock:
                self._stopped = SystemExit(f"mai: {stop}")
            run.cancel()
            raise self._stopped from None
        except CancelledError:  # by Ctrl-C, or by a question that ended the run
            raise self._stopped or CancelledError() from None
        if isinstance(result, Outcome):
            return result.returned or ""
        if self._evaluation is None:
            raise RuntimeError(str(result))
        return FAIL_MSG

    def chat(self, messages: Any, dataset: str | None = None) -> NoReturn:
        """Not supported: a strategy answers one question.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{dataset} asks for several rounds; mai models answer one question")

    def _text(self, outcome: Outcome) -> str:
        if self.settings.raw or outcome.answered:
            return outcome.final.text if self.settings.raw else outcome.answer
        short = "\n" not in outcome.answer and len(outcome.answer) <= LONGEST_TEXT
        return outcome.answer if short and outcome.answer else NO_ANSWER

    @contextmanager
    def evaluating(self, work_dir: Path, model_name: str, dataset: Any, limit: int | None) -> Iterator[None]:
        """Around the kit's inference on a data set: a run in the call store, if any question is asked.

        Raises:
            SystemExit: the folder holds predictions that were made with other settings.
            RuntimeError: at its end, if questions could not be answered: so the kit gives no score.
        """
        name = str(dataset.dataset_name)
        predictions = Predictions(work_dir, model_name, name)
        try:
            settings = {**described(self.settings, self.max_new_tokens), "questions": data_digest(dataset.data)}
            earlier = predictions.check(settings)
        except ValueError as error:
            _stop(str(error))
        ids = [f"{name}/{index}" for index in dataset.data["index"][: limit or None]]
        self._evaluation, self._stopped = _Evaluation(predictions, settings, ids, earlier), None
        try:
            with self._stopping_at_ctrl_c():
                yield
            if self._run:
                self._end(f"{model_name} x {name}")
        finally:
            self._evaluation = self._run = None

    def _end(self, what: str) -> None:
        assert self._run is not None
        summary, failures = self._run.end(), self._run.failures
        print(f"mai: {what}: {summary}", file=sys.stderr, flush=True)
        if failures:
            recorder = self.session and self.session.recorder
            kept = f"; all others are stored in {recorder.store.path.absolute()}" if recorder else ""
            many = f"{len(failures)} of {len(failures) + summary.questions} questions could not be answered"
            raise RuntimeError(
                f"{many}, so there is no score; first: {failures[0]}{kept}; the same command asks them again"
            )

    @contextmanager
    def _stopping_at_ctrl_c(self) -> Iterator[None]:
        """Cancel what is in flight: the kit would wait for all questions of the data set."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(signum: int, frame: Any) -> NoReturn:
            self._stopped = CancelledError()
            if self._run:
                self._run.cancel()
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        except CancelledError as error:  # the interrupt itself was lost, in a destructor or the like
            raise KeyboardInterrupt from error
        finally:
            signal.signal(signal.SIGINT, before)

    def _ready(self, dataset: str | None) -> tuple[Session, OpenRun]:
        """The session, loaded, and the run, open."""
        with self._lock:
            if self._stopped:
                raise self._stopped
            if self.session and self._run:
                return self.session, self._run
            try:
                self.session = self.session or self._load()
                self._run = self._open(self.session, dataset)
            except ValueError as error:
                self._stopped = SystemExit(f"mai: {error}")
                raise self._stopped from None
            return self.session, self._run

    def _load(self) -> Session:
        if MaiVLM._loaded:
            MaiVLM._loaded.close()
        session = Session(self.settings)
        MaiVLM._loaded = self
        if session.recorder:
            print(f"mai: calls are stored in {session.recorder.store.path.absolute()}", file=sys.stderr, flush=True)
        return session

    def _open(self, session: Session, dataset: str | None) -> OpenRun:
        harness: dict[str, Any] = {"harness": "VLMEvalKit"}
        job = self._evaluation
        if job is None:
            return session.open_run([dataset or "none"], harness=harness, text=self._text)
        predictions = job.predictions
        harness |= {"results": str(predictions.folder.absolute()), "model": predictions.model}
        run_id = new_run_id(self.settings.name) if session.recorder else None
        resumes = (job.earlier, job.question_ids) if job.earlier else None
        run = session.open_run([predictions.dataset], harness=harness, run_id=run_id, resumes=resumes, text=self._text)
        # Described anew: now that the models are loaded, the commit of a Hub name is known.
        predictions.note({**job.settings, **described(self.settings, self.max_new_tokens)}, run_id)
        return run

    def close(self) -> None:
        """Free the models.  The next question loads them again."""
        if self._run and self._evaluation is None:
            self._run.end()
            self._run = None
        if self.session:
            self.session.close()
            self.session = None
        if MaiVLM._loaded is self:
            MaiVLM._loaded = None


def close_all() -> None:
    """Free the models that are loaded, whichever `MaiVLM` has them."""
    if MaiVLM._loaded:
        MaiVLM._loaded.close()


def to_messages(parts: Sequence[Any]) -> list[Message]:
    """The kit's prompt as messages, in its order; images are decoded here.

    Raises:
        ValueError: an image does not decode, or there is something else than text and images in it.
    """
    turns = [(part.get("role", "user") if isinstance(part, Mapping) else "user", _part(part)) for part in parts]
    return [
        Message(role, tuple(content for _, content in group if content != ""))
        for role, group in itertools.groupby(turns, key=lambda turn: turn[0])
    ]


def _part(part: Any) -> Part:
    if isinstance(part, str):
        is_file = len(part) < 4096 and "\n" not in part and Path(part).is_file()
        part = {"type": "image" if is_file else "text", "value": part}
    if part["type"] == "text":
        return str(part["value"])
    if part["type"] != "image":
        raise ValueError(f"holds {part['type']}; mai models read text and images")
    try:
        return Image(PILImage.open(part["value"]).convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"image {part['value']} does not decode: {error}") from error


def _stop(reason: str) -> NoReturn:
    raise SystemExit(f"mai: {reason}")
