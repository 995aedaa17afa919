"""Attention rows against eager attention, on both families."""

from __future__ import annotations

import pytest
import torch
from helpers.checkpoints import noise, random_internvl, random_qwen3_vl
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForImageTextToText, AutoProcessor, Gemma3Config, PaliGemmaConfig

from mai_plugin.core.records import Image, Message
from mai_plugin.engines.attention import rows as rows_module
from mai_plugin.engines.attention.rows import attention_rows
from mai_plugin.engines.base import hf_messages


@pytest.fixture(scope="module", params=[random_qwen3_vl, random_internvl], ids=["qwen3-vl", "internvl"])
def checkpoint(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("model"))


def load(path, attention, dtype=torch.float32):
    return AutoModelForImageTextToText.from_pretrained(path, dtype=dtype, attn_implementation=attention).eval()


def prompt(path, text="What is it?", padding=0):
    processor = AutoProcessor.from_pretrained(path)
    inputs = processor.apply_chat_template(
        hf_messages([Message("user", (Image(noise()), text))]),
        add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
    )  # fmt: skip
    inputs = {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    for key in ("input_ids", "attention_mask", "mm_token_type_ids"):
        if padding and key in inputs:
            inputs[key] = torch.nn.functional.pad(inputs[key], (padding, 0))
    return inputs


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("query", [-1, 3])
def test_equal_to_eager_attention(checkpoint, attention, query):
    inputs = prompt(checkpoint)
    with torch.no_grad():
        expected = load(checkpoint, "eager")(**inputs, output_attentions=True).attentions
    rows = attention_rows(load(checkpoint, attention), inputs, range(len(expected)), query)
    assert rows.shape == (len(expected), expected[0].shape[1], inputs["input_ids"].shape[1])
    for row, matrix in zip(rows, expected, strict=True):
        torch.testing.assert_close(row, matrix[0, :, query], atol=1e-4, rtol=0)
    assert not torch.allclose(rows[0], rows[1], atol=1e-3)  # the layers differ


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_is_not_looked_at(checkpoint, attention):
    model = load(checkpoint, attention)
    plain = attention_rows(model, prompt(checkpoint), [1])
    padded = attention_rows(model, prompt(checkpoint, padding=5), [1])
    assert padded[:, :, :5].abs().max() == 0
    torch.testing.assert_close(padded[:, :, 5:], plain, atol=1e-4, rtol=0)


def test_layers_above_do_not_run_and_the_model_is_as_before(checkpoint):
    model = load(checkpoint, "sdpa")
    inputs = prompt(checkpoint)
    with torch.no_grad():
        before = model(**inputs).logits
    ran = []
    hooks = [
        layer.mlp.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(model.model.language_model.layers)
    ]
    attention_rows(model, inputs, [1])
    assert ran == [0]
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, before)
    assert {layer.self_attn.config._attn_implementation for layer in model.model.language_model.layers} == {"sdpa"}


def test_what_cannot_be_done_is_said(checkpoint):
    model, inputs = load(checkpoint, "sdpa"), prompt(checkpoint)
    with pytest.raises(ValueError, match="layer 2 does not exist: the model has 2"):
        attention_rows(model, inputs, [2])
    with pytest.raises(ValueError, match="one prompt at a time; the batch is 2"):
        attention_rows(model, {"input_ids": inputs["input_ids"].repeat(2, 1)}, [0])
    with pytest.raises(ValueError, match="attention is not supported for Linear"):
        attention_rows(torch.nn.Linear(1, 1), inputs, [0])


def other_family(**text):
    """A Gemma 3 with a Gemma of some kind as its language model."""
    shape = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300, "sliding_window": 8, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention"], **text,
    }  # fmt: skip
    eye = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "patch_size": 14,
    }
    torch.manual_seed(0)
    config = PaliGemmaConfig if text.get("model_type") == "gemma2" else Gemma3Config
    model = AutoModelForImageTextToText.from_config(config(text_config=shape, vision_config={**eye, "image_size": 28}))
    ids = torch.randint(10, 250, (1, 40))
    return model.eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": ids * 0}


def test_a_sliding_window_without_a_mask_that_says_so():
    """Flash attention is told the window's size, and gets no mask for it."""
    model, inputs = other_family()
    window, whole = attention_rows(model, inputs, [0, 1])
    assert (window[:, :-8].abs().max(), whole[:, :-8].abs().max() > 0) == (0, True)
    seen = {}
    attend = rows_module._row

    def unmasked(q, k, mask, scaling, query, window=None):
        seen[len(seen)] = window
        return attend(q, k, None, scaling, query, window)

    rows_module._row = unmasked
    try:
        torch.testing.assert_close(attention_rows(model, inputs, [0, 1]), torch.stack([window, whole]))
    finally:
        rows_module._row = attend
    assert seen == {0: 8, 1: None}


def test_a_softmax_with_something_more_is_refused():
    model, inputs = other_family(model_type="gemma2", attn_logit_softcapping=0.5)
    with pytest.raises(ValueError, match="attention is not supported for Gemma2Attention: its softmax has softcap"):
        attention_rows(model, inputs, [0])
    assert model(**inputs).logits.isfinite().all()


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns, in elements."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        for tensor in returned if isinstance(returned, list | tuple) else [returned]:
            if isinstance(tensor, torch.Tensor):
                # Views of something smaller (an expanded mask) hold no memory of their own.
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return returned


def test_no_attention_matrix_is_stored_for_2048_reasoning_tokens(checkpoint):
    inputs = prompt(checkpoint, "a " * 2048)
    tokens = inputs["input_ids"].shape[1]
    assert tokens > 2048
    with Largest() as seen:
        attention_rows(load(checkpoint, "sdpa"), inputs, [0, 1])
    assert seen.elements < tokens**2 / 4
    with Largest() as seen, torch.no_grad():
        load(checkpoint, "eager")(**inputs, output_attentions=True)
    assert seen.elements >= tokens**2  # what the watch would have seen
