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
from itertools import islice

from mai_plugin.core.records import Kind

MAX_BARE_WORDS = 15
"""One line of at most so many words may be an answer by itself; anything longer must state its answer."""
MAX_CHARACTERS = 20_000
"""Only the end of a longer text is looked at: that is where an answer stands."""

# "Answer: X", "**Final answer:** X"; quantifiers are bounded, since degenerate texts repeat one character for ever.
_ANSWER_LINE = re.compile(
    r"(?<![\"'])\banswer\b[ \t*_]{0,4}(?:is)?[ \t*_]{0,4}[:=\uff1a][ \t*_]{0,4}(.*)", re.IGNORECASE
)
# A line that announces the answer, which then stands on the next: "### Answer", "**Final Answer**", "Answer".
_ANSWER_HEADING = re.compile(r"[#*_> \t]{0,8}(?:the )?(?:final |correct )?answer[*_: \t\uff1a]{0,8}", re.IGNORECASE)
_ANSWER_JSON = re.compile(r"[\"']answer[\"']\s{0,4}:\s{0,4}[\"']?([^\"'\n}]+)", re.IGNORECASE)
# "The answer is X.", "the correct option would be X"; not "the answer is based on ...".
_ANSWER_IS = re.compile(
    r"\b(?:answer|(?:correct|right|best|final) (?:option|choice))[*_]{0,3}\s{1,4}(?:is|would be|should be|must be)\b"
    r"(?!\s{0,4}(?:[:=\uff1a]|(?:not|based|derived|obtained|calculated|computed|found|determined|given|supported|clear"
    r"|correct|incorrect|right|wrong|because|that|therefore|shown|visible)\b))\s{0,4}(.+)",
    re.IGNORECASE,
)
_ANSWER_TAG = re.compile(r"<answer>([^<]{0,500})", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s{0,4}\{")
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_THINK_CLOSE = re.compile(r"</(?:think|thinking|analysis)>", re.IGNORECASE)
_THINK_OPEN = re.compile(r"<(?:think|thinking|analysis)>", re.IGNORECASE)

_PAIRS = (
    ("**", "**"), ("__", "__"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"), ("```", "```"),
    ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("$", "$"),
    ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"), ("(", ")"), ("[", "]"), ("{", "}"),
)  # fmt: skip
_MACRO = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|mathrm|mathbf|mathsf|operatorname)\s{0,4}\{")
_MAX_WRAPPINGS = 8
# A dot behind these belongs to them: it neither ends a sentence nor is it taken off an answer.
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]\.)+[A-Za-z]|\b(?:St|Dr|Mr|Mrs|Ms|Prof|Mt|Ft|Jr|Sr|Inc|Ltd|Co|Corp|Bros|No|vs|etc|approx|est|avg|min|max|Dem|Rep"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Fig|Vol|Ave|Blvd|Univ|Dept))\.$"
)


def extract(text: str, kind: Kind, options: Mapping[str, str] | None = None, *, cut: bool = False) -> str | None:
    """The answer that a model's text states, bare, as scorers want it; None if it states none.

    Of several stated answers the last one counts.  Thinking in tags is not looked at, and thinking that was cut
    states no answer.

    Args:
        text: what the model wrote.
        kind: what the question asks for.  A choice returns a letter; yes or no returns that word as it was written.
        options: letter to text, to find an option that is named by its text.
        cut: the text is reasoning that a token limit cut: only what it states outright counts, nothing that merely
            stands at its end.

    Example:
        >>> extract("7 + 5 = 12.\\nAnswer: **12**", "short")
        '12'
    """
    answer = _extract_once(text, kind, options, cut)
    for _ in range(_MAX_WRAPPINGS):  # "Answer: the answer is 7"
        if answer is None or len(answer.split()) > MAX_BARE_WORDS:
            break
        inner = _extract_once(answer, kind, options, cut=False)
        if inner == answer:
            break
        answer = inner
    return answer


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


def clean(text: str) -> str:
    """Take wrapping off an answer (Markdown, LaTeX, quotes, brackets, a trailing dot), and nothing else."""
    for _ in range(_MAX_WRAPPINGS):
        before, text = text, text.strip()
        for left, right in _PAIRS:
            inner = text[len(left) : -len(right)].strip()
            if text.startswith(left) and text.endswith(right) and inner and not _keeps(inner, left, right):
                text = inner
        macro = _MACRO.match(text)
        if macro and len(_braced(text, macro.end())) == len(text) - macro.end() - 1:
            text = text[macro.end() : -1]
        text = re.sub(r"\\([%$#&])", r"\1", text).replace("{,}", ",").rstrip(" ,;:\u3002")
        if text.endswith(".") and not _ABBREVIATION.search(text):
            text = text.rstrip(".") or text
        if text.count("**") == 1:  # one half of a pair whose other half stood outside
            text = text.removeprefix("**").removesuffix("**")
        if text == before:
            break
    return text


def _extract_once(text: str, kind: Kind, options: Mapping[str, str] | None, cut: bool) -> str | None:
    text = _without_thinking(text[-MAX_CHARACTERS:]).strip()
    stated = [value for _, value in sorted(_stated(text))]
    for value in reversed(stated):
        answer = _read(value, kind, options)
        if answer is not None:
            return answer
    return None if stated or cut else _bare(text, kind, options)


def _without_thinking(text: str) -> str:
    closed = list(_THINK_CLOSE.finditer(text))
    text = text[closed[-1].end() :] if closed else text
    opened = _THINK_OPEN.search(text)
    return text[: opened.start()] if opened else text


def _stated(text: str) -> Iterator[tuple[int, str]]:
    """Every answer that the text states, with the place where it is stated."""
    place = 0
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        for pattern in (_ANSWER_LINE, _ANSWER_JSON, _ANSWER_IS):
            for found in pattern.finditer(line):
                value = found.group(1).strip()
                if pattern is _ANSWER_IS:
                    value = _first_sentence(value)
                elif pattern is _ANSWER_LINE and not re.search(r"\w", value):
                    value = _next_words(lines, number)
                yield place + found.start(1), value
        if _ANSWER_HEADING.fullmatch(line.rstrip()) and (value := _next_words(lines, number)):
            yield place, value
        place += len(line)
    for found in _ANSWER_TAG.finditer(text):
        yield found.start(1), found.group(1)
    for found in islice(_BOXED.finditer(text), 100):
        yield found.start(), _braced(text, found.end())


def _next_words(lines: list[str], number: int) -> str:
    """The next line that holds more than the delimiters of a block (`\\[`, `$$`, three backticks)."""
    following = (line for line in lines[number + 1 : number + 5] if re.search(r"\w", line))
    return next(following, "").strip()


def _first_sentence(text: str) -> str:
    """A text up to its first full stop or exclamation mark that ends a sentence."""
    for end in re.finditer(r"[.!](?=\s+[A-Z*]|\s*$)", text):
        if not _ABBREVIATION.search(text[: end.end()]):
            return text[: end.start()]
    return text


def _read(value: str, kind: Kind, options: Mapping[str, str] | None) -> str | None:
    """Read an answer where one is stated."""
    value = clean(value)
    if kind == "choice":
        return _letter(value, options)
    if kind == "yes_no":
        words = re.findall(r"\b(?:yes|no)\b", value, re.IGNORECASE)
        if len({word.casefold() for word in words}) == 1:
            return str(words[0])
    return value if re.search(r"\w", value) else None


def _bare(text: str, kind: Kind, options: Mapping[str, str] | None) -> str | None:
    """Read a text that may be an answer by itself."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if kind == "yes_no":
        leading = re.match(r"[\s*_\"'(]{0,8}(yes|no)\b(?!\s{0,4}(?:/|or\b|and\b))", text, re.IGNORECASE)
        if leading:
            return leading.group(1)
    bold = _BOLD.findall(lines[-1])
    behind = lines[-1].rpartition("**")[2].split()
    if len(bold) == 1 and len(behind) <= 2:  # the last line ends in bold, but for a unit perhaps
        answer = _read(bold[0], kind, options)
        if answer is not None:
            return answer
    if kind == "choice":
        if len(lines) == 1:
            return _letter(clean(text), options) or _letter_at_end(text, options)
        # Of several lines one that is a letter and no more; "A. red is 3" may be one of a list that weighs them all.
        alone = [letter for line in (lines[-1], lines[0]) if len(letter := clean(line)) == 1]
        return next(filter(None, (_letter(letter, options) for letter in alone)), _letter_at_end(lines[-1], options))
    value = clean(text)
    return value if re.search(r"\w", value) and "\n" not in value and len(value.split()) <= MAX_BARE_WORDS else None


def _letter(value: str, options: Mapping[str, str] | None) -> str | None:
    """The letter of the option that a value names: by its text, or by letter ("B", "(b)", "B. blue", "option B")."""
    texts = {letter: normalise(text) for letter, text in (options or {}).items() if text}
    named_by_text = [letter for letter, text in texts.items() if text == normalise(value)]
    if len(named_by_text) == 1:
        return named_by_text[0]
    letters = _letters(options)
    several = (
        rf"[(\[]?[{letters}][)\]]?\s{{0,3}}(?:,|/|&|\band\b|\bor\b)\s{{0,3}}(?:and |or )?[(\[]?[{letters}](?:\W|$)"
    )
    if re.match(several, value, re.IGNORECASE):
        return None
    named = re.match(
        rf"(?:(?:option|choice|letter)\s{{1,4}})?[*_(\[\"']{{0,4}}([{letters}])(?:[*_)\]\"'.:;,]{{1,4}}(?:\s|$)|$)",
        value,
        re.IGNORECASE,
    )
    if named:
        return _as_listed(named.group(1), options)
    spelled = re.match(rf"([{letters}])[\s\-\u2013(]{{1,4}}(.+)", value)  # "B blue", "B - blue", "B (blue)"
    if spelled and texts.get(spelled.group(1)) == normalise(spelled.group(2).rstrip(")")):
        return spelled.group(1)
    trailing = re.search(rf"[(\[]([{letters}])[)\]]?$", value)  # "blue (B)", of which `clean` may have taken the end
    return _as_listed(trailing.group(1), options) if trailing else None


def _letter_at_end(text: str, options: Mapping[str, str] | None) -> str | None:
    """A capital letter that stands alone at the end of a text, as in "A is too small, so it is B."; not "A or B".

    An option whose text the text ends with comes first: "It is vitamin C" may name an option "vitamin C".
    """
    whole = normalise(text[-500:])
    ends = [letter for letter, option in (options or {}).items() if option and whole.endswith(" " + normalise(option))]
    if len(ends) == 1:
        return ends[0]
    letters = _letters(options).upper()
    found = re.search(rf"(?<!\bor)(?<!\band)(?<![,/&])(?:^|[\s(\[*]){{1,3}}([{letters}])[)\]*.]{{0,4}}$", text)
    return _as_listed(found.group(1), options) if found else None


def _letters(options: Mapping[str, str] | None) -> str:
    return "".join(options) if options else "A-Z"


def _as_listed(letter: str, options: Mapping[str, str] | None) -> str:
    """A letter in the case in which the question lists it."""
    return next((listed for listed in options or {} if listed.upper() == letter.upper()), letter.upper())


def _keeps(inner: str, left: str, right: str) -> bool:
    """Whether a pair belongs to the content: it closes before the end ("(a) and (b)"), or holds a tuple ("(3, 4)")."""
    if left == right:
        return left in inner
    if left in "([" and "," in inner and not re.fullmatch(r"[\d,.]+", inner):
        return True
    depth = 0
    for token in re.findall(f"{re.escape(left)}|{re.escape(right)}", inner):
        depth += 1 if token == left else -1
        if depth < 0:
            return True
    return depth != 0


def _braced(text: str, start: int) -> str:
    """The text from `start` to the brace that closes it (to the end, where it was cut); 500 characters at most."""
    depth = 1
    for place in range(start, min(len(text), start + 500)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start : start + 500]


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
