"""An answer as an OpenAI-compatible server streams it, put together event by event."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from mai_plugin.core import text


class Broken(Exception):
    """An answer that did not arrive whole: worth another try."""


@dataclass
class Reply:
    """What the events of a stream add up to."""

    text: str = ""
    finish_reason: str | None = None
    model: str | None = None
    logprob: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoned: bool = False
    first_token: float | None = None
    events: int = 0
    choices: int = 0

    @property
    def counted(self) -> bool:
        """Whether the server has counted the tokens; some send zeros instead."""
        return self.prompt_tokens > 0 and (self.output_tokens > 0 or not self.text)

    def take(self, event: Any) -> None:
        """Add an event.  The client checks no types, so that anything may be anything here."""
        self.events += 1
        try:
            self.model = getattr(event, "model", None) or self.model
            for choice in event.choices or ():
                self._take_choice(choice)
            if getattr(event, "usage", None) is not None:
                self._take_usage(event.usage)
        except (AttributeError, TypeError) as error:
            raise Broken(f"an event of another shape ({one_line(error)})") from None

    def _take_choice(self, choice: Any) -> None:
        self.choices += 1
        delta = choice.delta
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        self.reasoned = self.reasoned or bool(reasoning)
        self.text += delta.content or ""
        self.finish_reason = choice.finish_reason or self.finish_reason
        if self.first_token is None and (delta.content or reasoning or choice.finish_reason):
            self.first_token = time.perf_counter()
        scores = getattr(choice, "logprobs", None)
        for token in (scores.content or ()) if scores else ():
            self.logprob = (self.logprob or 0.0) + token.logprob

    def _take_usage(self, usage: Any) -> None:
        self.prompt_tokens, self.output_tokens = int(usage.prompt_tokens), int(usage.completion_tokens)
        details = getattr(usage, "prompt_tokens_details", None)
        self.cached_tokens = int(getattr(details, "cached_tokens", None) or 0)

    def what_is_missing(self, content_type: str) -> str:
        """Why there is no finish reason."""
        if not self.events:
            return f"no events ({content_type})"
        return "it broke off" if self.choices else "no choices"


def one_line(said: object) -> str:
    """As `core.text.one_line`, not too long, and without the key should a server repeat it."""
    line = text.one_line(said)
    if os.environ.get("OPENAI_API_KEY", "").strip():
        line = line.replace(os.environ["OPENAI_API_KEY"].strip(), "***")
    return line if len(line) <= 400 else f"{line[:400]} ..."
