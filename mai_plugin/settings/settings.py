"""What a user typed, checked: strategy, models, engine and limits, from arguments and presets.

Both harnesses and the command line go through `Settings.from_args`, so that an argument means the same everywhere.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml

from mai_plugin.core import answers
from mai_plugin.core.prompts import Prompts, load_prompts
from mai_plugin.core.records import SelectBy, Sparse
from mai_plugin.core.strategies import Agree
from mai_plugin.engines.base import ENGINES, ModelSpec
from mai_plugin.engines.openai_urls import parse_base_urls
from mai_plugin.resources import task_configs
from mai_plugin.settings import readers as arguments

StrategyName = Literal["mutual_verification", "single", "transfer", "sparse_transfer", "speculative"]
DEFAULT_PRESET = "MAI-Qwen3VL-2B-8B"
AGREEMENTS: dict[str, Agree] = {"exact": answers.agree, "relaxed": answers.agree_relaxed}
CONCURRENCY = {"transformers": 64, "vllm": 256, "openai": 64, "scripted": 64}
"""Questions in flight by default: vLLM makes its batches of what is there."""
STORE_FILE = "calls.sqlite"
"""The call store's name in a folder."""
AUTO_BATCH_SIZE = 16
"""What `batch_size=auto` stands for."""

# What each strategy can be told, beside COMMON.
_PAIR = ("small", "large", "small_args", "large_args", "small_base_url", "large_base_url")
_SPARSE = ("layer", "keep", "select_by", "selector", "selector_args")
_ARGS: dict[str, tuple[str, ...]] = {
    "mutual_verification": (*_PAIR, "agreement", "transfer", *_SPARSE),
    "single": ("model", "base_url", "prompt", "two_stage"),
    "transfer": (*_PAIR, "prompt"),
    "sparse_transfer": (*_PAIR, "prompt", *_SPARSE),
    "speculative": ("small", "large", "small_args", "large_args", "prompt", "two_stage"),
}
_COMMON = (
    "strategy", "preset", "engine", "engine_args", "device", "dtype", "batch_size", "image_format",
    "prompts", "max_reasoning_tokens", "concurrency", "raw", "store", "reuse",
)  # fmt: skip
_FROM_HARNESS = ("batch_size", "device")  # given by harnesses whether or not an engine has a use for them
_LOAD_WEIGHTS = ("transformers", "vllm")
_GIVE_ATTENTION = ("transformers", "scripted")  # and take an assistant
_FOR_ENGINE = ("dtype", "image_format")  # handed on to the engine, which may refuse them


