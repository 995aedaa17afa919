"""What to profile: presets, checkpoints, names on the Hub, and shapes without weights (`data/configurations.yaml`)."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mai_plugin.core.text import first_line, last_part
from mai_plugin.paper.figures import model_size
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.settings import Settings, preset_names, preset_strategy

WEIGHTS = ("checkpoint", "random")
_DATA = Path(__file__).with_name("configurations.yaml")
_TOWERS = ("text_config", "vision_config")
GB = 1e9


@dataclass(frozen=True)
class Source:
    """A model that is to be profiled, with nothing loaded but its configuration.

    Attributes:
        name: as it was named.
        config: its transformers configuration, cut to the depth that was asked for.
        path: checkpoint folder or name on the Hub; None for a shipped configuration.
        weights: `checkpoint` or `random`.
        layers, vision_layers: depth of the language model and of the vision encoder, as (kept, all).
        image_processor: settings of the image processor of a shipped configuration, else None.
    """

    name: str
    config: Any
    path: str | None
    weights: str
    layers: tuple[int, int]
    vision_layers: tuple[int, int]
    image_processor: dict[str, Any] | None = None

    @property
    def cut(self) -> str:
        """What was cut, in words; empty for a model of full depth."""
        depths = {"layers": self.layers, "vision layers": self.vision_layers}
        return ", ".join(f"{kept} of {whole} {what}" for what, (kept, whole) in depths.items() if kept < whole)

    @property
    def label(self) -> str:
        """What its results are filed under: the last part of the name, and what was cut."""
        name = last_part(self.name)
        return f"{name} ({self.cut})" if self.cut else name


def configuration_names() -> list[str]:
    """The shipped configurations, such as `Qwen3-VL-2B`."""
    return [f"{family}-{size}" for family, content in _configurations().items() for size in content["sizes"]]


def published_depth(family: str, size: str) -> tuple[int, int] | None:
    """Layers of the language model and of the vision encoder of a shipped configuration; None if there is none."""
    content = _configurations().get(family, {})
    if size not in content.get("sizes", {}):
        return None
    text, vision = ({**content["config"][key], **content["sizes"][size].get(key, {})} for key in _TOWERS)
    return text["num_hidden_layers"], vision.get("depth") or vision["num_hidden_layers"]


def resolve(
    names: Sequence[str], weights: str = "checkpoint", layers: int | None = None, vision_layers: int | None = None
) -> list[Source]:
    """Find out what some names mean; a preset means its models, a model that is named twice counts once.

    Args:
        names: presets, checkpoint folders, names on the Hub, shipped models or configurations.
        weights: `checkpoint` to load them, `random` to build models from their configurations alone.
        layers: most layers of the language model to keep.
        vision_layers: most layers of the vision encoder to keep.

    Raises:
        ValueError: one line that says what is wrong with a name.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"--weights {weights}: expected {' or '.join(WEIGHTS)}")
    models = dict.fromkeys(model for name in names for model in _models_of(name))
    found = [_source(model, weights, layers, vision_layers) for model in models]
    labels = [source.label for source in found]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"two models are called {label!r}: profile them one after the other")
    return found


def count_parameters(source: Source) -> int:
    """Parameters of a model, shared ones counted once, without building it."""
    import torch
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(source.config)
    return sum(weight.numel() for weight in model.parameters())


def check_memory(source: Source, device: str, dtype: str) -> None:
    """Refuse a model whose weights do not fit.

    Raises:
        ValueError: they take more than is free on the device, or its configuration makes no model.
    """
    import torch

    try:
        parameters = count_parameters(source)
    except Exception as error:  # whatever the libraries raise for a configuration that makes no model
        raise ValueError(f"model {source.name!r} cannot be built: {first_line(error)}") from error
    needed = parameters * torch.finfo(getattr(torch, dtype)).bits // 8
    free = free_memory(device)
    if needed > free:
        raise ValueError(
            f"model {source.label}: its weights take {needed / GB:.1f} GB in {dtype}, and {free / GB:.1f} GB are free "
            f"on {device}: cut its depth with --layers N and --vision-layers N"
        )


def free_memory(device: str) -> int:
    """Bytes that can still be had on a device."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil  # comes with accelerate

    return int(psutil.virtual_memory().available)


def load(source: Source, device: str, dtype: str, seed: int = 0) -> tuple[Any, Any]:
    """Load or build a model on a device, with its image processor.

    Returns:
        The model in evaluation mode, and the image processor, its limits on pixels lifted so that an image is
        measured at its own size.

    Raises:
        ValueError: it cannot be loaded.
    """
    import torch
    from transformers import AutoImageProcessor

    from mai_plugin.engines.checkpoint import complete

    try:
        if source.image_processor is None:
            processor = AutoImageProcessor.from_pretrained(source.path)
        else:
            processor = _image_processor(source.image_processor)
        if source.weights == "random":
            model = _random_model(source.config, device, getattr(torch, dtype), seed)
        else:
            placed = {} if device == "cpu" else {"device_map": device}
            model = complete(str(source.path), config=source.config, dtype=getattr(torch, dtype), **placed)
    except torch.cuda.OutOfMemoryError as error:
        raise ValueError(f"model {source.label} does not fit {device}: cut its depth with --layers N") from error
    except Exception as error:
        raise ValueError(f"model {source.name!r} could not be loaded: {first_line(error)}") from error
    size = dict(getattr(processor, "size", None) or {})
    if {"shortest_edge", "longest_edge"} <= size.keys():  # Qwen-VL: numbers of pixels
        processor.size = {**size, "shortest_edge": 1, "longest_edge": 2**40}
    return model.eval(), processor


def release(device: str) -> None:
    """Give back the memory of what is no longer referred to."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


