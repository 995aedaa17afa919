"""A prompt's stem: the question without the harness's request for a short answer."""

from __future__ import annotations

import re

from mai_plugin.core.prompts import Prompts

# The general rule for a prompt whose request is not in the table: a last sentence that asks for a short form of answer.
_REQUEST = re.compile(
    r"(?:\n+|(?<=[.?!])[ \t]+)"
    r"([^\n.?!]*\b(?:answer|respond|reply|give|select|choose|provide|output|write|return)\b[^\n.?!]*"
    r"\b(?:single|short|brief|briefly|concise|directly|only|letter|one word|yes or no|phrase)\b[^\n.?!]*[.!]?)$",
    re.IGNORECASE,
)

_LONGEST_REQUEST = 300


def split_request(text: str, prompts: Prompts) -> tuple[str, str | None, bool]:
    """Split a prompt's text into its stem and the request for a short answer at its end.

    Wordings of E and R at the end of a prompt count as requests too.

    Returns:
        The stem, the request (None if there is none), and whether this is known to be right: False means that the
        general rule found the request, or that the prompt has none but is no bare question either.
    """
    end = text.rstrip()
    known = (*prompts.brevity, *prompts.explain.values(), *prompts.reason.values())
    for request in sorted(known, key=len, reverse=True):
        if end.endswith(request):
            return end[: -len(request)].rstrip("\n"), request, True
    before, tail = end[:-_LONGEST_REQUEST], end[-_LONGEST_REQUEST:]
    found = _REQUEST.search(tail)
    if found and (before + tail[: found.start()]).strip():
        return (before + tail[: found.start()]).rstrip("\n"), found.group(1).strip(), False
    return text, None, end.endswith("?")
