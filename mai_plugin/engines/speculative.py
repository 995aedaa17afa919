"""Speculative decoding with transformers: a small assistant drafts, the large model verifies (paper: table 12)."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from mai_plugin.core.text import common_length
from mai_plugin.engines.checkpoint import load_model

_LOADING = ("device", "dtype", "attn_implementation", "revision", "trust_remote_code")
_OF_THE_ENGINE = ("batch_size", "num_threads", "min_pixels", "max_pixels")  # given for both, and not the assistant's


@dataclass(frozen=True)
class Written:
    """What assisted generation came to.

    Attributes:
        tokens: the output tokens, the same as without an assistant.
        first_token_s: when the first ones were there, as `time.perf_counter` tells it.
        drafted_tokens: tokens that the assistant wrote.
        accepted_tokens: those of them that are output tokens.
    """

    tokens: list[int]
    first_token_s: float
    drafted_tokens: int
    accepted_tokens: int


class Assistant:
    """A small model that drafts for a large one of the same family: it reads the same token ids and pixels.

    Args:
        model: a checkpoint folder or a name on the Hub.
        args: of `load_model`, those of the engine that are none of it left out.
        large: the model to assist.
        device: where the large model is, the default for the assistant.

    Raises:
        ValueError: it cannot be loaded, is of another family, or there is an argument that no engine takes.
    """

    def __init__(self, model: str, args: Mapping[str, Any], large: Any, device: str) -> None:
        for key in args:
            if key not in (*_LOADING, *_OF_THE_ENGINE):
                raise ValueError(f"an assistant model takes no argument {key!r}; it takes: {', '.join(_LOADING)}")
        given = {key: args[key] for key in _LOADING if key in args}
        self.model = load_model(model, **{"device": device, **given})
        for what, value in (("model_type", "family"), ("vocab_size", "vocabulary")):
            small_has, large_has = (_text_or_own(config, what) for config in (self.model.config, large.config))
            if small_has != large_has:
                raise ValueError(
                    f"assistant model {model!r} is of another {value} than {large.name_or_path!r}: "
                    f"{what} {small_has} against {large_has}"
                )
        self.large = large
        self._drafts = _Drafts(self.model)

    def write(self, inputs: Mapping[str, torch.Tensor], max_tokens: int, closed: threading.Event) -> Written:
        """Generate greedily for one prompt.

        Args:
            inputs: the processor's outputs for one prompt, on the large model's device.
            max_tokens: limit on the output tokens.
            closed: when it is set, generation stops at the next token.
        """
        self._drafts.begin(inputs)
        prompt, clock = inputs["input_ids"].shape[1], _Clock()
        output = self.large.generate(
            **inputs,
            max_new_tokens=max_tokens,
            stopping_criteria=StoppingCriteriaList([_Closing(closed)]),
            assistant_model=self.model,
            streamer=clock,
        )
        tokens = output[0, prompt:].tolist()
        drafts = self._drafts.made
        return Written(
            tokens,
            clock.first_token_s,
            sum(len(draft) for _, draft in drafts),
            sum(common_length(draft, tokens[start - prompt :]) for start, draft in drafts),
        )


class _Drafts:
    """Stands in for the assistant's `generate`: shows it the images first, and keeps what it writes.

    Left alone, transformers (5.19) skips the images when it has an assistant read the prompt, or hands it image
    features of the large model: then hardly a draft is right.

    Attributes:
        made: each draft, and the place in the sequence where it begins.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.made: list[tuple[int, list[int]]] = []
        self._generate = model.generate
        self._prompt: Mapping[str, torch.Tensor] = {}
        model.generate = self

    def begin(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """A new prompt."""
        self._prompt = inputs
        self.made.clear()

    def _read_prompt(self) -> Any:
        """The cache of the prompt, images seen, but for its last token, which a draft begins with."""
        shape, device = self._prompt["input_ids"].shape, self.model.device
        inputs = {
            key: (value[:, :-1] if value.shape[:2] == shape else value).to(
                device, dtype=self.model.dtype if value.is_floating_point() else None
            )
            for key, value in self._prompt.items()
        }
        return self.model(**inputs, use_cache=True).past_key_values

    def __call__(self, **given: Any) -> Any:
        given.pop("mm_encoder_outputs", None)  # the large model's
        if given.get("past_key_values") is None:
            given["past_key_values"] = self._read_prompt()
            if getattr(given["generation_config"], "cache_implementation", None):  # 4.57 names the kind it would make
                given["generation_config"] = copy.copy(given["generation_config"])
                given["generation_config"].cache_implementation = None
        output = self._generate(**given)
        start = given["input_ids"].shape[1]
        self.made.append((start, output.sequences[0, start:].tolist()))
        return output


class _Closing(StoppingCriteria):  # type: ignore[misc]
    """Stops at the next token once the engine is closed.

    Of drafts this may be asked before they are verified, so it must not look at the tokens.
    """

    def __init__(self, closed: threading.Event) -> None:
        self.closed = closed

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self.closed.is_set(), device=input_ids.device)


@dataclass
class _Clock(BaseStreamer):  # type: ignore[misc]
    """Notes when the first output tokens come; the prompt is put first."""

    puts: int = 0
    first_token_s: float = field(default=0.0)

    def put(self, value: Any) -> None:
        self.puts += 1
        if self.puts == 2:
            self.first_token_s = time.perf_counter()

    def end(self) -> None:
        pass


def _text_or_own(config: Any, key: str) -> Any:
    return getattr(config.get_text_config() if key == "vocab_size" else config, key, None)
