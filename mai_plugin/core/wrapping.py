"""Wrapping around an answer: Markdown, LaTeX, quotes, brackets."""

from __future__ import annotations

import re

_PAIRS = (
    ("**", "**"), ("__", "__"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"), ("```", "```"),
    ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("$", "$"),
    ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"), ("(", ")"), ("[", "]"), ("{", "}"),
)  # fmt: skip
_MACRO = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|mathrm|mathbf|mathsf|operatorname)\s{0,4}\{")
MAX_WRAPPINGS = 8
# A dot behind these belongs to them: it neither ends a sentence nor is it taken off an answer.
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]\.)+[A-Za-z]|\b(?:St|Dr|Mr|Mrs|Ms|Prof|Mt|Ft|Jr|Sr|Inc|Ltd|Co|Corp|Bros|No|vs|etc|approx|est|avg|min|max|Dem|Rep"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Fig|Vol|Ave|Blvd|Univ|Dept))\.$"
)


def clean(text: str) -> str:
    """Take wrapping off an answer (Markdown, LaTeX, quotes, brackets, a trailing dot), and nothing else."""
    for _ in range(MAX_WRAPPINGS):
        before, text = text, text.strip()
        for left, right in _PAIRS:
            inner = text[len(left) : -len(right)].strip()
            if text.startswith(left) and text.endswith(right) and inner and not _keeps(inner, left, right):
                text = inner
        macro = _MACRO.match(text)
        if macro and len(braced(text, macro.end())) == len(text) - macro.end() - 1:
            text = text[macro.end() : -1]
        text = re.sub(r"\\([%$#&])", r"\1", text).replace("{,}", ",").rstrip(" ,;:\u3002")
        if text.endswith(".") and not ABBREVIATION.search(text):
            text = text.rstrip(".") or text
        if text.count("**") == 1:  # one half of a pair whose other half stood outside
            text = text.removeprefix("**").removesuffix("**")
        if text == before:
            break
    return text


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


def braced(text: str, start: int) -> str:
    """The text from `start` to the brace that closes it (to the end, where it was cut); 500 characters at most."""
    depth = 1
    for place in range(start, min(len(text), start + 500)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start : start + 500]
