"""lmms-eval's side: `mai_cascade`, `mai_single` and `mai_transfer`, over the harness's own tasks and scorers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from lmms_eval.models.model_utils.usage_metrics import log_usage
from lmms_eval.protocol import ChatMessages
from loguru import logger as eval_logger
from PIL import Image as PILImage
from PIL import ImageFile

from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Outcome, Part, Usage
from mai_plugin.harness.lmms_eval.registration import settings_for, take_results_folder
from mai_plugin.run.provenance import new_run_id
from mai_plugin.run.runner import Failure, Item, Result
from mai_plugin.run.session import Session
from mai_plugin.run.summary import Summary

T = TypeVar("T")
Report = tuple[Summary, list[tuple[str, str, Usage]], list[str]]
"""What a rank tells the others: its summary, its calls (role, task, tokens), and its failures."""

DEFAULT_MAX_NEW_TOKENS = 1024
"""Limit on a short answer where the task sets none."""


class _MaiModel(lmms):  # type: ignore[misc]
    """What the three models share.  Takes the arguments of `Settings.from_args` for its strategy."""

    is_simple = False
    model_id: ClassVar[str]

    def __init__(self, **args: Any) -> None:
        super().__init__()
        try:
            self.settings = settings_for(self.model_id, args)
        except ValueError as error:
            _stop(str(error))
        self._rank = int(os.environ.get("RANK", 0))
        self._world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.session = self._open()
        self._greedy_warned = False
        self._truncated: list[str] = []

    @property
    def device(self) -> torch.device:
        """Where the harness puts the tensors by which ranks talk to each other."""
        model = next(iter(self.settings.models.values()))  # a selector comes after its pair
        given = model.args.get("device", model.hints.get("device"))
        local = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
        return torch.device(local if given in (None, "auto", "cuda") else given)

    def generate_until(self, requests: Sequence[Instance]) -> list[GenerationResult]:
        """Answer the requests of all selected tasks, mixed; results keep their order.

        Raises:
            SystemExit: some questions could not be answered; raised after all others were.  It is no `Exception`,
                because the harness's command line prints those and exits with 0.
        """
        if self.session.closed:  # the same model object evaluated a second time
            self.session = self._open()
        self._truncated.clear()
        # Ranks with fewer documents get copies of a request, so that all ranks make as many; nobody reads the answers.
        wanted = [request for request in requests if not (request.metadata or {}).get("__padding_only__")]
        results, summary = self._answer(wanted)
        if self._truncated:
            count, first = len(self._truncated), self._truncated[0]
            eval_logger.warning(
                f"mai: {count} truncated images were filled up, as lmms-eval does; first: question {first}"
            )
        outcomes = [result for result in results if isinstance(result, Outcome)]
        calls = [
            (call.role, outcome.question_id.rpartition("/")[0], call.usage)
            for outcome in outcomes
            for call in outcome.calls
        ]
        # All ranks stop together or not at all, and what is reported is the cost of all of them.
        report: Report = (summary, calls, [str(result) for result in results if isinstance(result, Failure)])
        ranks = self._gather(report)
        everything = Summary.merge([summary for summary, _, _ in ranks])
        if self.rank == 0:
            eval_logger.info(f"mai: {self.settings.name}: {everything}")
        failures = [failure for _, _, failed in ranks for failure in failed]
        if failures:
            recorder = self.session.recorder
            stored = ""
            if recorder and not recorder.broken:
                stored = f"; the calls of all others are stored in {recorder.store.path.absolute()}"
            self.session.close()
            many = f"{len(failures)} of {len(failures) + everything.questions} questions could not be answered"
            _stop(f"{many}, so there is no score; first: {failures[0]}{stored}")

        for _, spent, _ in ranks:
            for role, task, usage in spent:
                # Its total adds reasoning tokens to output tokens, of which ours are a part: they are not given apart.
                log_usage(self.settings.models[role].name, task, usage.prompt_tokens, usage.output_tokens)
        # The harness divides the one by the other, so tokens that were written in another run must not count here.
        made = everything.made_tokens
        log_metrics(everything.wall_s, made, made / max(everything.wall_s, 1e-9), everything.as_metrics())

        answered = iter(outcomes)
        return [
            GenerationResult("") if (request.metadata or {}).get("__padding_only__") else self._result(next(answered))
            for request in requests
        ]

    def _answer(self, requests: Sequence[Instance]) -> tuple[list[Result], Summary]:
        """This rank's results.  The runs of all ranks are one in the store, from their start on."""
        run_ids = self._gather(new_run_id(self.settings.name))
        rank, folder = min(self.rank, len(run_ids) - 1), take_results_folder()
        harness = {
            "harness": "lmms-eval", "results": folder and str(folder), "rank": rank, "world_size": len(run_ids),
        }  # fmt: skip
        try:
            return self.session.run(
                [self._item(request) for request in requests],
                progress=self.rank == 0,
                harness=harness,
                run_id=run_ids[rank],
                part_of=run_ids[0],
            )
        except ValueError as error:
            _stop(str(error))

    def _open(self) -> Session:
        try:
            session = Session(self.settings)
        except ValueError as error:
            _stop(str(error))
        if session.recorder and self.rank == 0:
            reuse = "stored calls are reused" if self.settings.reuse else "each is made anew (reuse=false)"
            eval_logger.info(f"mai: calls are stored in {session.recorder.store.path.absolute()}; {reuse}")
        return session

    def _gather(self, mine: T) -> list[T]:
        """What every rank has to say, in the order of the ranks."""
        if self.world_size == 1 or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return [mine]
        reports: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(reports, mine)
        return reports

    def loglikelihood(self, requests: Sequence[Instance]) -> NoReturn:
        """Not supported: strategies over two models generate text."""
        _generation_only(requests, "log-likelihoods")

    def generate_until_multi_round(self, requests: Sequence[Instance]) -> NoReturn:
        """Not supported: a strategy answers one question."""
        _generation_only(requests, "several rounds")

    def clean(self) -> None:
        """Free the models before the harness scores."""
        self.session.close()

    def _item(self, request: Instance) -> Item:
        _, doc_to_messages, gen_kwargs, doc_id, task, split = request.args
        question_id = f"{task}/{doc_id}"

        def build() -> Question:
            # The document holds the gold answer too: it goes into the task's own function and nowhere else.
            def load() -> list[Message]:
                return to_messages(doc_to_messages(self.task_dict[task][split][doc_id]))

            messages = self._noticing_truncated_images(question_id, load)
            limit = int((gen_kwargs or {}).get("max_new_tokens") or DEFAULT_MAX_NEW_TOKENS)
            return self.session.question(question_id, messages, limit)

        if not self._greedy_warned and (gen_kwargs or {}).get("do_sample"):
            self._greedy_warned = True
            eval_logger.warning(f"mai: {task} asks for sampling; mai models decode greedily")
        return Item(question_id, build)

    def _noticing_truncated_images(self, question_id: str, load: Callable[[], list[Message]]) -> list[Message]:
        """Load a question's images.  lmms-eval fills up truncated ones silently: so do we, and warn."""
        tolerant = ImageFile.LOAD_TRUNCATED_IMAGES
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        try:
            return load()
        except (OSError, ValueError) as error:
            if not tolerant or "truncated" not in str(error).lower():
                raise
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = tolerant
        messages = load()
        self._truncated.append(question_id)
        return messages

    def _result(self, outcome: Outcome) -> GenerationResult:
        usage = outcome.usage()
        counts = TokenCounts(usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens)
        return GenerationResult(outcome.returned, counts)


