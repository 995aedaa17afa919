"""The arguments of `--model_args`, each declared once: README's table, `mai args` and error messages come from here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mai_plugin.core.strategies import STRATEGIES
from mai_plugin.engines.base import ENGINES
from mai_plugin.settings import readers
from mai_plugin.settings.strategies import RESERVED, StrategySpec, strategy_spec

STORE_FILE = "calls.sqlite"
"""The call store's name in a folder."""
DEFAULT_STORE = Path("mai_runs", STORE_FILE)
AUTO_BATCH_SIZE = 16
"""What `batch_size=auto` means."""


@dataclass(frozen=True)
class Argument:
    """An argument that all strategies share.

    Attributes:
        name: as the user types it.
        read: reads it where it is given.
        default: where it is not; as text where it depends on others.
        help: one line.
    """

    name: str
    read: Callable[[Mapping[str, Any], str], Any]
    default: Any
    help: str


def _engine(args: Mapping[str, Any], key: str) -> str:
    return readers.one_of(args, key, tuple(ENGINES))


def _batch_size(args: Mapping[str, Any], key: str) -> int:
    return AUTO_BATCH_SIZE if args[key] in ("auto", "auto:1") else readers.positive(args, key)


def _store(args: Mapping[str, Any], key: str) -> Path | None:
    if args[key] in ("off", False):
        return None
    path = Path(readers.text(args, key)).expanduser()
    return path if path.suffix in (".sqlite", ".db") else path / STORE_FILE


ARGUMENTS = {
    argument.name: argument
    for argument in (
        Argument("preset", readers.text, "MAI-Qwen3VL-2B-8B", "a name from `mai presets`, or a YAML file like one"),
        Argument("strategy", readers.text, "the model's own", "a built-in strategy, or your own as `file.py:function`"),
        Argument("engine", _engine, "transformers", "transformers, vllm, openai, or scripted for tests"),
        Argument("engine_args", readers.mapping, "{}", "JSON with arguments of the engine, for all models"),
        Argument("device", readers.text, None, "such as cuda:0 or cpu; lmms-eval's --device"),
        Argument("dtype", readers.text, "auto", "auto, float32, bfloat16 or float16"),
        Argument("batch_size", _batch_size, 1, "requests per batch (transformers); lmms-eval's --batch_size"),
        Argument("image_format", readers.text, "png", "png or jpeg: how images are sent (openai)"),
        Argument("prompts", readers.text, None, "a YAML file with other wordings: docs/prompts.md"),
        Argument("max_reasoning_tokens", readers.positive, 2048, "limit on E and R; short answers have the task's own"),
        Argument("concurrency", readers.positive, "64; vllm 256", "questions in flight"),
        Argument("raw", readers.flag, False, "true: return the final text as generated, not the bare answer"),
        Argument("store", _store, "mai_runs", "call store: a folder, a .sqlite file, or off"),
        Argument("reuse", readers.flag, True, "false: make every call anew, for timing; it is stored all the same"),
        Argument("share_engines", readers.flag, False, "true: reuse calls that another engine made"),
    )
}
RESERVED.update(ARGUMENTS)


def role_arguments(role: str) -> tuple[str, str, str]:
    """What a role can be told: its model, that model's engine arguments, and where it is served."""
    return role, f"{role}_args", "base_url" if role == "model" else f"{role}_base_url"


def model_roles(spec: StrategySpec) -> tuple[str, ...]:
    """What a strategy's models are called in arguments.

    Of speculative decoding the small model is a part of the large one's engine, and no role of the strategy.
    """
    return ("small", "large") if spec.name == "speculative" else tuple(spec.roles)


def needed_models(spec: StrategySpec) -> set[str]:
    """Those of them that must be given."""
    return {role for role in model_roles(spec) if spec.roles.get(role, True)}


def accepted(spec: StrategySpec) -> tuple[str, ...]:
    """The names of all arguments that a run of some strategy takes."""
    roles = (name for role in model_roles(spec) for name in role_arguments(role))
    return (*roles, *spec.parameters, *ARGUMENTS)


def argument_rows() -> Iterator[tuple[str, str, str, str]]:
    """Name, default, which strategies take it, and one line of help, for every argument."""
    models = "checkpoint folders or Hub names, instead of a preset; your own strategy has its own roles"
    yield "small, large; model", "", "all", models
    yield "selector", "", "mutual_verification, sparse_transfer", "sparse transfer: the checkpoint, where engine=vllm"
    yield "small_args, large_args, ...", "{}", "all", "JSON with arguments of the engine for one model"
    yield "small_base_url, ...; base_url", "", "all", "where a model is served (engine=openai)"
    for argument in ARGUMENTS.values():
        yield argument.name, "" if argument.default is None else _shown(argument.default), "all", argument.help
    specs = [strategy_spec(name) for name in STRATEGIES]
    for name in dict.fromkeys(name for spec in specs for name in spec.parameters):
        users = [spec for spec in specs if name in spec.parameters]
        parameter = users[0].parameters[name]
        defaults = dict.fromkeys(
            "" if s.parameters[name].required else _shown(s.parameters[name].default) for s in users
        )
        meaning = _MEANINGS.get(name, parameter.accepts)
        yield name, " or ".join(defaults), ", ".join(spec.name for spec in users), meaning


def argument_table(markdown: bool = False) -> list[tuple[str, str, str]]:
    """Those rows as readers see them: name, default and meaning."""
    rows = []
    for name, default, strategies, meaning in argument_rows():
        shown = (re.sub(r"\w+", r"`\g<0>`", name), default and f"`{default}`") if markdown else (name, default)
        rows.append((*shown, meaning if strategies == "all" else f"{meaning} ({strategies})"))
    return rows


_MEANINGS = {
    "agreement": "when two answers are equal: exact (after normalisation), relaxed (numbers within 5 %, texts with an "
    "ANLS of at least 0.5), or your own as `file.py:function`",
    "verify": "what the second step compares: the answer of R, of R-S2, or none",
    "transfer": "full, or sparse: only the tokens that the large model attends to",
    "layer": "sparse transfer: whose attention decides; a layer's number, or a share of the depth",
    "keep": "sparse transfer: share of the attention that the transferred tokens hold",
    "select_by": "sparse transfer: attention, random or last",
    "prompt": "how the model is asked: S (`single` only), E or R",
    "two_stage": "true: ask again for the short answer, with the reasoning in context",
    "threshold": "log-probability from which on a short answer is accepted",
}
"""What the arguments of the built-in strategies mean."""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3g}"
    return "exact" if callable(value) else str(value)
