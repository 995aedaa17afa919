"""Sparse reasoning transfer's selection: the reasoning tokens that the large model looks at before it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from mai_plugin.core.records import Message, SelectBy
from mai_plugin.engines.attention.reasoning import find_reasoning, smallest_set
from mai_plugin.engines.attention.rows import attention_rows


@dataclass(frozen=True)
class Selection:
    """What was kept of some reasoning: its text, and how many of how many tokens."""

    text: str
    kept_tokens: int
    full_tokens: int


def select(
    model: Any,
    processor: Any,
    messages: Sequence[Message],
    inputs: Mapping[str, torch.Tensor],
    layer: int,
    keep: float,
    by: SelectBy = "attention",
) -> Selection:
    """The smallest set of reasoning tokens that holds `keep` of the reasoning's attention (paper: sparse RT).

    The attention is that of the prompt's last token, from which the answer is written, at one layer, averaged over
    its heads.  The model runs up to that layer only.

    Args:
        model: the answering model, or its first `layer + 1` layers.
        processor: the model's.
        messages: ending in the reasoning (assistant) and the question after it (user).
        inputs: the processor's outputs for these messages, on the model's device.
        layer: number of the decoder layer, from 0.
        keep: a share, above 0 and at most 1.
        by: `random` or `last` to keep as many other tokens instead, see `Sparse`.

    Raises:
        EngineError: the reasoning's tokens cannot be told.
        ValueError: as `attention_rows`.
    """
    reasoning = find_reasoning(processor, messages, inputs["input_ids"][0].tolist())
    if not reasoning.spans:
        return Selection("", 0, 0)
    row = attention_rows(model, inputs, [layer])[0].mean(0)
    kept = smallest_set(reasoning.weights(row.tolist()), keep)
    tokens = range(len(reasoning.spans))
    if by == "random":
        kept = sorted(Random(reasoning.text).sample(tokens, len(kept)))
    elif by == "last":
        kept = list(tokens[-len(kept) :])
    return Selection(reasoning.part(kept), len(kept), len(reasoning.spans))