@dataclass(frozen=True)
class Settings:
    """One way to answer questions.

    Attributes:
        name: what results are filed under: the preset, or the models and the strategy.
        strategy: `mutual_verification` (MAI), `single`, `transfer`, `sparse_transfer` or `speculative`.
        models: role (`small` and `large`, or `model`) to model.  Speculative decoding has one, with its assistant among
            its arguments.
        engine: name of the engine that runs them.
        prompt: `S`, `E` or `R` for `single`; `E` or `R` for others: what is transferred, or decoded with an assistant.
        two_stage: for `single` and `speculative`: ask again for the short answer, with the reasoning in context.
        sparse: for `sparse_transfer`, and for MAI with `transfer=sparse`: what of the reasoning is handed on.
        selector: what selects it where the engine gives no attention; None: the large model itself.
        prompts: wordings.
        agree: when two answers count as equal (`agreement`: `exact`, `relaxed`, or a function as `module:name`).
        max_reasoning_tokens: limit on E and R answers.
        concurrency: questions in flight.
        raw: hand back the final text as the model wrote it instead of the bare answer.
        store: the call store's file, see `run.store`; None to keep nothing (`store=off`).
        reuse: take calls that are in the store from there; False makes each anew, and keeps it too.
    """

    name: str
    strategy: StrategyName
    models: Mapping[str, ModelSpec]
    engine: str = "transformers"
    prompt: str = "R"
    two_stage: bool = False
    sparse: Sparse | None = None
    selector: ModelSpec | None = None
    prompts: Prompts = field(default_factory=load_prompts)
    agree: Agree = answers.agree
    max_reasoning_tokens: int = 2048
    concurrency: int = 64
    raw: bool = False
    store: Path | None = Path("mai_runs", STORE_FILE)
    reuse: bool = True

    @property
    def loaded(self) -> dict[str, tuple[str, ModelSpec]]:
        """All that is loaded: role to engine and model, the selector among them."""
        selector = {"selector": ("transformers", self.selector)} if self.selector else {}
        return {**{role: (self.engine, model) for role, model in self.models.items()}, **selector}

    @classmethod
    def from_args(cls, strategy: StrategyName, args: Mapping[str, Any]) -> Settings:
        """Check arguments, fill in a preset and defaults.

        Args:
            strategy: which one, unless `args` has its own `strategy`.
            args: as a user types them.

        Raises:
            ValueError: one line that names the argument and the values it may take.
        """
        given = {key: value for key, value in args.items() if value is not None}
        arguments.refuse_keys(given)
        strategy = _strategy(given, strategy)
        accepted = (*_ARGS[strategy], *_COMMON)
        for key in given:
            if key not in accepted:
                hint = arguments.did_you_mean(key, accepted)
                raise ValueError(f"unknown argument {key!r}{hint}; arguments are: {', '.join(accepted)}")
        given.pop("strategy", None)
        preset_name = given.pop("preset", None)
        own_models = [key for key in ("small", "large", "model") if key in given]
        if preset_name is None and not own_models and strategy != "single":
            preset_name = DEFAULT_PRESET
        preset = _preset(str(preset_name), strategy) if preset_name is not None else {}
        engine, own_engine = (
            arguments.one_of(args, "engine", tuple(ENGINES), cls.engine) for args in (preset | given, preset)
        )
        engine_args = _preset_engine_args(preset, engine, own_engine)
        if engine != own_engine:
            preset = {key: value for key, value in preset.items() if not _is_for_engine(key, engine)}
        merged = {**preset, **given, "engine_args": {**engine_args, **arguments.mapping(given, "engine_args")}}

        roles = ("model",) if strategy == "single" else ("small", "large")
        missing = [role for role in roles if merged.get(role) is None]
        if missing:
            wanted = " and ".join(f"{role}=MODEL" for role in roles)
            raise ValueError(f"argument {missing[0]!r} is missing: give {wanted}, or preset=NAME")
        styles = ("S", "E", "R") if strategy == "single" else ("E", "R")
        prompt = arguments.one_of(merged, "prompt", styles, "S" if strategy == "single" else "R")
        two_stage = arguments.flag(merged, "two_stage")
        if two_stage and prompt == "S":
            raise ValueError("argument two_stage=true needs prompt=E or prompt=R: S has no reasoning to read again")
        sparse = _sparse(merged, strategy)
        shared, hints = _engine_args(merged)
        models = {}
        for role in roles:
            own = {**arguments.mapping(merged, f"{role}_args"), **_base_urls(merged, role, engine)}
            models[role] = ModelSpec(arguments.text(merged, role), {**shared, **own}, hints)
        name = _name(preset_name if not own_models else None, preset, strategy, models, prompt, two_stage)
        if strategy == "speculative":
            models = {"model": _assisted(**models, engine=engine)}
        return cls(
            name=name + _sparse_suffix(given) if sparse else name,
            strategy=strategy,
            models=models,
            engine=engine,
            prompt=prompt,
            two_stage=two_stage,
            sparse=sparse,
            selector=_selector(merged, engine, hints) if sparse else None,
            prompts=load_prompts(arguments.text(merged, "prompts") if "prompts" in merged else None),
            agree=agreement(str(merged.get("agreement", "exact"))),
            max_reasoning_tokens=arguments.positive(merged, "max_reasoning_tokens", cls.max_reasoning_tokens),
            concurrency=arguments.positive(merged, "concurrency", CONCURRENCY[engine]),
            raw=arguments.flag(merged, "raw"),
            store=_store(merged),
            reuse=arguments.flag(merged, "reuse", cls.reuse),
        )


def preset_names() -> list[str]:
    """The presets that travel with the package."""
    return sorted(path.stem for path in (task_configs() / "presets").glob("*.yaml"))


def preset_strategy(name: str) -> StrategyName:
    """The strategy that a preset (a name, or the path of a YAML file) is for.

    Raises:
        ValueError: there is no such preset, or it is no preset.
    """
    strategy: StrategyName = _read_preset(name)["strategy"]
    return strategy


