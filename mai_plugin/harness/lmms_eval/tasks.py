"""The six benchmarks asked in S, E and R, as tasks of lmms-eval: `--tasks chartqa_mai_r` with any model.

The task files in `task_configs/lmms_eval/` name these functions.  Data, images, prompts and scorers are the stock
tasks' own; E and R take the place of the request for a short answer, and the scorer gets the answer that a text
states, bare, because stock scorers take no reasoning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmms_eval.api.metrics import anls
from lmms_eval.tasks.chartqa import utils as chartqa
from lmms_eval.tasks.infovqa import utils as infovqa
from lmms_eval.tasks.mmbench import en_utils as mmbench
from lmms_eval.tasks.mmmu import utils as mmmu
from lmms_eval.tasks.pope import utils as pope
from lmms_eval.tasks.realworldqa import utils as realworldqa

from mai_plugin.core.answers import extract
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Image, Message, Style
from mai_plugin.harness.lmms_eval.model import to_messages

Doc = dict[str, Any]
Chat = list[dict[str, Any]]
Ask = Callable[..., Chat]
Score = Callable[[Doc, list[str]], dict[str, Any]]


def _chat(doc_to_visual: Callable[[Doc], list[Any]], doc_to_text: Callable[..., str]) -> Ask:
    """Messages as lmms-eval makes them for a task that has none of its own: images first, then the text."""

    def doc_to_messages(doc: Doc, lmms_eval_specific_kwargs: dict[str, Any] | None = None) -> Chat:
        images = [{"type": "image", "url": image} for image in doc_to_visual(doc)]
        text = doc_to_text(doc, lmms_eval_specific_kwargs or {})
        return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]

    return doc_to_messages


def _asking(style: Style, stock: Ask) -> Ask:
    """The stock messages with the wording of E or R in the place of the request for a short answer."""

    def doc_to_messages(doc: Doc, lmms_eval_specific_kwargs: dict[str, Any] | None = None) -> Chat:
        prompts = load_prompts()
        messages = to_messages(stock(doc, lmms_eval_specific_kwargs))
        question = Question.from_messages("", messages, 1, prompts)
        return [
            {
                "role": message.role,
                "content": [
                    {"type": "image", "url": part.data} if isinstance(part, Image) else {"type": "text", "text": part}
                    for part in message.content
                ],
            }
            for message in question.asking(prompts.wording(style, question.kind))
        ]

    return doc_to_messages


def _scoring(stock: Score, doc_to_text: Callable[..., str], plain: dict[str, str] | None) -> Score:
    """The stock scorer on the answers that texts state.

    What a question asks for is told from its text alone: `doc_to_text` with `plain`, which adds no request to it.
    """

    def process_results(doc: Doc, results: list[str]) -> dict[str, Any]:
        text = doc_to_text(doc, plain)
        question = Question.from_messages("", [Message("user", (text,))], 1, load_prompts())
        answers = [extract(result, question.kind, question.options) for result in results]
        return stock(
            doc, [result if answer is None else answer for result, answer in zip(results, answers, strict=True)]
        )

    return process_results


def _score_anls(doc: Doc, results: list[str]) -> dict[str, Any]:
    """InfoVQA has no `process_results`: its task scores by the metric `anls` alone."""
    scored: dict[str, Any] = anls(doc["answers"], results)
    return scored


_PLAIN = {"pre_prompt": "", "post_prompt": ""}

_chartqa = _chat(chartqa.chartqa_doc_to_visual, chartqa.chartqa_doc_to_text)
chartqa_e, chartqa_r = _asking("E", _chartqa), _asking("R", _chartqa)
chartqa_score = _scoring(chartqa.chartqa_process_results, chartqa.chartqa_doc_to_text, _PLAIN)

_infovqa = _chat(infovqa.infovqa_doc_to_visual, infovqa.infovqa_doc_to_text)
infovqa_e, infovqa_r = _asking("E", _infovqa), _asking("R", _infovqa)
infovqa_score = _scoring(_score_anls, infovqa.infovqa_doc_to_text, _PLAIN)

_mmbench = _chat(mmbench.mmbench_doc_to_visual, mmbench.mmbench_doc_to_text)
mmbench_e, mmbench_r = _asking("E", _mmbench), _asking("R", _mmbench)
mmbench_score = _scoring(mmbench.mmbench_process_results, mmbench.mmbench_doc_to_text, None)

mmmu_e, mmmu_r = _asking("E", mmmu.mmmu_doc_to_messages), _asking("R", mmmu.mmmu_doc_to_messages)
mmmu_score = _scoring(mmmu.mmmu_process_results, mmmu.mmmu_doc_to_text, None)

_pope = _chat(pope.pope_doc_to_visual, pope.pope_doc_to_text)
pope_e, pope_r = _asking("E", _pope), _asking("R", _pope)
pope_score = _scoring(pope.pope_process_results, pope.pope_doc_to_text, _PLAIN)

_realworldqa = _chat(realworldqa.realworldqa_doc_to_visual, realworldqa.realworldqa_doc_to_text)
realworldqa_e, realworldqa_r = _asking("E", _realworldqa), _asking("R", _realworldqa)
realworldqa_score = _scoring(realworldqa.realworldqa_process_results, realworldqa.realworldqa_doc_to_text, _PLAIN)
