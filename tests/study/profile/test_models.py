"""What a name means; shapes against published sizes; depth."""

import json
from pathlib import Path
from typing import Any

import pytest

from mai_plugin.study.profile import models
from mai_plugin.study.profile.models import (
    check_memory,
    configuration_names,
    count_parameters,
    load,
    published_depth,
    resolve,
)

# Parameters of the checkpoints as the Hub counts them (Qwen3-VL, InternVL3.5-1B), the others as their model cards round.
PUBLISHED = {
    "Qwen3-VL-2B": 2_127_532_032,
    "Qwen3-VL-4B": 4_437_815_808,
    "Qwen3-VL-8B": 8_767_123_696,
    "InternVL3.5-1B": 1_060_897_792,
    "InternVL3.5-2B": 2.3e9,
    "InternVL3.5-4B": 4.7e9,
    "InternVL3.5-8B": 8.5e9,
    "InternVL3.5-14B": 15.1e9,
}


def test_all_configurations_are_checked():
    assert configuration_names() == list(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_shapes_have_the_published_number_of_parameters(name: str):
    (source,) = resolve([name], "random")
    exact = isinstance(PUBLISHED[name], int)
    assert count_parameters(source) == pytest.approx(PUBLISHED[name], rel=0 if exact else 0.025)


def test_depths():
    assert published_depth("Qwen3-VL", "8B") == (36, 27)
    assert published_depth("InternVL3.5", "14B") == (40, 24)
    assert published_depth("Qwen3-VL", "32B") is None


def test_a_pair_is_both_its_models_and_twice_is_once():
    sources = resolve(["MAI-tiny", "mai-tiny-large"])
    assert [source.label for source in sources] == ["mai-tiny-small", "mai-tiny-large"]
    assert all(Path(source.path or "").is_dir() for source in sources)


def test_a_preset_of_the_hub_needs_no_download_with_random_weights():
    sources = resolve(["MAI-Qwen3VL-2B-8B"], "random", layers=2, vision_layers=3)
    assert [source.label for source in sources] == [
        "Qwen3-VL-2B-Instruct (2 of 28 layers, 3 of 24 vision layers)",
        "Qwen3-VL-8B-Instruct (2 of 36 layers, 3 of 27 vision layers)",
    ]


def test_a_cut_keeps_what_belongs_to_the_layers_that_stay():
    (qwen,) = resolve(["Qwen3-VL-8B"], "random", layers=2, vision_layers=17)
    assert (qwen.config.text_config.num_hidden_layers, qwen.config.vision_config.depth) == (2, 17)
    assert list(qwen.config.vision_config.deepstack_visual_indexes) == [8, 16]
    (internvl,) = resolve(["InternVL3.5-1B"], "random", layers=3)
    assert len(internvl.config.text_config.layer_types) == 3
    assert internvl.vision_layers == (24, 24)
    assert internvl.label == "InternVL3.5-1B (3 of 28 layers)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Qwen3-VL-2B", "add --weights random"),
        ("qwen", "no model or preset 'qwen'"),
        ("/nowhere/at/all", "no model or preset"),
        ("nobody/nothing", "could not be read: OSError"),
        ("nowhere.yaml", "no such file"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str):
    with pytest.raises(ValueError, match=message) as found:
        resolve([name])
    assert "\n" not in str(found.value)


def test_a_model_without_a_vision_encoder(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ValueError, match=r"\(qwen3\) has no vision encoder"):
        resolve([str(tmp_path)])


def test_two_models_of_one_label(tmp_path: Path):
    for folder in "ab":
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / "config.json").write_text('{"model_type": "qwen3_vl"}')
    with pytest.raises(ValueError, match="two models are called 'model'"):
        resolve([str(tmp_path / "a" / "model"), str(tmp_path / "b" / "model")])


@pytest.mark.parametrize(("layers", "vision"), [(0, None), (None, 0)])
def test_a_depth_of_nothing(layers: int | None, vision: int | None):
    with pytest.raises(ValueError, match=r"layers 0: it must be at least 1"):
        resolve(["Qwen3-VL-2B"], "random", layers, vision)


def test_weights_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "free_memory", lambda device: 8_000_000_000)
    (source,) = resolve(["Qwen3-VL-2B"], "random")
    with pytest.raises(ValueError, match=r"take 8\.5 GB in float32, and 8\.0 GB are free on cpu: .*--layers N"):
        check_memory(source, "cpu", "float32")
    check_memory(source, "cpu", "bfloat16")


def test_random_weights_are_ordinary_numbers_and_repeat():
    import torch

    def weights(seed: int) -> dict[str, torch.Tensor]:
        (source,) = resolve(["mai-tiny-small"], "random")
        model, _ = load(source, "cpu", "float32", seed)
        assert model.lm_head.weight is model.get_input_embeddings().weight  # tied as in the checkpoint
        return dict(model.named_parameters())

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    embedding = "model.language_model.embed_tokens.weight"
    assert not torch.equal(first[embedding], other[embedding])
    assert first[embedding].std().item() == pytest.approx(0.02, rel=0.05)
    assert all(weight.isfinite().all() for weight in first.values())


def test_a_damaged_checkpoint(tmp_path: Path):
    from helpers.checkpoints import random_qwen3_vl

    folder = random_qwen3_vl(tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    (source,) = resolve([str(folder)])
    with pytest.raises(ValueError, match="could not be loaded") as found:
        load(source, "cpu", "float32")
    assert "\n" not in str(found.value)


def test_a_checkpoint_that_lacks_weights(tmp_path: Path):
    from helpers.checkpoints import random_qwen3_vl
    from safetensors.torch import load_file, save_file

    folder = random_qwen3_vl(tmp_path / "part")
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layers.1.mlp" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"the checkpoint lacks 3 weights, such as model\.language_model.layers.1.mlp"):
        load(resolve([str(folder)])[0], "cpu", "float32")
    load(resolve([str(folder)], "random")[0], "cpu", "float32")
    load(resolve([str(folder)], layers=1)[0], "cpu", "float32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_config": {"num_attention_heads": 0}}, "ZeroDivisionError: integer division or modulo by zero"),
        ({"model_type": "clip"}, "ValueError: Unrecognized configuration class"),
    ],
)
def test_a_configuration_that_makes_no_model(tmp_path: Path, change: dict[str, Any], message: str):
    from helpers.checkpoints import random_qwen3_vl

    folder = random_qwen3_vl(tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    text = {**config["text_config"], **change.get("text_config", {})}
    changed = {"model_type": "clip"} if "model_type" in change else {**config, "text_config": text}
    (folder / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=f"odd' cannot be built: {message}") as found:
        check_memory(resolve([str(folder)])[0], "cpu", "float32")
    assert "\n" not in str(found.value)