def _read_preset(name: str) -> dict[str, Any]:
    path = Path(name) if name.endswith((".yaml", ".yml")) else task_configs() / "presets" / f"{name}.yaml"
    if not path.is_file():
        if path == Path(name):
            raise ValueError(f"preset {name!r}: no such file")
        hint = arguments.did_you_mean(name, preset_names())
        raise ValueError(f"unknown preset {name!r}{hint}; `mai presets` lists them; or give the path of a YAML file")
    try:
        preset = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"preset {name!r}: {' '.join(str(error).split())}") from error
    if not isinstance(preset, dict) or preset.get("strategy") not in get_args(StrategyName):
        raise ValueError(f"preset {name!r}: needs 'strategy', one of {', '.join(get_args(StrategyName))}")
    return preset


def _preset(name: str, strategy: StrategyName) -> dict[str, Any]:
    """Read a preset by name or path, for a strategy."""
    preset = _read_preset(name)
    own = preset.pop("strategy")
    if (own == "single") != (strategy == "single"):
        meant = "mai_single" if own == "single" else "mai_cascade and mai_transfer"
        raise ValueError(f"preset {name!r} is for strategy {own}, not for {strategy}: use it with {meant}")
    accepted = (*_ARGS[own], *_COMMON)
    arguments.refuse_keys(preset)
    for key in preset:
        if key not in accepted:
            raise ValueError(f"preset {name!r}: unknown key {key!r}; it may hold: {', '.join(accepted)}")
    # A pair's preset serves all strategies of a pair.
    return {"own_strategy": own, **preset}


def _name(
    preset_name: str | None, preset: Mapping[str, Any], strategy: StrategyName, models: Mapping[str, ModelSpec],
    prompt: str, two_stage: bool,
) -> str:  # fmt: skip
    if strategy in ("single", "speculative"):
        speculative = "-speculative" if strategy == "speculative" else ""
        suffix = f"{speculative}-{prompt}" + ("-S2" if two_stage else "")
    elif strategy != "mutual_verification":
        suffix = f"-{strategy.replace('_', '-')}-{prompt}"
    else:
        suffix = "-MAI"
    if preset_name is not None:
        stem = Path(preset_name).stem
        changed = strategy != preset["own_strategy"] or (strategy == "single" and not stem.endswith(suffix))
        return stem + suffix if changed else stem
    return "+".join(model.short_name for model in models.values()) + suffix


def _strategy(given: Mapping[str, Any], default: StrategyName) -> StrategyName:
    """The strategy that is asked for by `strategy=`, else that of the harness's model.

    A preset serves all strategies of a pair, so its own stands back; but for those that have no model of their own.
    """
    if "strategy" not in given and "preset" in given and default != "single":
        own = preset_strategy(str(given["preset"]))
        return own if own in ("sparse_transfer", "speculative") else default
    chosen: Any = arguments.one_of(given, "strategy", get_args(StrategyName), default)
    return cast(StrategyName, chosen)


def _sparse(merged: Mapping[str, Any], strategy: StrategyName) -> Sparse | None:
    """What sparse transfer hands on, if it is one."""
    if strategy not in ("mutual_verification", "sparse_transfer"):
        return None
    asked = (
        strategy == "sparse_transfer" or arguments.one_of(merged, "transfer", ("full", "sparse"), "full") == "sparse"
    )
    if not asked:
        if useless := [key for key in _SPARSE if key in merged]:
            raise ValueError(f"argument {useless[0]} is for sparse transfer: add transfer=sparse")
        return None
    default = Sparse()
    by: Any = arguments.one_of(merged, "select_by", get_args(SelectBy), default.by)
    layer, keep = arguments.layer(merged, "layer", default.layer), arguments.share(merged, "keep", default.keep)
    return Sparse(layer, keep, by)


def _sparse_suffix(given: Mapping[str, Any]) -> str:
    """What tells results of sparse transfers from others, where the rest of the name does not."""
    suffix = "-sparse" if "transfer" in given else ""
    parts = {"layer": "L", "keep": "keep", "select_by": ""}
    return suffix + "".join(f"-{short}{given[name]}" for name, short in parts.items() if name in given)