class MaiCascade(_MaiModel):
    """`mai_cascade`: mutual verification, then reasoning transfer (MAI)."""

    model_id = "mai_cascade"


class MaiSingle(_MaiModel):
    """`mai_single`: one model in S, E or R, with or without a second stage."""

    model_id = "mai_single"


class MaiTransfer(_MaiModel):
    """`mai_transfer`: the large model answers every question after reading the small one's reasoning."""

    model_id = "mai_transfer"


def to_messages(messages: list[dict[str, Any]]) -> list[Message]:
    """lmms-eval's chat messages as ours, in their order; images are decoded here.

    Raises:
        ValueError: an image does not decode, or there is a video or audio in it.
    """
    return [
        Message(message.role, tuple(_part(content) for content in message.content))
        for message in ChatMessages(messages=messages).messages
    ]


def _part(content: Any) -> Part:
    if content.type == "text":
        return str(content.text)
    if content.type != "image":
        raise ValueError(f"holds {content.type}; mai models read text and images")
    image = content.url
    try:
        return Image((PILImage.open(image) if isinstance(image, str | os.PathLike) else image).convert("RGB"))
    except (OSError, SyntaxError, ValueError, AttributeError) as error:
        named = repr(image) if isinstance(image, str) else ""
        raise ValueError(f"image {named} does not decode: {error}".replace("  ", " ")) from error


def _generation_only(requests: Sequence[Instance], what: str) -> NoReturn:
    task = requests[0].task_name if requests else "the task"
    _stop(f"task {task!r} asks for {what}; mai models are generation only: choose a generate_until task")


def _stop(reason: str) -> NoReturn:
    raise SystemExit(f"mai: {reason}")
