"""Find the answer that a text states.

`extract` takes wrapping off (Markdown, LaTeX, quotes, a trailing dot) and never changes content: rewriting `2,000` or
`5%` would give points that a baseline does not get.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from mai_plugin.core.agreement import normalise
from mai_plugin.core.records import Kind
from mai_plugin.core.wrapping import ABBREVIATION, MAX_WRAPPINGS, braced, clean

MAX_BARE_WORDS = 15
"""One line of at most so many words may be an answer by itself; anything longer must state its answer."""
MAX_CHARACTERS = 20_000
"""Only the end of a longer text is looked at: that is where an answer stands."""

# "Answer: X", "**Final answer:** X"; quantifiers are bounded, since degenerate texts repeat one character for ever.
_ANSWER_LINE = re.compile(
    r"(?<![\"'])\banswer\b[ \t*_]{0,4}(?:is)?[ \t*_]{0,4}[:=\uff1a][ \t*_]{0,4}(.*)", re.IGNORECASE
)
# A line that announces the answer, which is then on the next: "### Answer", "**Final Answer**", "Answer".
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


def extract(text: str, kind: Kind, options: Mapping[str, str] | None = None, *, cut: bool = False) -> str | None:
    """The answer that a model's text states, bare, as scorers want it; None if it states none.

    Of several stated answers the last one counts.  Thinking in tags is not looked at, and thinking that was cut
    states no answer.

    Args:
        text: what the model wrote.
        kind: what the question asks for.  A choice returns a letter; yes or no returns that word as it was written.
        options: letter to text, to find an option that is named by its text.
        cut: the text is reasoning that a token limit cut: only what it states outright counts, nothing that merely
            is at its end.

    Example:
        >>> extract("7 + 5 = 12.\\nAnswer: **12**", "short")
        '12'
    """
    answer = _extract_once(text, kind, options, cut)
    for _ in range(MAX_WRAPPINGS):  # "Answer: the answer is 7"
        if answer is None or len(answer.split()) > MAX_BARE_WORDS:
            break
        inner = _extract_once(answer, kind, options, cut=False)
        if inner == answer:
            break
        answer = inner
    return answer


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
        yield found.start(), braced(text, found.end())


def _next_words(lines: list[str], number: int) -> str:
    """The next line that holds more than the delimiters of a block (`\\[`, `$$`, three backticks)."""
    following = (line for line in lines[number + 1 : number + 5] if re.search(r"\w", line))
    return next(following, "").strip()


def _first_sentence(text: str) -> str:
    """A text up to its first full stop or exclamation mark that ends a sentence."""
    for end in re.finditer(r"[.!](?=\s+[A-Z*]|\s*$)", text):
        if not ABBREVIATION.search(text[: end.end()]):
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
    """A capital letter alone at the end of a text, as in "A is too small, so it is B."; not "A or B".

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
