"""Small texts that several parts need: in one line, the last part of a name, a suggestion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches


def one_line(said: object) -> str:
    """A text from outside in one line; an exception without a text by its type's name."""
    return " ".join(str(said).split()) or type(said).__name__


def first_line(error: Exception) -> str:
    """An exception's type and the first line of its text: libraries explain themselves in many."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {reason}"


def last_part(name: str) -> str:
    """`Qwen3-VL-8B-Instruct` of `Qwen/Qwen3-VL-8B-Instruct`, or the last folder of a path."""
    return name.rstrip("/").rpartition("/")[2]


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The known word that comes closest, as a question, whatever its case; nothing if none is close."""
    by_folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), by_folded, 1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items (characters, tokens) two sequences begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
