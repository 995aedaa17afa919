"""The protocol that every engine meets, and how one is loaded by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Protocol

from mai_plugin.core.records import Completion, Request

# Name -> "module:class".  A module is imported when its engine is asked for, so that nobody pays for the others.
ENGINES = {
    "transformers": "mai_plugin.engines.transformers:TransformersEngine",
    "scripted": "mai_plugin.engines.scripted:ScriptedEngine",
}


class EngineError(RuntimeError):
    """A request that an engine cannot answer; the message names what is wrong with it."""


class Engine(Protocol):
    """Generates greedily, many requests at once.

    An engine is constructed as `Class(model, **args)`, which loads the model and may take minutes.  All calls of
    `generate` come from one event loop; batching them is the engine's affair.
    """

    async def generate(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            EngineError: the request cannot be answered (too long for the context, an image that does not decode).
        """
        ...

    def close(self) -> None:
        """Stop running work and free the model.  May be called twice."""
        ...


def load_engine(name: str, model: str, args: Mapping[str, Any], hints: Mapping[str, Any] | None = None) -> Engine:
    """Load a model in an engine.

    Args:
        name: one of `ENGINES`.
        model: a folder or a name on the Hub (for `scripted`, a script file).
        args: keyword arguments of the engine's class.
        hints: more of them, which give way to `args` and are dropped where the engine takes no such argument.

    Raises:
        ValueError: no such engine, an argument it does not take, or a model that cannot be loaded.
    """
    engine = _engine_class(name)
    accepted = [key for key in inspect.signature(engine).parameters if key != "model"]
    unknown = [key for key in args if key not in accepted]
    if unknown:
        raise ValueError(f"engine {name!r} takes no argument {unknown[0]!r}; it takes: {', '.join(accepted)}")
    useful = {key: value for key, value in (hints or {}).items() if key in accepted}
    try:
        loaded: Engine = engine(model, **{**useful, **args})
    except TypeError as error:
        raise ValueError(f"engine {name!r} cannot be loaded with {dict(args)}: {error}") from error
    return loaded


def _engine_class(name: str) -> Any:
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; engines are: {', '.join(ENGINES)}")
    module, _, attribute = ENGINES[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValueError(f"engine {name!r} needs {error.name}: pip install 'mai-plugin[{name}]'") from error
