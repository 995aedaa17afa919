"""The texts of training: how benchmarks ask, how strategies ask, and how a chat is written down.

The wordings of a strategy come from the package's own ``core/prompts.yaml``; the requests for brevity are those that
lmms-eval and VLMEvalKit append, so that the pair understands each of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from mai_plugin.core.prompts import DEFAULT_FILE
from mai_plugin.tiny.charts import HEIGHT, WIDTH, Problem

IMAGE_TOKENS = (HEIGHT // 32) * (WIDTH // 32)
"""Tokens of one chart: one for each 32 x 32 pixels."""

USER = "<|im_start|>user\n"
IMAGE = "<|vision_start|>" + "<|image_pad|>" * IMAGE_TOKENS + "<|vision_end|>"
TO_ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
TO_USER = "<|im_end|>\n<|im_start|>user\n"
END = "<|im_end|>"

SINGLE_WORD = "\nAnswer the question with a single word."
WORD_OR_PHRASE = "\nAnswer the question using a single word or phrase."
WORD_OR_NUMBER = "\nPlease answer directly with a single word or number."
OPTION_LETTER = "\n\nAnswer with the option's letter from the given choices directly."
ONLY_LETTER = "\nPlease answer directly with only the letter of the correct option and nothing else."
SELECT_OPTION = "Please select the correct answer from the options above. \n"


def _wordings() -> dict[str, dict[str, str]]:
    text = DEFAULT_FILE.read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return {form: dict(loaded[form]) for form in ("explain", "reason", "final")}


WORDINGS = _wordings()
"""Wording by form (explain, reason, final) and answer kind."""


@dataclass(frozen=True)
class Form:
    """One way in which a benchmark asks.

    Attributes:
        name: a short name for tables.
        layout: how the stem is built from ``{text}`` and ``{options}``.
        request: what follows the stem when a short answer is wanted; may be empty.
        share: how often training uses it.
    """

    name: str
    layout: str
    request: str
    share: float


_PLAIN = "{text}"
_LINES = "{text}\n{options}"
_SEVERAL = "{text} There are several options:\n{options}"
_VLMEVALKIT = "Question: {text}\nOptions:\n{options}\n" + SELECT_OPTION

FORMS: dict[str, tuple[Form, ...]] = {
    "short": (
        Form("single word", _PLAIN, SINGLE_WORD, 0.5),
        Form("word or phrase", _PLAIN, WORD_OR_PHRASE, 0.25),
        Form("word or number", _PLAIN, WORD_OR_NUMBER, 0.25),
    ),
    "yes_no": (
        Form("single word", _PLAIN, SINGLE_WORD, 0.5),
        Form("word or phrase", _PLAIN, WORD_OR_PHRASE, 0.25),
        Form("word or number", _PLAIN, WORD_OR_NUMBER, 0.13),
        Form("no request", _PLAIN, "", 0.12),
    ),
    "choice": (
        Form("single word", _LINES, SINGLE_WORD, 0.35),
        Form("word or phrase", _LINES, WORD_OR_PHRASE, 0.1),
        Form("option's letter", _LINES, OPTION_LETTER, 0.17),
        Form("several options", _SEVERAL, OPTION_LETTER, 0.14),
        Form("only the letter", _LINES, ONLY_LETTER, 0.14),
        Form("select the answer", _VLMEVALKIT, "", 0.1),
    ),
}
"""The forms for each answer kind, the one of lmms-eval's ChartQA first."""


def draw_form(kind: str, rng: np.random.Generator) -> Form:
    """Draws one of the forms of an answer kind by its share."""
    forms = FORMS[kind]
    return forms[int(rng.choice(len(forms), p=[form.share for form in forms]))]


def stem(problem: Problem, form: Form) -> str:
    """The question in a benchmark's layout, without a request for brevity."""
    return form.layout.format(text=problem.text, options=problem.options)


def short_text(problem: Problem, form: Form) -> str:
    """The user's text that asks for a short answer."""
    return stem(problem, form) + form.request


def asking_text(problem: Problem, form: Form, strategy: str) -> str:
    """The user's text that asks for reasoning: the stem, then the wording of ``reason`` or ``explain``."""
    return f"{stem(problem, form)}\n{WORDINGS[strategy][problem.kind]}"


def one_turn(text: str) -> str:
    """The chat up to where the model answers: a chart, then ``text``."""
    return USER + IMAGE + text + TO_ASSISTANT


def two_turns(text: str, reasoning: str, kind: str) -> str:
    """The same after some reasoning was given and the bare answer is asked for."""
    return one_turn(text) + reasoning + TO_USER + WORDINGS["final"][kind] + TO_ASSISTANT
