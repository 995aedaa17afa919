"""Find the answer that a text states, and tell whether two answers are the same.

`extract` takes wrapping off (Markdown, LaTeX, quotes, a trailing dot) and never changes content: rewriting `2,000` or
`5%` would give points that a baseline does not get.  `normalise` does rewrite, but only to compare.  The paper
(arXiv 2604.04929) asks for "equal" answers and does not publish a rule: both are ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation

from mai_plugin.core.records import Kind

MAX_BARE_WORDS = 15
"""One line of at most so many words may be an answer by itself; anything longer must state its answer."""

# "Answer: X", "**Final answer:** X", "### Answer" with X on the next line.
_ANSWER_LINE = re.compile(r"\banswer\b[ \t*_\"]*(?:is)?[ \t*_]*[:=][ \t*_]*(?:\n\s*)?([^\n]+)", re.IGNORECASE)
_ANSWER_HEADING = re.compile(r"^#+[ \t]*(?:final[ \t]+)?answer[ \t]*\n+([^\n]+)", re.IGNORECASE | re.MULTILINE)
# "The answer is X.", "the correct option would be X"; X ends with its sentence.
_ANSWER_IS = re.compile(
    r"\b(?:answer|(?:correct|right|best|final) (?:option|choice))[*_]*\s+(?:is|would be|should be|must be)\b"
    r"(?!\s*[:=])\s*(.+?)(?=[.!](?:\s+(?-i:[A-Z*])|\s*$)|\n|$)",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.IGNORECASE | re.DOTALL)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_THINK_CLOSE = re.compile(r".*</(?:think|thinking|analysis)>", re.IGNORECASE | re.DOTALL)
_THINK_OPEN = re.compile(r"<(?:think|thinking|analysis)>.*", re.IGNORECASE | re.DOTALL)

_PAIRS = (
    ("**", "**"), ("__", "__"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"),
    ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("$", "$"),
    ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"), ("(", ")"), ("[", "]"), ("{", "}"),
)  # fmt: skip
_MACRO = re.compile(r"^\\(?:boxed|fbox|text|textbf|textit|mathrm|mathbf|mathsf|operatorname)\s*\{(.*)\}$", re.DOTALL)
_ABBREVIATION = re.compile(r"(?:\b[A-Za-z]\.){2,}$")


def extract(text: str, kind: Kind, options: Mapping[str, str] | None = None) -> str | None:
    """The answer that a model's text states, bare, as scorers want it; None if it states none.

    Of several stated answers the last one counts.  Thinking in tags is not looked at, and thinking that was cut
    states no answer.

    Args:
        text: what the model wrote.
        kind: what the question asks for.  A choice returns a letter; yes or no returns that word as it was written.
        options: letter to text, to find an option that is named by its text.

    Example:
        >>> extract("7 + 5 = 12.\\nAnswer: **12**", "short")
        '12'
    """
    text = _THINK_OPEN.sub("", _THINK_CLOSE.sub("", text)).strip()
    stated = [value for _, value in sorted(_stated(text))]
    for value in reversed(stated or _BOLD.findall(text)):
        answer = _read(value, kind, options)
        if answer is not None:
            return answer
    return None if stated else _bare(text, kind, options)


def agree(a: str | None, b: str | None, kind: Kind) -> bool:
    """Whether two answers are equal after `normalise`.  "No answer" (None) agrees with nothing."""
    return a is not None and b is not None and normalise(a, kind) == normalise(b, kind)


def agree_relaxed(a: str | None, b: str | None, kind: Kind) -> bool:
    """Whether two answers are as near as the scorers of ChartQA and InfoVQA let pass; symmetric.

    Numbers within 5 % of the larger one; other short answers with a normalised Levenshtein similarity (ANLS) of at
    least 0.5; choices and yes or no only if they are equal.
    """
    if a is None or b is None:
        return False
    first, second = normalise(a, kind), normalise(b, kind)
    if first == second or kind != "short":
        return first == second
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
    are written one way (`twelve`, `12.0` and `12` are the same).
    """
    text = unicodedata.normalize("NFKC", clean(answer)).casefold()
    text = re.sub(r"[\u2010-\u2015\u2212]", "-", text)
    text = re.sub(r"\s+", " ", text).lstrip(" ,;:!?\"'").rstrip(" .,;:!?\"'")
    if kind == "choice":
        return text
    text = re.sub(r"^(?:a|an|the) (?=\S)", "", text)
    bare = re.sub(r"(?<=\d)[ ,](?=\d{3}(?!\d))", "", text)
    bare = re.sub(r"^(-?)\s*[$\u20ac\u00a3\u00a5]\s*", r"\1", bare)
    bare = re.sub(r"\s*(?:%|percent|per cent|[$\u20ac\u00a3\u00a5])$", "", bare)
    number = _number(bare)
    return text if number is None else number


