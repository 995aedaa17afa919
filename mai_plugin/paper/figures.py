"""The figures of arXiv 2604.04929 and other reported ones, as shipped beside this file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mai_plugin.core.text import last_part

_DATA = Path(__file__).parent
SOURCE = "arXiv 2604.04929"

# "Qwen/Qwen3-VL-8B-Instruct", "Qwen3VL-2B", "OpenGVLab/InternVL3_5-14B-HF"
_FAMILIES = {"Qwen3-VL": r"qwen3-?vl", "InternVL3.5": r"internvl3[._]5"}


@cache
def paper() -> dict[str, Any]:
    """Every printed figure, by table (`table4_decode_ms`, ...): see `paper.yaml`."""
    return _read("paper.yaml")


@cache
def reported() -> dict[str, Any]:
    """Figures that others reported for Qwen3-VL, with source, split and settings: see `reported.yaml`."""
    return _read("reported.yaml")


def model_size(name: str) -> tuple[str, str] | None:
    """Family and size that a model's name states, such as `("Qwen3-VL", "8B")`; None if it states none."""
    for family, pattern in _FAMILIES.items():
        found = re.search(pattern + r"-(\d+B)(?![a-z0-9])", last_part(name), re.IGNORECASE)
        if found:
            return family, found.group(1).upper()
    return None


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((_DATA / name).read_text(encoding="utf-8"))
    return loaded
