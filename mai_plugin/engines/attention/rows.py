"""Attention of single query tokens at chosen layers, without any attention matrix and without the layers above."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

_NAME = "mai_rows"
"""The name under which transformers knows `_attend`."""


class _Stop(Exception):
    """The last wanted layer has been reached: the rest of the model need not run."""


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The decoder layers of a vision-language model's language model.

    Raises:
        ValueError: the model has no such list, or its layers have no `self_attn`.
    """
    language = getattr(getattr(model, "model", model), "language_model", None)
    layers = getattr(language, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not all(hasattr(layer, "self_attn") for layer in layers):
        raise ValueError(f"attention is not supported for {type(model).__name__}: it has no language_model.layers")
    return layers


def attention_rows(
    model: nn.Module, inputs: Mapping[str, torch.Tensor], layers: Sequence[int], query: int = -1
) -> torch.Tensor:
    """Attention weights of one query token, over all tokens of the prompt.

    The model runs as it is loaded (sdpa, flash or eager attention) up to the last of the layers, of which only
    queries and keys are computed.  At each wanted layer one row per head is computed, `heads x tokens` numbers.  Equal
    to the rows of `output_attentions=True` with eager attention.

    Args:
        model: a vision-language model of transformers, such as Qwen3-VL or InternVL.
        inputs: the processor's outputs for one prompt, on the model's device.
        layers: numbers of decoder layers, from 0.
        query: the token that looks; the last one by default.

    Returns:
        Float32 weights of shape `[len(layers), heads, tokens]` on the CPU; each row sums to 1.

    Raises:
        ValueError: the batch is not 1, a layer does not exist, the model's attention cannot be switched or is no plain
            softmax of scores, or a weight is not a number.
    """
    if inputs["input_ids"].shape[0] != 1:
        raise ValueError(f"attention rows are taken one prompt at a time; the batch is {inputs['input_ids'].shape[0]}")
    found = decoder_layers(model)
    for layer in layers:
        if not 0 <= layer < len(found):
            raise ValueError(f"layer {layer} does not exist: the model has {len(found)}, counted from 0")
    rows: dict[int, torch.Tensor] = {}
    wanted = {layer: found[layer].self_attn for layer in sorted(set(layers))}
    with torch.inference_mode(), _capturing(wanted, rows, query), suppress(_Stop):
        model(**inputs, use_cache=False)
    missing = [layer for layer in layers if layer not in rows]
    if missing:
        raise ValueError(f"layer {missing[0]} of {type(model).__name__} does not take its attention from transformers")
    for layer in layers:
        if not rows[layer].isfinite().all():
            raise ValueError(f"attention weights of layer {layer} are not numbers (NaN): choose another dtype")
    return torch.stack([rows[layer] for layer in layers])


@contextmanager
def _capturing(wanted: Mapping[int, nn.Module], rows: dict[int, torch.Tensor], query: int) -> Iterator[None]:
    """Let the attention modules of the wanted layers put their rows into `rows`, and the last one stop the forward.

    For that long each has a configuration of its own, that names `_attend` as its attention function.  transformers
    calls it behind the position embedding of queries and keys, whatever a family does before.
    """
    configs: dict[int, Any] = {layer: module.config for layer, module in wanted.items()}
    last = max(wanted)

    def capture(
        layer: int, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scaling: float, window: int | None
    ) -> None:
        rows[layer] = _row(q, k, mask, scaling, query, window)
        if layer == last:
            raise _Stop

    try:
        for layer, module in wanted.items():
            module.mai_capture = partial(capture, layer)
            module.mai_attention = configs[layer]._attn_implementation
            module.config = copy.copy(configs[layer])
            module.config._attn_implementation = _NAME
        yield
    finally:
        for layer, module in wanted.items():
            module.config = configs[layer]
            del module.mai_capture, module.mai_attention


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> Any:
    """The attention function of a captured layer: keeps its row, then does what the layer would have done."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    for what in ("softcap", "s_aux"):  # capped scores (Gemma 2), attention sinks (gpt-oss)
        if kwargs.get(what) is not None:
            raise ValueError(f"attention is not supported for {type(module).__name__}: its softmax has {what}")
    module.mai_capture(query, key, attention_mask, scaling, kwargs.get("sliding_window"))
    functions = AttentionInterface()
    function = functions[module.mai_attention if module.mai_attention in functions else "sdpa"]  # eager is not in there
    return function(module, query, key, value, attention_mask, scaling=scaling, **kwargs)


AttentionInterface.register(_NAME, _attend)


def _row(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scaling: float, query: int, window: int | None = None
) -> torch.Tensor:
    """Softmax of one query's scores.

    Args:
        q: `[1, heads, tokens, dim]`.
        k: `[1, key-value heads, tokens, dim]`; each serves `heads / key-value heads` heads in a row.
        mask: of shape `[1, 1, tokens, tokens]`, true or 0 where a query may look; `[1, tokens]` for padding; or none.
        window: how many tokens the query may look at, itself included; flash attention has no mask for it.
    """
    tokens = k.shape[2]
    query %= q.shape[2]
    grouped = q[0, :, query].float().view(k.shape[1], -1, q.shape[-1])
    scores = (grouped @ k[0].float().transpose(1, 2) * scaling).view(q.shape[1], tokens)
    if mask is not None:
        allowed = mask[0, :, query, :tokens] if mask.ndim == 4 else mask.bool()
        scores = scores.masked_fill(~allowed, -torch.inf) if allowed.dtype == torch.bool else scores + allowed
    places = torch.arange(tokens, device=scores.device)
    scores = scores.masked_fill((places > query) | (places <= query - (window or tokens)), -torch.inf)
    return scores.softmax(-1).cpu()