def clean(text: str) -> str:
    """Take wrapping off an answer (Markdown, LaTeX, quotes, brackets, trailing dots), and nothing else."""
    before = None
    while text != before:
        before = text
        text = text.strip()
        for left, right in _PAIRS:
            inner = text[len(left) : -len(right)]
            if text.startswith(left) and text.endswith(right) and inner.strip() and not _reopens(inner, left, right):
                text = inner.strip()
        text = _MACRO.sub(r"\1", text) if _balanced_macro(text) else text
        text = re.sub(r"\\([%$#&])", r"\1", text).replace("{,}", ",")
        text = re.sub(r"^[#>]+\s+", "", text)
        if not _ABBREVIATION.search(text):
            text = re.sub(r"(?<=[^\s.])[.\u3002;,!:]+$", "", text)
        if text.count("**") == 1:  # one half of a pair whose other half stood outside
            text = text.removeprefix("**").removesuffix("**")
    return text


def _stated(text: str) -> Iterator[tuple[int, str]]:
    """Every answer that the text states, with the place where it is stated."""
    for pattern in (_ANSWER_LINE, _ANSWER_HEADING, _ANSWER_IS, _ANSWER_TAG):
        for found in pattern.finditer(text):
            if clean(found.group(1)):
                yield found.start(1), found.group(1)
    for found in re.finditer(r"\\boxed\s*\{", text):
        yield found.start(), _braced(text, found.end())


def _read(value: str, kind: Kind, options: Mapping[str, str] | None) -> str | None:
    """Read an answer where one is stated."""
    value = clean(value)
    if kind == "choice":
        return _letter(value, options)
    if kind == "yes_no":
        words = re.findall(r"\b(?:yes|no)\b", value, re.IGNORECASE)
        if len({word.casefold() for word in words}) == 1:
            return str(words[0])
    return value or None


def _bare(text: str, kind: Kind, options: Mapping[str, str] | None) -> str | None:
    """Read a text that may be an answer by itself."""
    if kind == "yes_no":
        leading = re.match(r"[\s*_\"'(]*(yes|no)\b", text, re.IGNORECASE)
        if leading:
            return leading.group(1)
    if kind == "choice":
        lines = [line for line in text.splitlines() if line.strip()] or [""]
        if len(lines) == 1:
            return _letter(clean(text), options) or _letter_at_end(text, options)
        # Of several lines one that is a letter and no more; "A. red is 3" may be one of a list that weighs them all.
        alone = [letter for line in (lines[-1], lines[0]) if len(letter := clean(line)) == 1]
        return next(filter(None, (_letter(letter, options) for letter in alone)), _letter_at_end(lines[-1], options))
    value = clean(text)
    return value if value and "\n" not in value and len(value.split()) <= MAX_BARE_WORDS else None


def _letter(value: str, options: Mapping[str, str] | None) -> str | None:
    """The letter of the option that a value names by letter ("B", "(b)", "B. blue", "option B") or by its text."""
    letters = _letters(options)
    named = re.match(
        rf"(?:(?:option|choice|letter)\s+)?[*_(\[\"']*([{letters}])(?:[*_)\]\"'.:,]+(?:\s|$)|$)", value, re.IGNORECASE
    )
    if named:
        return _as_listed(named.group(1), options)
    same = [letter for letter, text in (options or {}).items() if text and normalise(text) == normalise(value)]
    if len(same) == 1:
        return same[0]
    trailing = re.search(rf"[(\[]([{letters}])[)\]]?$", value)  # "blue (B)", of which `clean` may have taken the end
    return _as_listed(trailing.group(1), options) if trailing else None


def _letter_at_end(text: str, options: Mapping[str, str] | None) -> str | None:
    """A capital letter that stands alone at the end of a text, as in "A is too small, so it is B."; not "A or B"."""
    found = re.search(rf"(?<!\bor)(?<!\band)(?:^|[\s(\[*]){{1,3}}([{_letters(options).upper()}])[)\]*.]*$", text)
    return _as_listed(found.group(1), options) if found else None


def _letters(options: Mapping[str, str] | None) -> str:
    return "".join(options) if options else "A-Z"


def _as_listed(letter: str, options: Mapping[str, str] | None) -> str:
    """A letter in the case in which the question lists it."""
    return next((listed for listed in options or {} if listed.upper() == letter.upper()), letter.upper())


def _reopens(inner: str, left: str, right: str) -> bool:
    """Whether a pair that encloses a text closes before its end, as the brackets of "(a) and (b)" do."""
    if left == right:
        return left in inner
    depth = 0
    for token in re.findall(f"{re.escape(left)}|{re.escape(right)}", inner):
        depth += 1 if token == left else -1
        if depth < 0:
            return True
    return depth != 0


def _balanced_macro(text: str) -> bool:
    found = re.match(r"^\\[a-z]+\s*\{", text)
    return found is not None and len(_braced(text, found.end())) == len(text) - found.end() - 1


def _braced(text: str, start: int) -> str:
    """The text from `start` to the brace that closes it (to the end, where it was cut)."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


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
