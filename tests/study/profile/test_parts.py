"""The parts, on tiny models of both families: shapes, tokens and marks."""

from pathlib import Path

import pytest
import torch
from helpers.checkpoints import random_internvl, random_qwen3_vl
from transformers import GenerationConfig

from mai_plugin.study.profile.clock import CpuClock
from mai_plugin.study.profile.models import load, resolve
from mai_plugin.study.profile.parts import Parts, Pixels


@pytest.fixture(scope="module", params=[random_qwen3_vl, random_internvl])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder: Path = request.param(tmp_path_factory.mktemp("profile") / request.param.__name__)
    (source,) = resolve([str(folder)])
    return Parts(*load(source, "cpu", "float32"))


def image(parts: Parts, side: int) -> Pixels:
    return parts.pixels(parts.preprocess(parts.image(side)))


@pytest.mark.parametrize("side", [64, 256, 512])
def test_image_tokens_are_those_that_the_encoder_makes(parts: Parts, side: int):
    pixels = image(parts, side)
    features = parts.encode_image(parts.on_device(pixels)).pooler_output
    rows = torch.cat([*features]) if isinstance(features, (list, tuple)) else features.flatten(0, 1)
    assert rows.shape[0] == pixels.image_tokens


def test_a_qwen_image_is_not_scaled():
    """The shipped pair's own limit is 128 x 96 pixels."""
    (source,) = resolve(["mai-tiny-small"])
    parts = Parts(*load(source, "cpu", "float32"))
    assert [image(parts, side).image_tokens for side in (256, 1024, 2048)] == [64, 1024, 4096]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_prompt_has_the_wanted_length_and_a_generation_every_mark(parts: Parts, batch: int):
    pixels = image(parts, 128)
    inputs = parts.prompt(pixels, 20, batch)
    assert inputs["input_ids"].shape == (batch, pixels.image_tokens + 2 + 20)
    assert (inputs["input_ids"] == parts.model.config.image_token_id).sum() == batch * pixels.image_tokens
    clock = CpuClock()
    clock.start()
    tokens = parts.generate(inputs, [1, 4, 9], clock)
    assert tokens.shape == (batch, 9)
    assert all(torch.equal(tokens[0], row) for row in tokens)  # equal prompts, greedy
    marks = clock.read()
    assert len(marks) == 3
    assert marks == sorted(marks)


def test_no_token_ends_a_generation(parts: Parts):
    """Its first token is made the one that ends a turn: the generation goes on."""
    inputs = parts.prompt(image(parts, 64), 5)
    end = int(parts.generate(inputs, [1], CpuClock())[0, 0])
    parts.model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=0)
    assert parts.model.generate(**inputs, max_new_tokens=6).shape[1] == inputs["input_ids"].shape[1] + 1
    again = Parts(parts.model, parts.image_processor)
    assert again.generate(inputs, [6], CpuClock()).shape[1] == 6


def test_images_and_prompts_repeat(parts: Parts):
    pixels = image(parts, 64)
    assert parts.image(64).tobytes() == parts.image(64).tobytes()
    assert torch.equal(parts.prompt(pixels, 9)["input_ids"], parts.prompt(pixels, 9)["input_ids"])


def test_work_and_memory_grow_with_the_size(parts: Parts):
    small, large = image(parts, 64), image(parts, 512)
    assert parts.vision_work(large) > parts.vision_work(small) > 0
    assert parts.vision_memory(large) > parts.vision_memory(small) > 0
    assert parts.prompt_work(small, 64, 2) == 2 * parts.prompt_work(small, 64)
    assert parts.prompt_memory(small, 64, 512) > parts.prompt_memory(small, 64, 8)


def test_a_model_of_another_family_is_refused(parts: Parts):
    class Other:
        model_type = "llava"

    kept, parts.model.config = parts.model.config, Other()
    try:
        with pytest.raises(ValueError, match="models of type llava cannot be profiled"):
            parts.pixels({"pixel_values": torch.zeros(1, 3, 8, 8)})
    finally:
        parts.model.config = kept
