"""One way to answer questions, from what a user typed.

Both harnesses, the command line and the Python API go through `Settings.from_args`, so that an argument means the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import Prompts, load_prompts
from mai_plugin.core.strategies import Strategy
from mai_plugin.core.ways import Way
from mai_plugin.engines.base import ENGINES, ModelSpec
from mai_plugin.engines.openai_urls import parse_base_url
from mai_plugin.settings import readers
from mai_plugin.settings.arguments import ARGUMENTS, DEFAULT_STORE, accepted, model_roles, needed_models, role_arguments
from mai_plugin.settings.presets import DEFAULT_PRESET, read_preset
from mai_plugin.settings.strategies import StrategySpec, strategy_spec

_OF_A_MODEL = ("mutual_verification", "transfer", "single")  # strategies that lmms-eval has a model for
_HINTS = ("batch_size", "device")  # harnesses give them whether or not the engine has a use for them
_FOR_ENGINE = ("dtype", "image_format")  # passed to the engine, which may refuse them
_SPARSE = ("layer", "keep", "select_by", "selector", "selector_args")
_ABBREVIATIONS = {"transfer": "", "layer": "L", "select_by": ""}


@dataclass(frozen=True)
class Settings:
    """One way to answer questions.

    Attributes:
        name: what results are filed under: the preset, or the models and the way.
        spec: the strategy, as its signature describes it.
        arguments: the strategy's arguments, defaults filled in.
        models: role to model.  Speculative decoding has one, with its draft model among its arguments; the selector of
            a sparse transfer is a role too.
        engine: name of the engine that runs them.
        prompts: wordings.
        max_reasoning_tokens: limit on E and R answers.
        concurrency: questions in flight.
        raw: return the final text as generated instead of the bare answer.
        store: the call store's file, see `run.store`; None to store nothing (`store=off`).
        reuse: take calls that are in the store from there; False makes each anew, and stores it too.
        share_engines: take calls that another engine made, too.
    """

    name: str
    spec: StrategySpec
    arguments: Mapping[str, Any]
    models: Mapping[str, ModelSpec]
    engine: str = "transformers"
    prompts: Prompts = field(default_factory=load_prompts)
    max_reasoning_tokens: int = 2048
    concurrency: int = 64
    raw: bool = False
    store: Path | None = DEFAULT_STORE
    reuse: bool = True
    share_engines: bool = False

    @property
    def strategy(self) -> str:
        """The strategy's name."""
        return self.spec.name

    @property
    def way(self) -> Way:
        """How questions are asked."""
        return Way.of(self.strategy, self.arguments)

    def engine_of(self, role: str) -> str:
        """The engine that runs a role's model: attention for a selection comes from transformers alone."""
        return "transformers" if role == "selector" else self.engine

    def bind(self, agents: Mapping[str, Agent]) -> Strategy:
        """The strategy with its models and arguments."""
        return partial(self.spec.run, **agents, **self.arguments)

    @classmethod
    def from_args(cls, strategy: str, args: Mapping[str, Any]) -> Settings:
        """Check arguments, fill in a preset and defaults.

        Args:
            strategy: which one, unless `args` or its preset has another.
            args: as a user types them.

        Raises:
            ValueError: one line that names the argument and what it accepts.
        """
        given = {key: value for key, value in args.items() if value is not None}
        readers.refuse_api_keys(given)
        preset_name, asked = given.pop("preset", None), given.pop("strategy", None)
        preset = read_preset(str(preset_name)) if preset_name is not None else {}
        own = preset.pop("strategy", None)
        keeps = own is not None and own not in _OF_A_MODEL and strategy != "single"
        spec = strategy_spec(asked or (str(own) if keeps else strategy))
        named = needed_models(spec) & given.keys()
        if preset_name is None and not named and needed_models(spec) == {"small", "large"}:
            preset_name, preset = DEFAULT_PRESET, read_preset(DEFAULT_PRESET)
            own = preset.pop("strategy")
        if preset_name is not None:
            _check_preset(str(preset_name), preset, str(own), spec)
        for key in given:
            if key not in accepted(spec):
                hint = readers.did_you_mean(key, accepted(spec))
                raise ValueError(f"unknown argument {key!r}{hint}; arguments are: {', '.join(accepted(spec))}")
        engine, merged = _merged(preset, given)
        common = {name: argument.read(merged, name) for name, argument in ARGUMENTS.items() if name in merged}
        _check_support(spec, merged, engine)
        models = _read_models(spec, merged, common, engine)
        arguments = spec.read(merged)
        name = _name(None if named else preset_name, own, spec, Way.of(spec.name, arguments), models)
        return cls(
            name=name + _variant(spec, arguments, given, preset),
            spec=spec,
            arguments=arguments,
            models=_with_draft_model(models, engine) if spec.name == "speculative" else _with_layers(models, arguments),
            engine=engine,
            prompts=load_prompts(common.get("prompts")),
            concurrency=common.get("concurrency", ENGINES[engine].concurrency),
            **{key: common[key] for key in ("max_reasoning_tokens", "raw", "store", "reuse", "share_engines")
               if key in common},
        )  # fmt: skip


