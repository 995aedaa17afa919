"""Whether two answers are the same.

The paper (arXiv 2604.04929) asks for "equal" answers and does not publish a rule: these are ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from mai_plugin.core.records import Kind
from mai_plugin.core.wrapping import clean

Agree = Callable[[str | None, str | None, Kind], bool]
"""Whether two answers to a question of some kind count as equal; None is "no answer"."""


def agree(a: str | None, b: str | None, kind: Kind) -> bool:
    """Whether two answers are equal after `normalise`.  No answer (None, or nothing but signs) agrees with nothing."""
    if a is None or b is None:
        return False
    first = normalise(a, kind)
    return first != "" and first == normalise(b, kind)


def agree_relaxed(a: str | None, b: str | None, kind: Kind) -> bool:
    """Whether two answers are as near as the scorers of ChartQA and InfoVQA let pass; symmetric.

    Numbers within 5 % of the larger one; other short answers with a normalised Levenshtein similarity (ANLS) of at
    least 0.5; choices and yes or no only if they are equal.
    """
    if a is None or b is None:
        return False
    first, second = normalise(a, kind), normalise(b, kind)
    if first == second or kind != "short":
        return first == second != ""
    numbers = _number(first), _number(second)
    if numbers[0] is not None and numbers[1] is not None:
        x, y = map(Decimal, (numbers[0], numbers[1]))
        return abs(x - y) <= Decimal("0.05") * max(abs(x), abs(y))
    if numbers != (None, None):
        return False
    from rapidfuzz.distance import Levenshtein

    return bool(Levenshtein.normalized_similarity(first, second) >= 0.5)


def normalise(answer: str, kind: Kind = "short") -> str:
    """A form in which equal answers are equal strings; for comparison only.

    Case, articles, trailing punctuation, Unicode forms, thousands separators, percent and currency signs go; numbers
    are written one way (`twelve`, `12.0` and `12` are the same).  Empty if the answer has no letter or digit.
    """
    text = "".join(map(_plain_form, clean(answer))).casefold()
    text = re.sub(r"[\u2010-\u2015\u2212]", "-", text)
    text = " ".join(text.split()).lstrip(" ,;:!?").rstrip(" .,;:!?")
    if not re.search(r"\w", text) or kind == "choice":
        return text if re.search(r"\w", text) else ""
    text = re.sub(r"^(?:a|an|the) (?=\S)", "", text)
    bare = re.sub(r"(?<=\d)[ ,](?=\d{3}(?!\d))", "", text)
    bare = re.sub(r"^(-?)\s*[$\u20ac\u00a3\u00a5]\s*", r"\1", bare)
    bare = re.sub(r"\s*(?:%|percent|per cent|[$\u20ac\u00a3\u00a5])$", "", bare)
    number = _number(bare)
    return text if number is None else number


def _plain_form(character: str) -> str:
    """Full-width and other forms of a character made plain; superscripts and fractions are other content."""
    if unicodedata.decomposition(character).startswith(("<super>", "<sub>", "<fraction>")):
        return character
    return unicodedata.normalize("NFKC", character)


_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]  # fmt: skip  # noqa: E501
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {word: value for value, word in enumerate(_UNITS)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}


def _number(text: str) -> str | None:
    """A number in one way of writing; None if the text is no number."""
    words = re.split(r"[ -]", text)
    if text in _WORDS:
        return str(_WORDS[text])
    if len(words) == 2 and words[0] in _TENS and 0 < _WORDS.get(words[1], 0) < 10:
        return str(_WORDS[words[0]] + _WORDS[words[1]])
    if not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)", text):
        return None
    try:
        value = Decimal(text).normalize()
    except InvalidOperation:
        return None
    return "0" if value == 0 else f"{value:f}"


AGREEMENTS: dict[str, Agree] = {"exact": agree, "relaxed": agree_relaxed}
"""The rules by name, as the argument `agreement` names them."""