@cache
def _configurations() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return loaded


def _models_of(name: str) -> list[str]:
    if name in preset_names() or name.endswith((".yaml", ".yml")):
        settings = Settings.from_args(preset_strategy(name), {"preset": name, "store": "off"})
        return [model.name for model in settings.models.values()]
    return [name]


def _source(name: str, weights: str, layers: int | None, vision_layers: int | None) -> Source:
    path = str(SHIPPED_MODELS.get(name, Path(name).expanduser() if name.startswith("~") else name))
    size = model_size(name)
    shipped = "-".join(size) if size else ""
    processor = None
    if Path(path).is_dir():
        config = _read_config(name, path)
    elif weights == "random" and shipped in configuration_names():
        config, processor = _configuration(*shipped.rsplit("-", 1))
    elif name in configuration_names():
        raise ValueError(
            f"{name} is a configuration without weights: add --weights random, or name a checkpoint of that model"
        )
    elif path.count("/") != 1 or path.startswith((".", "/")):  # no name of the form organisation/model
        known = ", ".join([*SHIPPED_MODELS, *configuration_names()])
        raise ValueError(
            f"no model or preset {name!r}: expected a preset (`mai presets`), a checkpoint folder, a name on the Hub, "
            f"or one of {known}"
        )
    else:
        config = _read_config(name, path)
    if getattr(config, "vision_config", None) is None:
        raise ValueError(f"model {name!r} ({config.model_type}) has no vision encoder")
    text, vision = config.get_text_config(), config.vision_config
    depth = "depth" if hasattr(vision, "depth") else "num_hidden_layers"
    return Source(
        name,
        config,
        None if processor else path,
        weights,
        _cut(text, "num_hidden_layers", layers, "--layers"),
        _cut(vision, depth, vision_layers, "--vision-layers"),
        processor,
    )


def _cut(config: Any, key: str, most: int | None, option: str) -> tuple[int, int]:
    """Keep the first layers of a language model or vision encoder; (kept, all)."""
    whole = int(getattr(config, key))
    if most is not None and most < 1:
        raise ValueError(f"{option} {most}: it must be at least 1")
    kept = whole if most is None else min(whole, most)
    setattr(config, key, kept)
    if getattr(config, "layer_types", None):  # one entry per layer
        config.layer_types = list(config.layer_types)[:kept]
    if getattr(config, "deepstack_visual_indexes", None):  # layers of the encoder whose output is used too
        config.deepstack_visual_indexes = [index for index in config.deepstack_visual_indexes if index < kept]
    return kept, whole


def _configuration(family: str, size: str) -> tuple[Any, dict[str, Any]]:
    """A shipped configuration as transformers' own, and the settings of its image processor."""
    from transformers import CONFIG_MAPPING

    content = _configurations()[family]
    own = content["sizes"][size]
    shape = dict(content["config"])
    shape |= {key: {**shape[key], **own.get(key, {})} for key in _TOWERS}
    if "tie_word_embeddings" in own:
        shape["tie_word_embeddings"] = own["tie_word_embeddings"]
    shape["text_config"]["tie_word_embeddings"] = shape["tie_word_embeddings"]
    return CONFIG_MAPPING[shape.pop("model_type")](**shape), content["image_processor"]


def _image_processor(settings: dict[str, Any]) -> Any:
    import transformers

    arguments = {key: value for key, value in settings.items() if key != "class"}
    name = settings["class"]
    if int(transformers.__version__.partition(".")[0]) < 5:  # there the plain name is the slow one
        name += "Fast"
    return getattr(transformers, name)(**arguments)


def _read_config(name: str, path: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(path)
    except Exception as error:  # whatever the libraries raise for a damaged file or a missing connection
        advice = "" if Path(path).is_dir() else "; without access to the Hub, give a checkpoint folder"
        raise ValueError(f"model {name!r} could not be read: {first_line(error)}{advice}") from error


def _random_model(config: Any, device: str, dtype: Any, seed: int) -> Any:
    """A model with random weights, built where it is to run.

    Weights are normal with a deviation of 0.02, norms are 1, biases 0: activations stay of ordinary size, so that no
    NaN and no denormal number changes the time of anything.  One block of random numbers is repeated, which makes
    billions of them in seconds on a CPU.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # transformers 4
        from transformers.modeling_utils import no_init_weights

    with torch.device(device), no_init_weights():
        model = AutoModelForImageTextToText.from_config(config, dtype=dtype)
    model.tie_weights()
    generator = torch.Generator().manual_seed(seed)
    noise = (0.02 * torch.randn(2**20 + 7, generator=generator)).to(device=device, dtype=dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                flat = weight.view(-1)
                whole = flat.numel() // noise.numel() * noise.numel()
                flat[:whole].view(-1, noise.numel()).copy_(noise)
                flat[whole:].copy_(noise[: flat.numel() - whole])
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)
    return model
