"""Builds a tiny Qwen3-VL from nothing: tokenizer, configuration, weights, and the folder that others load.

Nothing is fetched.  The tokenizer is a byte-level BPE with Qwen's splitting rule and added tokens, trained on the texts
of the charts.  The folder is an ordinary Hugging Face checkpoint for transformers 4.57 and 5.x and for vLLM.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from mai_plugin.tiny.charts import HEIGHT, WIDTH

CONTEXT_LENGTH = 4096
HEAD_WIDTH = 32
PATCH = 16
ROPE_BASE = 1e6

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PLAIN_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""With ``SPECIAL_TOKENS`` the 26 added tokens of Qwen3's tokenizer, in its order."""

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Renders system, user and assistant turns as the template of Qwen3-VL-Instruct does (without tools).
_CHAT_TEMPLATE = r"""{%- macro render(content) %}
{%- if content is string %}
{{- content }}
{%- else %}
{%- for part in content %}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'video' or 'video' in part %}
{{- '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif 'text' in part %}
{{- part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + render(message.content) + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %}
"""


@dataclass(frozen=True)
class Size:
    """The size of a model.

    Attributes:
        hidden: width of the language model, a multiple of 32; it has one attention head for each 32.
        layers: its layers.
        key_value_heads: its key and value heads.
        vision_hidden: width of the vision tower.
        vision_layers: its layers; the output of the first is also fed to the language model's first layer.
    """

    hidden: int
    layers: int
    key_value_heads: int
    vision_hidden: int = 64
    vision_layers: int = 2


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Trains a byte-level BPE with ``vocabulary`` tokens, the 26 added ones included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS) - len(PLAIN_TOKENS),
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_TOKENS])
    return tokenizer


def _rope() -> dict[str, Any]:
    """Rotary positions: how the half head is shared among time, height and width (24, 20, 20 in the real model)."""
    half = HEAD_WIDTH // 2
    side = half * 5 // 16
    return {"rope_type": "default", "mrope_section": [half - 2 * side, side, side], "mrope_interleaved": True}


def build_config(tokenizer: Tokenizer, size: Size) -> Qwen3VLConfig:
    """The configuration of a model of this size, with the token ids of this tokenizer."""
    token = tokenizer.token_to_id
    text = {
        "vocab_size": -(-tokenizer.get_vocab_size() // 16) * 16,
        "hidden_size": size.hidden,
        "intermediate_size": int(size.hidden * 2.5) // 16 * 16,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.hidden // HEAD_WIDTH,
        "num_key_value_heads": size.key_value_heads,
        "head_dim": HEAD_WIDTH,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": token("<|endoftext|>"),
        "eos_token_id": token("<|im_end|>"),
        "pad_token_id": token("<|endoftext|>"),
        "rope_parameters": {**_rope(), "rope_theta": ROPE_BASE},
    }
    vision = {
        "depth": size.vision_layers,
        "hidden_size": size.vision_hidden,
        "intermediate_size": size.vision_hidden * 2,
        "num_heads": size.vision_hidden // HEAD_WIDTH,
        "patch_size": PATCH,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": size.hidden,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "in_channels": 3,
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def build_model(config: Qwen3VLConfig, seed: int) -> Qwen3VLForConditionalGeneration:
    """A model with random weights.

    In each layer the key map starts equal to the query map of the first head it serves.  Equal contents then attend
    to each other from the start, and the look-up of a bar by its colour forms early instead of, often, never.
    """
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    text = config.text_config
    for layer in model.model.language_model.layers:
        key, query = layer.self_attn.k_proj.weight, layer.self_attn.q_proj.weight
        groups = text.num_key_value_heads
        first = query.detach().view(groups, -1, HEAD_WIDTH, text.hidden_size)[:, 0]
        with torch.no_grad():
            key.copy_(first.reshape(groups * HEAD_WIDTH, text.hidden_size))
    model.generation_config = GenerationConfig(
        eos_token_id=[text.eos_token_id, text.bos_token_id], pad_token_id=text.bos_token_id, do_sample=False
    )
    return model


def write_checkpoint(folder: Path, model: Qwen3VLForConditionalGeneration, tokenizer: Tokenizer) -> None:
    """Writes a checkpoint folder: float32 weights, configuration, tokenizer, chat template and image processor.

    The processor's files are written by hand because building a Qwen3VLProcessor needs torchvision.  The
    configuration names its rotary positions twice: as transformers 5 reads them and as 4.57 does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    config_file = folder / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["text_config"].update({"rope_scaling": _rope(), "rope_theta": ROPE_BASE})
    _write_json(config_file, config)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in SPECIAL_TOKENS,
        }
        for token in SPECIAL_TOKENS + PLAIN_TOKENS
    }
    tokenizer_config = {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "bos_token": None,
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": CONTEXT_LENGTH,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    picture = {
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": HEIGHT * WIDTH, "longest_edge": HEIGHT * WIDTH},
        "processor_class": "Qwen3VLProcessor",
    }
    _write_json(folder / "preprocessor_config.json", picture | {"image_processor_type": "Qwen2VLImageProcessorFast"})
    _write_json(folder / "video_preprocessor_config.json", picture | {"video_processor_type": "Qwen3VLVideoProcessor"})
    _write_json(folder / "chat_template.json", {"chat_template": _CHAT_TEMPLATE})
    (folder / "chat_template.jinja").write_text(_CHAT_TEMPLATE, encoding="utf-8")


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
