"""Presets: a table of the package's own (`models.yaml`), and YAML files of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mai_plugin.core.ways import MAI, Way
from mai_plugin.settings import readers

DEFAULT_PRESET = "MAI-Qwen3VL-2B-8B"
_TABLE = Path(__file__).with_name("models.yaml")


@cache
def _table() -> dict[str, dict[str, Any]]:
    """Every preset of the package: name to what a YAML file of it would hold."""
    table = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    presets: dict[str, dict[str, Any]] = {}
    for family, entry in table["families"].items():
        args = {"engine_args": entry["engine_args"]} if "engine_args" in entry else {}
        for name, (small, large) in entry["pairs"].items():
            pair = {"small": entry["models"][small], "large": entry["models"][large]}
            presets[name] = {"strategy": "mutual_verification", **pair, **args}
        for size, model in entry["models"].items():
            for way in map(Way.parse, table["ways"]):
                asked = {"prompt": way.style, **({"two_stage": True} if way.two_stage else {})}
                presets[f"{family}-{size}-{way}"] = {"strategy": "single", "model": model, **asked, **args}
    return presets


def family_models(family: str) -> dict[str, str]:
    """Size to checkpoint of one of the families in the table."""
    return dict(yaml.safe_load(_TABLE.read_text(encoding="utf-8"))["families"][family]["models"])


def preset_names() -> list[str]:
    """The presets of the package."""
    return sorted(_table())


def preset_strategy(name: str) -> str:
    """The strategy that a preset (a name, or the path of a YAML file) is for.

    Raises:
        ValueError: there is no such preset, or it is no preset.
    """
    return str(read_preset(name)["strategy"])


def implied_strategy(given: Mapping[str, Any]) -> str:
    """The strategy that arguments mean where they name none: the preset's, one model's, or the cascade.

    Raises:
        ValueError: as `preset_strategy`.
    """
    if given.get("preset") is not None:
        return preset_strategy(str(given["preset"]))
    return "single" if given.get("model") is not None else MAI


def read_preset(name: str) -> dict[str, Any]:
    """What a preset holds, its `strategy` included.

    Raises:
        ValueError: there is no such preset, or it is no preset.
    """
    if not name.endswith((".yaml", ".yml")):
        if name not in _table():
            hint = readers.did_you_mean(name, preset_names())
            raise ValueError(
                f"unknown preset {name!r}{hint}; `mai presets` lists them; or give the path of a YAML file"
            )
        return dict(_table()[name])
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"preset {name!r}: no such file")
    try:
        preset = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"preset {name!r}: {' '.join(str(error).split())}") from error
    if not isinstance(preset, dict) or not isinstance(preset.get("strategy"), str):
        raise ValueError(f"preset {name!r}: needs 'strategy', such as mutual_verification or single")
    readers.refuse_api_keys(preset)
    return {key: value for key, value in preset.items() if value is not None}
