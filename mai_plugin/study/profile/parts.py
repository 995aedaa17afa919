"""The parts of a vision-language model on simulated data: what each one is, and what it costs in work and memory.

1. Preprocessing: the image processor on a random RGB image, to tensors.  Work of the CPU, on any device (table 1 of
   arXiv 2604.04929).
2. Vision encoder: `get_image_features` on tensors that are on the device (table 2).
3. Time to first token (TTFT): vision encoder, prefill of image tokens and query, and the choice of the first output
   token, inputs on the device, preprocessing left out (table 3).
4. Decoding: a whole generation of n tokens, its vision encoder and prefill included (table 4, where 8 tokens take as
   long as the TTFT and seven steps).  Greedy, and no token ends it.  One generation of the largest n gives all smaller
   ones: the moment at which its nth token is chosen is marked, on a GPU as an event in the stream, which makes nothing
   wait.

TTFT and decoding go through transformers' `generate`, so they hold its overhead, as a user of it has it.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from mai_plugin.study.profile.clock import Clock


@dataclass(frozen=True)
class Pixels:
    """An image as the vision encoder takes it.

    Attributes:
        tensors: arguments of `get_image_features`, on the CPU.
        image_tokens: tokens that it becomes in the prompt.
        patches: patches that the encoder sees.
        window: patches that attend to each other.
    """

    tensors: dict[str, torch.Tensor]
    image_tokens: int
    patches: int
    window: int


class Parts:
    """A model's parts, to be run one by one.

    Args:
        model: from `AutoModelForImageTextToText`.
        image_processor: its image processor.
        seed: of images and query tokens.

    Raises:
        ValueError: the model counts its image tokens in a way that is not known here.
    """

    def __init__(self, model: Any, image_processor: Any, seed: int = 0) -> None:
        self.model = model
        self.image_processor = image_processor
        self.seed = seed
        self.device = model.device
        self.context = int(model.config.get_text_config().max_position_embeddings)
        # generate() takes what it is not given from here: greedy, and no end of turn.
        model.generation_config = GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)
        vision = [weight.numel() for name, weight in model.named_parameters() if "visual" in name or "vision" in name]
        layers = [weight.numel() for name, weight in model.named_parameters() if "language_model.layers" in name]
        self._vision_weights, self._layer_weights = sum(vision), sum(layers)
        self._element = next(model.parameters()).element_size()

    def image(self, side: int) -> Image.Image:
        """A square of random colours."""
        return Image.frombytes("RGB", (side, side), random.Random(self.seed).randbytes(3 * side * side))

    def preprocess(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """Run the image processor."""
        return dict(self.image_processor(images=image, return_tensors="pt"))

    def pixels(self, processed: dict[str, torch.Tensor]) -> Pixels:
        """Count the tokens of a processed image, by its own grid or tiles."""
        values = processed["pixel_values"]
        config = self.model.config
        if "image_grid_thw" in processed:  # Qwen-VL
            patches = int(processed["image_grid_thw"].prod())
            tokens = patches // int(self.image_processor.merge_size) ** 2
            tensors = {"pixel_values": values, "image_grid_thw": processed["image_grid_thw"]}
            return Pixels(tensors, tokens, patches, patches)
        if hasattr(config, "image_seq_length"):  # InternVL: each tile by itself
            height, width = config.vision_config.patch_size
            tile = (values.shape[-2] // height) * (values.shape[-1] // width)
            tiles = int(values.shape[0])
            return Pixels({"pixel_values": values}, tiles * int(config.image_seq_length), tiles * tile, tile)
        raise ValueError(f"models of type {config.model_type} cannot be profiled: Qwen3-VL's and InternVL's can")

    def on_device(self, pixels: Pixels) -> dict[str, torch.Tensor]:
        """Arguments of `encode_image`."""
        return {key: value.to(self.device) for key, value in pixels.tensors.items()}

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def encode_image(self, tensors: dict[str, torch.Tensor]) -> Any:
        """Run the vision encoder."""
        return self.model.get_image_features(**tensors)

    def prompt(self, pixels: Pixels, query_tokens: int, batch: int = 1) -> dict[str, torch.Tensor]:
        """Inputs of a batch of equal prompts, on the device: image start, image, image end, random query tokens.

        Args:
            pixels: the image.
            query_tokens: number of query tokens.
            batch: number of prompts.

        Returns:
            Arguments of `generate`; `input_ids` of shape `[batch, image tokens + query tokens + 2]`.
        """
        config = self.model.config
        special = {value for key, value in config.to_dict().items() if key.endswith("_token_id")}
        ordinary = [token for token in range(min(2000, config.get_text_config().vocab_size)) if token not in special]
        draw = random.Random(self.seed)
        # InternVL's configuration does not name its marks; an ordinary token costs the same.
        start, end = (getattr(config, f"vision_{mark}_token_id", ordinary[0]) for mark in ("start", "end"))
        ids = [start, *[config.image_token_id] * pixels.image_tokens, end, *draw.choices(ordinary, k=query_tokens)]
        input_ids = torch.tensor([ids] * batch)
        inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        if "mm_token_type_ids" in inspect.signature(self.model.forward).parameters:  # marks the image's tokens
            inputs["mm_token_type_ids"] = (input_ids == config.image_token_id).int()
        inputs |= {key: torch.cat([value] * batch) for key, value in pixels.tensors.items()}
        return {key: value.to(self.device) for key, value in inputs.items()}

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def generate(self, inputs: dict[str, torch.Tensor], lengths: Sequence[int], clock: Clock) -> torch.Tensor:
        """Generate as many tokens as the last of some lengths, and mark each length on the clock.

        Args:
            inputs: from `prompt`.
            lengths: numbers of output tokens, rising.
            clock: is marked when that many tokens are chosen.

        Returns:
            The output tokens, of shape `[batch, lengths[-1]]`.
        """
        prompt_tokens = inputs["input_ids"].shape[1]
        marks = StoppingCriteriaList([_Marks(prompt_tokens, frozenset(lengths), clock)])
        ids = self.model.generate(**inputs, max_new_tokens=lengths[-1], stopping_criteria=marks)
        new: torch.Tensor = ids[:, prompt_tokens:]
        return new

    def vision_work(self, pixels: Pixels) -> float:
        """Floating-point operations of the vision encoder, roughly: to predict one size's time from another's."""
        config = self.model.config.vision_config
        layers = getattr(config, "depth", None) or config.num_hidden_layers
        return float(pixels.patches * (2 * self._vision_weights + 4 * pixels.window * config.hidden_size * layers))

    def prompt_work(self, pixels: Pixels, query_tokens: int, batch: int = 1) -> float:
        """Floating-point operations up to the first token, roughly."""
        text = self.model.config.get_text_config()
        tokens = pixels.image_tokens + query_tokens
        attention = 4 * tokens * text.hidden_size * text.num_hidden_layers
        return float(batch * (self.vision_work(pixels) + tokens * (2 * self._layer_weights + attention)))

    def preprocess_memory(self, side: int) -> float:
        """Bytes that preprocessing needs at most, estimated: some copies of the image in float32."""
        return 6 * 4 * 3 * side**2

    def vision_memory(self, pixels: Pixels) -> float:
        """Bytes of the vision encoder's activations at most, estimated: those of one layer, rotation in float32."""
        config = self.model.config.vision_config
        per_patch = 8 * config.hidden_size + 2 * config.intermediate_size
        return float(pixels.patches * (per_patch * self._element + 16 * config.hidden_size))

    def prompt_memory(self, pixels: Pixels, query_tokens: int, output_tokens: int, batch: int = 1) -> float:
        """Bytes of a generation's activations and KV cache at most, estimated."""
        text = self.model.config.get_text_config()
        tokens = pixels.image_tokens + query_tokens
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        cache = 2 * text.num_hidden_layers * text.num_key_value_heads * head * (tokens + output_tokens)
        layer = tokens * (8 * text.hidden_size + 3 * text.intermediate_size)
        logits = 3 * text.vocab_size
        return float(batch * (self.vision_memory(pixels) + (2 * cache + layer + logits) * self._element))


class _Marks(StoppingCriteria):  # type: ignore[misc]
    """Stops nothing: is called after each token, and marks some numbers of them on a clock."""

    def __init__(self, prompt_tokens: int, lengths: frozenset[int], clock: Clock) -> None:
        self._prompt_tokens = prompt_tokens
        self._lengths = lengths
        self._clock = clock

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if input_ids.shape[1] - self._prompt_tokens in self._lengths:
            self._clock.mark()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
