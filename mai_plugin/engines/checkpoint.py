"""Loading a checkpoint with transformers: the whole model, or the first layers of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, GenerationConfig
from transformers.utils import logging

from mai_plugin.core.text import first_line

T = TypeVar("T")


def load_processor(model: str, **source: Any) -> Any:
    """A checkpoint's processor.

    Args:
        model: a checkpoint folder or a name on the Hub.
        **source: `revision` and `trust_remote_code`, as in `from_pretrained`.

    Raises:
        ValueError: it cannot be loaded.
    """
    return _loading(model, lambda path: AutoProcessor.from_pretrained(path, **source))


def load_model(
    model: str,
    *,
    device: str,
    dtype: str = "auto",
    attn_implementation: str | None = None,
    first_layers: Callable[[int], int] | None = None,
    **source: Any,
) -> Any:
    """A checkpoint's model, in evaluation mode.

    Args:
        model: a checkpoint folder or a name on the Hub.
        device: where to, as `torch.device`, or `auto` to spread it over all GPUs.
        dtype: `auto` (the checkpoint's), `float32`, `bfloat16` or `float16`.
        attn_implementation: as in `from_pretrained`.
        first_layers: the model's depth to how many of its decoder layers to load.  Such a model has no language model
            head: it cannot write.
        **source: as in `load_processor`.

    Raises:
        ValueError: it cannot be loaded.
    """
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise ValueError(f"dtype {dtype!r} must be one of auto, float32, bfloat16, float16")
    more = {"dtype": dtype, "attn_implementation": attn_implementation, **source}
    if device != "cpu":
        more["device_map"] = device

    def load(path: str) -> Any:
        if first_layers is None:
            return complete(path, **more)
        config = AutoConfig.from_pretrained(path, **source)
        text = config.get_text_config()
        text.num_hidden_layers = first_layers(depth(config))
        if getattr(text, "layer_types", None):
            text.layer_types = text.layer_types[: text.num_hidden_layers]
        said = logging.get_verbosity()
        logging.set_verbosity_error()  # it would list the layers that are left out
        try:
            return complete(path, config=config, **more).model
        finally:
            logging.set_verbosity(said)

    return _loading(model, load).eval()


def read_depth(model: str, **source: Any) -> int:
    """How many decoder layers a checkpoint's language model has."""
    return depth(_loading(model, lambda path: AutoConfig.from_pretrained(path, **source)))


def depth(config: Any) -> int:
    """How many decoder layers the language model of a configuration has."""
    return int(config.get_text_config().num_hidden_layers)


def decode_greedily(model: Any, tokenizer: Any) -> tuple[set[int], int]:
    """Put aside whatever sampling a checkpoint suggests: generate() takes what it is not given from there.

    Returns:
        The tokens that end a turn, and the token to pad with.

    Raises:
        ValueError: the checkpoint names no end-of-turn token.
    """
    ends = model.generation_config.eos_token_id
    end_tokens = set(ends if isinstance(ends, list) else [ends]) - {None}
    if not end_tokens:
        end_tokens = {tokenizer.eos_token_id} - {None}
    if not end_tokens:
        raise ValueError("the checkpoint names no end-of-turn token (eos_token_id)")
    pad = tokenizer.pad_token_id
    pad_token = int(pad if pad is not None else min(end_tokens))
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=sorted(end_tokens), pad_token_id=pad_token)
    return end_tokens, pad_token


def limit_pixels(processor: Any, min_pixels: int | None, max_pixels: int | None) -> None:
    """Set the limits on the size that a processor scales an image to.

    Raises:
        ValueError: it has no such limits.
    """
    if min_pixels is None and max_pixels is None:
        return
    size = dict(getattr(processor.image_processor, "size", None) or {})
    if not {"shortest_edge", "longest_edge"} <= size.keys():
        raise ValueError("min_pixels and max_pixels do not apply: this model's processor has no limits on pixels")
    limits = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    processor.image_processor.size = {**size, **{key: value for key, value in limits.items() if value is not None}}


def default_device() -> str:
    """The GPU of this rank (`LOCAL_RANK`) if there is one, else the CPU."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"


def complete(path: str, **given: Any) -> Any:
    """A model all of whose weights were in the checkpoint: transformers makes up those that are not.

    Raises:
        ValueError: some were not.
    """
    model, info = AutoModelForImageTextToText.from_pretrained(path, output_loading_info=True, **given)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"the checkpoint lacks {len(missing)} weights, such as {missing[0]}")
    return model


def _loading(model: str, load: Callable[[str], T]) -> T:
    path = Path(model).expanduser()
    is_path = model.startswith((".", "/", "~")) or path.exists() or model.count("/") > 1
    if is_path and not path.is_dir():
        raise ValueError(f"model {model!r}: no such folder; give a checkpoint folder or a name on the Hub")
    try:
        return load(str(path) if is_path else model)
    except Exception as error:
        # A damaged file, a missing device or a foreign model makes the libraries raise whatever they like.
        advice = "" if is_path else "; without access to the Hub, give a checkpoint folder"
        raise ValueError(
            f"model {model!r} could not be loaded with transformers: {first_line(error)}{advice}"
        ) from error