def _check_preset(name: str, preset: Mapping[str, Any], own: str, spec: StrategySpec) -> None:
    """A preset serves every strategy that has its roles: a pair's those of a pair."""
    allowed = accepted(strategy_spec(own))
    for key in preset:
        if key not in allowed:
            raise ValueError(f"preset {name!r}: unknown key {key!r}; expected some of: {', '.join(allowed)}")
    if not needed_models(spec) & preset.keys():
        meant = "mai_single" if own == "single" else "mai_cascade and mai_transfer"
        raise ValueError(f"preset {name!r} is for strategy {own}, not for {spec.name}: use it with {meant}")


def _merged(preset: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The engine, and what is given over what the preset has for it."""
    engine, preset_engine = (
        readers.one_of({"engine": args.get("engine", "transformers")}, "engine", tuple(ENGINES))
        for args in ({**preset, **given}, preset)
    )
    preset_args = readers.mapping(preset, "engine_args")
    if preset_args and set(preset_args) <= set(ENGINES):  # by engine
        preset_args = readers.mapping(preset_args, engine)
    elif engine != preset_engine:
        preset_args = {}
    if engine != preset_engine:
        preset = {key: value for key, value in preset.items() if not _is_for_engine(key, engine)}
    return engine, {**preset, **given, "engine_args": {**preset_args, **readers.mapping(given, "engine_args")}}


def _is_for_engine(key: str, other: str) -> bool:
    """Whether a preset's argument is meant for its own engine, and of no use to the `other` one that is asked for."""
    if key == "dtype":
        return not ENGINES[other].loads_weights
    return key.endswith(("_args", "base_url")) or key in _FOR_ENGINE


def _read_models(
    spec: StrategySpec, merged: Mapping[str, Any], common: Mapping[str, Any], engine: str
) -> dict[str, ModelSpec]:
    hints = {key: common[key] for key in _HINTS if key in common}
    shared = {**{key: common[key] for key in _FOR_ENGINE if key in common}, **common["engine_args"]}
    roles = model_roles(spec)
    if missing := [role for role in roles if role in needed_models(spec) and role not in merged]:
        wanted = " and ".join(f"{role}=MODEL" for role in roles if role in needed_models(spec))
        raise ValueError(f"argument {missing[0]!r} is missing: give {wanted}, or preset=NAME")
    models = {}
    for role in roles:
        own = readers.mapping(merged, f"{role}_args")
        if role not in merged:
            if f"{role}_args" in merged:
                raise ValueError(f"argument {role}_args needs {role}=MODEL")
            continue
        if role == "selector":  # runs in transformers, whatever the engine
            dtype = {"dtype": common["dtype"]} if "dtype" in common else {}
            models[role] = ModelSpec(readers.text(merged, role), {**dtype, **own}, hints)
            continue
        models[role] = ModelSpec(
            readers.text(merged, role), {**shared, **own, **_base_url(merged, role, engine)}, hints
        )
    return models


def _base_url(merged: Mapping[str, Any], role: str, engine: str) -> dict[str, str]:
    """The server of a role's model: needed by the engine `openai`, and of use to no other."""
    key = role_arguments(role)[2]
    if engine == "openai" and key not in merged:
        raise ValueError(
            f"argument {key!r} is missing: engine=openai needs {key}=URL, such as http://localhost:8000/v1"
        )
    if engine != "openai" and key in merged:
        raise ValueError(f"argument {key} needs engine=openai; the engine is {engine}")
    return {"base_url": parse_base_url(merged[key], key)} if key in merged else {}


def _name(preset: Any, own: str | None, spec: StrategySpec, way: Way, models: Mapping[str, ModelSpec]) -> str:
    """What results are filed under.  A user's strategy is named by its function."""
    plain = replace(way, style="R", two_stage=False, sparse=False) if spec.name == "mutual_verification" else way
    suffix = str(plain).rpartition(":")[2].replace("_", "-") if way.is_named else str(plain)
    if preset is None:
        return "+".join(model.short_name for role, model in models.items() if role != "selector") + f"-{suffix}"
    stem = Path(str(preset)).stem
    changed = spec.name != own or (spec.name == "single" and not stem.endswith(f"-{suffix}"))
    return f"{stem}-{suffix}" if changed else stem


def _variant(
    spec: StrategySpec, arguments: Mapping[str, Any], given: Mapping[str, Any], preset: Mapping[str, Any]
) -> str:
    """What tells results of other arguments from the default's, where the rest of the name does not."""
    parts = []
    for name, parameter in spec.parameters.items():
        told = name in ("prompt", "two_stage", "agreement") or name not in given
        usual = arguments[name] == (parameter.read(preset, name) if name in preset else parameter.default)
        if not told and not usual:
            parts.append(f"-{_ABBREVIATIONS.get(name, name)}{given[name]}")
    return "".join(parts)


def _check_support(spec: StrategySpec, merged: Mapping[str, Any], engine: str) -> None:
    """Refuse what the engine does not support, and arguments of a sparse transfer that is not asked for."""
    if spec.name == "speculative" and not ENGINES[engine].attention:
        raise ValueError(
            f"strategy=speculative is transformers' assisted generation, not supported with engine={engine}: "
            "choose engine=transformers"
        )
    if "selector" not in spec.roles:
        return
    if "transfer" in spec.parameters and merged.get("transfer") != "sparse":
        if useless := [key for key in _SPARSE if key in merged]:
            raise ValueError(f"argument {useless[0]} is for sparse transfer: add transfer=sparse")
    elif not ENGINES[engine].attention and "selector" not in merged:
        model = merged.get("large", "CHECKPOINT") if engine == "vllm" else "CHECKPOINT"
        raise ValueError(
            f"sparse transfer needs the large model's attention, which engine={engine} does not give: add "
            f"selector={model}, whose first layers are then loaded with transformers beside it; or engine=transformers"
        )


def _with_layers(models: Mapping[str, ModelSpec], arguments: Mapping[str, Any]) -> dict[str, ModelSpec]:
    """A selector needs no more layers than the one whose attention decides."""
    return {
        role: replace(model, args={**model.args, "first_layers": arguments["layer"]}) if role == "selector" else model
        for role, model in models.items()
    }


def _with_draft_model(models: Mapping[str, ModelSpec], engine: str) -> dict[str, ModelSpec]:
    """The large model with the small one as its draft model."""
    small, large = models["small"], models["large"]
    if engine == "scripted":
        return {"model": large}
    args = {**large.args, "assistant_model": small.source, "assistant_args": dict(small.args)}
    return {"model": replace(large, args=args)}
