"""The wordings of E, R and the second-stage question, and the requests for brevity that they take the place of.

The wordings are in `prompts.yaml`.  The paper (arXiv 2604.04929) names S, E and R but prints no wording.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

from mai_plugin.core.records import Kind, Style

DEFAULT_FILE = Path(__file__).with_name("prompts.yaml")

# What could be read as a token with a meaning of its own: <|im_end|>, <image>, </think>, <IMG_CONTEXT>, <|User|> ...
_MARKUP = re.compile(r"<(?=[A-Za-z/|\uff5c])")


@dataclass(frozen=True)
class Prompts:
    """Wordings per answer kind (`short`, `yes_no`, `choice`), and known requests for brevity."""

    explain: Mapping[str, str]
    reason: Mapping[str, str]
    final: Mapping[str, str]
    brevity: tuple[str, ...]

    def wording(self, style: Style, kind: Kind) -> str:
        """What is put behind the stem for `E` or `R`.  S has no wording of its own: it is the harness's prompt."""
        return {"E": self.explain, "R": self.reason}[style][kind]


@cache
def load_prompts(path: str | Path | None = None) -> Prompts:
    """Read wordings from a YAML file; what it leaves out is taken from the package's own `prompts.yaml`.

    Raises:
        ValueError: the file is missing, is not YAML, or has a key or a kind that does not exist.
    """
    table = _read(DEFAULT_FILE)
    if path is not None:
        given = _read(Path(path))
        for name, value in given.items():
            if name not in table:
                raise ValueError(f"prompts file {path}: unknown key {name!r}; it may hold {', '.join(table)}")
            if name == "brevity":
                if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
                    raise ValueError(f"prompts file {path}: 'brevity' must be a list of sentences")
                table[name] = [*value, *table[name]]
                continue
            kinds = get_args(Kind)
            wrong = [key for key in value if key not in kinds] if isinstance(value, dict) else [value]
            if wrong or not all(isinstance(item, str) and item.strip() for item in value.values()):
                raise ValueError(f"prompts file {path}: {name!r} must map {', '.join(kinds)} to a wording")
            table[name] = {**table[name], **value}
    return Prompts(table["explain"], table["reason"], table["final"], tuple(table["brevity"]))


def inert(text: str) -> str:
    """Text of one model made safe to show to another: no part of it can be read as a special token.

    A space is put behind each `<` that opens a tag, so `<|im_end|>` reaches the tokenizer as `< |im_end|>`: plain
    text, whichever family's special tokens it imitates.
    """
    return _MARKUP.sub("< ", text)


def _read(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"prompts file {path}: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise ValueError(f"prompts file {path}: must be a mapping, like {DEFAULT_FILE.name}")
    return loaded
