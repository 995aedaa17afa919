"""Tiny checkpoints with random weights, for tests of everything but the quality of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import GenerationConfig, InternVLConfig, InternVLForConditionalGeneration

from training.checkpoint import Size, build_config, build_model, train_tokenizer, write_checkpoint

TEXTS = ["user\nassistant\nWhat is the value of the red bar?\nAnswer the question with a single word.\nAnswer: 7"] * 4

INTERNVL_TOKENS = ("<img>", "</img>", "<IMG_CONTEXT>", "<video>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
INTERNVL_TEMPLATE = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string %}{{- message.content }}
{%- else %}
{%- for part in message.content %}
{%- if part.type == 'image' %}{{- '<IMG_CONTEXT>\n' }}
{%- elif part.type == 'text' %}{{- part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""


def noise(seed: int = 0) -> Image.Image:
    """A picture of 128 x 96 random pixels."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (96, 128, 3), dtype=np.uint8))


def random_qwen3_vl(folder: Path, seed: int = 0) -> Path:
    """A Qwen3-VL of about 0.4 M parameters that writes nonsense."""
    tokenizer = train_tokenizer(TEXTS, 400)
    model = build_model(build_config(tokenizer, Size(hidden=64, layers=2, key_value_heads=1)), seed)
    write_checkpoint(folder, _lively(model), tokenizer)
    return folder


def _lively(model: torch.nn.Module) -> Any:
    """Larger weights than a model starts with, so that different prompts get different answers."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    return model


def random_internvl(folder: Path, seed: int = 0) -> Path:
    """An InternVL in its `-HF` format, tiny, that writes nonsense: 64 pixels a tile, 4 image tokens each."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer: Tokenizer = train_tokenizer(TEXTS, 400)
    tokenizer.add_special_tokens(list(INTERNVL_TOKENS))
    ids = {token: tokenizer.token_to_id(token) for token in INTERNVL_TOKENS}
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
            "image_size": [64, 64], "patch_size": [16, 16], "use_mask_token": False,
        },
        text_config={
            "model_type": "qwen3", "vocab_size": tokenizer.get_vocab_size(), "hidden_size": 64, "head_dim": 32,
            "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": 4096, "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"],
            "bos_token_id": None,
        },
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=4,
        downsample_ratio=0.5,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = InternVLForConditionalGeneration(config)
    model.generation_config = GenerationConfig(eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"])
    _lively(model).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = {"height": 64, "width": 64}
    picture = {
        "size": size, "crop_to_patches": True, "min_patches": 1, "max_patches": 4, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "processor_class": "InternVLProcessor",
    }  # fmt: skip
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "unk_token": None, "bos_token": None, "model_max_length": 4096, "chat_template": INTERNVL_TEMPLATE,
            "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>", "extra_special_tokens": {
                "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
                "video_token": "<video>"},
        },
        "preprocessor_config.json": {**picture, "image_processor_type": "GotOcr2ImageProcessorFast"},
        "video_preprocessor_config.json": {**picture, "video_processor_type": "InternVLVideoProcessor"},
        "processor_config.json": {"image_seq_length": 4, "processor_class": "InternVLProcessor"},
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    (folder / "chat_template.jinja").write_text(INTERNVL_TEMPLATE)
    return folder
