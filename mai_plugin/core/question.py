"""A question as the strategies see it, made from the harness's own messages and from nothing else.

The gold answer has no way in: what a question asks for (yes or no, one of some options, a short answer) is told from
its prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mai_plugin.core.prompts import Prompts
from mai_plugin.core.records import Image, Kind, Message
from mai_plugin.core.stems import split_request

# An option on a line of its own: "A. red", "(a) red", "A) red", "A: red".  The text may be an image, thus empty.
_OPTION_LINE = re.compile(r"^[ \t]*\(?([A-Za-z])[.):](?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)
# Options in the running text: "A. red B. blue" or "(A) red (B) blue".
_OPTION_INLINE = re.compile(r"(?:^|\s)\(?([A-Za-z])[.)]\s+(.*?)(?=\s\(?[A-Za-z][.)]\s|\s*$)", re.DOTALL)
# "Is it ...?", but not "Is it red or blue?", "Is it rising/falling?" or "Has the highest value, which one?".
_YES_NO_START = re.compile(
    r"(?:is|are|was|were|does|do|did|has|have|had)\b(?!.*(?:\bor\b(?! not\b)|\w/\w|\b(?:which|what|who|how many)\b))",
    re.IGNORECASE | re.DOTALL,
)
_YES_NO_REQUEST = re.compile(r"\byes\b.{0,6}\bno\b", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """One question of a benchmark.

    Attributes:
        id: names it in logs and records, such as `chartqa/17`.
        messages: the harness's messages, untouched: this is the simple prompt (S).
        stem: the same without the request for a short answer, to which E and R append their wording.
        kind: what an answer looks like.
        options: letter to option text for a choice; empty otherwise.  A text is empty where the option is an image.
        max_new_tokens: the harness's limit on a short answer.
        request: the request for brevity that was taken off; None if there was none.
        known: whether the stem is sure: the table in `prompts.yaml` knows the request, or this is a bare question that
            has none.
    """

    id: str
    messages: tuple[Message, ...]
    stem: tuple[Message, ...]
    kind: Kind
    options: Mapping[str, str] = field(default_factory=dict)
    max_new_tokens: int = 16
    request: str | None = None
    known: bool = True

    @classmethod
    def from_messages(cls, id: str, messages: Sequence[Message], max_new_tokens: int, prompts: Prompts) -> Question:
        """Build a question from a harness's messages.

        Raises:
            ValueError: there is no user turn at the end, or the question has no text.
        """
        if not messages or messages[-1].role != "user":
            raise ValueError(f"question {id}: the last message must be the user's")
        last = messages[-1]
        if not last.text.strip():
            raise ValueError(f"question {id}: empty, it has no text")
        if max_new_tokens < 1:
            raise ValueError(f"question {id}: max_new_tokens is {max_new_tokens}, must be at least 1")
        stem, request, known = _without_request(last, prompts)
        options = find_options(stem.text, request)
        return cls(
            id=id,
            messages=tuple(messages),
            stem=(*messages[:-1], stem),
            kind="choice" if options else _short_or_yes_no(stem.text, request),
            options=options,
            max_new_tokens=max_new_tokens,
            request=request,
            known=known,
        )

    def asking(self, wording: str) -> tuple[Message, ...]:
        """The stem followed by a wording on a new line, in the same user turn."""
        *before, last = self.stem
        if last.content and isinstance(last.content[-1], str):
            content = (*last.content[:-1], f"{last.content[-1]}\n{wording}")
        else:
            content = (*last.content, wording)
        return (*before, replace(last, content=content))


def find_options(text: str, request: str | None = None) -> dict[str, str]:
    """The options that a question lists, letter to text; empty if it lists none.

    Options are on lines of their own, lettered from A without a gap, and the question does not come behind them
    ("A: 5", "B: 6", "What is A + B?").  Within running text they are looked for only where the request asks for a
    letter or an option.
    """
    lines = list(_OPTION_LINE.finditer(text))
    found = _from_a([(line[1], line[2] or "") for line in lines])
    if found and "?" in text[lines[-1].end() :]:
        found = {}
    if not found and request and re.search(r"\b(?:letter|option)\b", request, re.IGNORECASE):
        found = _from_a(_OPTION_INLINE.findall(text))
    return found


def _from_a(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The last run A, B, C ... or a, b, c ... in the pairs, if it has at least two letters."""
    first = "A"
    run: dict[str, str] = {}
    for letter, option in pairs:
        if letter in "Aa":
            first, run = letter, {}
        if letter == chr(ord(first) + len(run)):
            run[letter] = option.strip()
    return run if len(run) > 1 else {}


def _without_request(message: Message, prompts: Prompts) -> tuple[Message, str | None, bool]:
    """Take the request for brevity off the end of a turn's last text part."""
    if isinstance(message.content[-1], Image):
        return message, None, False
    *before, text = message.content
    assert isinstance(text, str)
    stem, request, known = split_request(text, prompts)
    # MMMU with images among the options: the last text part may hold nothing but the request.
    return replace(message, content=(*before, stem) if stem.strip() else tuple(before)), request, known


def _short_or_yes_no(stem: str, request: str | None) -> Kind:
    if request and _YES_NO_REQUEST.search(request):
        return "yes_no"
    sentences = [part for part in re.split(r"(?<=[.?!])\s+|\n", stem.strip()) if part.strip()]
    return "yes_no" if sentences and _YES_NO_START.match(sentences[-1].strip()) else "short"