def _selector(merged: Mapping[str, Any], engine: str, hints: Mapping[str, Any]) -> ModelSpec | None:
    """The model whose first layers select, where the engine itself cannot."""
    if "selector" in merged:
        dtype = {"dtype": merged["dtype"]} if "dtype" in merged else {}
        args = {**dtype, **arguments.mapping(merged, "selector_args")}
        return ModelSpec(arguments.text(merged, "selector"), args, hints)
    if "selector_args" in merged:
        raise ValueError("argument selector_args needs selector=MODEL")
    if engine not in _GIVE_ATTENTION:
        raise ValueError(
            f"sparse transfer needs the large model's attention, which engine={engine} does not give: add "
            f"selector={merged['large'] if engine == 'vllm' else 'CHECKPOINT'}, whose first layers are then loaded "
            "with transformers beside it; or engine=transformers"
        )
    return None


def _assisted(small: ModelSpec, large: ModelSpec, engine: str) -> ModelSpec:
    """The large model with the small one as its assistant."""
    if engine not in _GIVE_ATTENTION:
        raise ValueError(
            f"strategy=speculative is transformers' assisted generation, not to be had with engine={engine}: "
            "choose engine=transformers"
        )
    if engine == "scripted":
        return large
    return replace(large, args={**large.args, "assistant_model": small.source, "assistant_args": dict(small.args)})


def _engine_args(merged: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments for the engine, and hints that it may not have a use for: what a harness gives in any case."""
    hints = {key: merged[key] for key in _FROM_HARNESS if key in merged}
    if hints.get("batch_size") in ("auto", "auto:1"):
        hints["batch_size"] = AUTO_BATCH_SIZE
    if "batch_size" in hints:
        hints["batch_size"] = arguments.positive(hints, "batch_size", 1)
    args = {key: merged[key] for key in _FOR_ENGINE if key in merged}
    return {**args, **arguments.mapping(merged, "engine_args")}, hints


def _preset_engine_args(preset: Mapping[str, Any], engine: str, own: str) -> dict[str, Any]:
    """A preset's arguments for an engine: those under its name, or all of them where they are for its `own` engine."""
    args = arguments.mapping(preset, "engine_args")
    if args and set(args) <= set(ENGINES):
        return arguments.mapping(args, engine)
    return args if engine == own else {}


def _is_for_engine(key: str, other: str) -> bool:
    """Whether a preset's argument is meant for its own engine, and of no use to the `other` one that is asked for."""
    if key == "dtype":
        return other not in _LOAD_WEIGHTS
    return key.endswith(("_args", "base_url")) or key in _FOR_ENGINE


def _base_urls(merged: Mapping[str, Any], role: str, engine: str) -> dict[str, tuple[str, ...]]:
    """The servers of a role's model: needed by the engine `openai`, and of use to no other."""
    key = "base_url" if role == "model" else f"{role}_base_url"
    if engine == "openai" and key not in merged:
        raise ValueError(
            f"argument {key!r} is missing: engine=openai needs {key}=URL, such as http://localhost:8000/v1"
        )
    if engine != "openai" and key in merged:
        raise ValueError(f"argument {key} needs engine=openai; the engine is {engine}")
    return {"base_url": parse_base_urls(merged[key], key)} if key in merged else {}


def agreement(name: str) -> Agree:
    """When two answers count as equal: `exact`, `relaxed`, or a function as `module:name`.

    Raises:
        ValueError: there is no such one.
    """
    if name in AGREEMENTS:
        return AGREEMENTS[name]
    module, _, attribute = name.rpartition(":")
    known = f"it may be: {', '.join(AGREEMENTS)}, or a function of your own as module:name"
    if not module or not attribute:
        raise ValueError(f"argument agreement={name!r}; {known}")
    if os.getcwd() not in sys.path:  # a file in the current folder, which console scripts do not look at
        sys.path.append(os.getcwd())
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"argument agreement={name!r}: {error}; {known}") from error
    if not callable(found):
        raise ValueError(f"argument agreement={name!r} is no function; {known}")
    try:
        inspect.signature(found).bind("a", "b", "short")
    except TypeError as error:
        raise ValueError(f"argument agreement={name!r} must take two answers and their kind: {error}") from error
    except ValueError:  # some functions written in C do not tell what they take
        pass
    agree: Agree = found
    return agree


def _store(args: Mapping[str, Any]) -> Path | None:
    if args.get("store") in ("off", False):
        return None
    if "store" not in args:
        return Settings.store
    path = Path(arguments.text(args, "store")).expanduser()
    return path if path.suffix in (".sqlite", ".db") else path / STORE_FILE
