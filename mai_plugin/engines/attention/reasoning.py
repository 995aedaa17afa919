"""Where reasoning is in a prompt, how much of the attention each of its tokens has, and which are selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from tokenizers.normalizers import NFC

from mai_plugin.core.records import Message
from mai_plugin.core.text import common_length
from mai_plugin.engines.base import EngineError, hf_messages


@dataclass(frozen=True)
class Reasoning:
    """The tokens of a prompt's last assistant turn.

    Attributes:
        text: the turn's text.
        first: position of its first token in the prompt.
        spans: per token, the characters of `text` that it covers, as (start, end).  White space before a token is its
            own; tokens that share a character (an emoji in several tokens) each have it.
    """

    text: str
    first: int
    spans: tuple[tuple[int, int], ...]

    @property
    def tokens(self) -> list[str]:
        """The text of each token."""
        return [self.text[start:end] for start, end in self.spans]

    def weights(self, row: Sequence[float]) -> list[float]:
        """Each token's share of the reasoning's attention, from a row over the whole prompt; they sum to 1."""
        own = [float(weight) for weight in row[self.first : self.first + len(self.spans)]]
        whole = sum(own)
        return [weight / whole for weight in own] if whole else [1 / len(own)] * len(own)

    def part(self, kept: Sequence[int]) -> str:
        """The text of some tokens, in their order; a character that several of them share comes once."""
        text, done = "", 0
        for start, end in (self.spans[index] for index in sorted(kept)):
            text += self.text[max(start, done) : end]
            done = max(done, end)
        return text


def smallest_set(weights: Sequence[float], keep: float) -> list[int]:
    """The fewest tokens that hold at least `keep` of all weight, in their order; of equal ones the earlier.

    Args:
        weights: one per token, not negative.
        keep: a share, above 0 and at most 1; 1 selects all.
    """
    if keep >= 1:  # also those whose weight is too small to count
        return list(range(len(weights)))
    chosen: list[int] = []
    goal, held = keep * sum(weights), 0.0
    for index in sorted(range(len(weights)), key=lambda index: (-weights[index], index)):
        if chosen and held >= goal * (1 - 1e-9):  # a sum in another order is off by its rounding
            break
        chosen.append(index)
        held += weights[index]
    return sorted(chosen)


def find_reasoning(processor: Any, messages: Sequence[Message], prompt_ids: Sequence[int]) -> Reasoning:
    """Find the tokens of the last assistant turn in a prompt.

    Args:
        processor: of the model whose prompt it is, with a fast tokenizer.
        messages: ending in the reasoning (assistant) and the question after it (user).
        prompt_ids: the prompt's tokens, as the processor made them from the messages.

    Raises:
        EngineError: the tokens cannot be told; nothing is guessed.
    """
    *before, reasoning, _ = messages
    tokenizer = processor.tokenizer
    text = _as_read(tokenizer, reasoning.text).strip()
    rendered, opened = (
        _as_read(
            tokenizer, processor.apply_chat_template(hf_messages(turns), tokenize=False, add_generation_prompt=True)
        )
        for turns in (messages, before)
    )
    start = rendered.find(text, common_length(rendered, opened))
    if reasoning.role != "assistant" or start < 0 or not getattr(tokenizer, "is_fast", False):
        raise EngineError(f"cannot find the reasoning in a prompt of {type(processor).__name__}: its chat template")
    end = start + len(text)
    encoded = tokenizer(rendered, return_offsets_mapping=True, add_special_tokens=False)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    # One image token becomes many in the prompt, but behind them both are the same, token by token.
    inside = [index for index, (left, right) in enumerate(offsets) if right > start and left < end]
    if not inside:
        return Reasoning(text, len(prompt_ids), ())
    behind = len(ids) - inside[0]
    if list(prompt_ids[len(prompt_ids) - behind :]) != ids[inside[0] :]:
        raise EngineError(f"cannot find the reasoning's tokens in a prompt of {type(processor).__name__}")
    spans, done = [], start
    for left, right in (offsets[index] for index in inside):
        spans.append((min(max(left, start), done) - start, min(right, end) - start))
        done = max(done, min(right, end))
    return Reasoning(text, len(prompt_ids) - behind, tuple(spans))


def _as_read(tokenizer: Any, text: str) -> str:
    """Text with its characters composed where the tokenizer does that: else its offsets leave out the accents."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return normalize("NFC", text) if isinstance(normalizer, NFC) else text
