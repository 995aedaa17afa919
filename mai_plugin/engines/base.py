"""The protocol that every engine meets, and how one is loaded by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from mai_plugin.core.records import Completion, Image, Message, Request
from mai_plugin.resources import SHIPPED_MODELS


@dataclass(frozen=True)
class EngineKind:
    """What has to be known of an engine before its module is imported, which may load torch or vllm.

    Attributes:
        path: `module:class`.
        concurrency: questions in flight by default: vLLM makes its batches of what is there.
        loads_weights: whether it loads a checkpoint, in some dtype.
        attention: whether it gives attention to select by, and takes a draft model.
        by_question: a script, unlike a model, answers by question and stage, whatever the messages are.
    """

    path: str
    concurrency: int = 64
    loads_weights: bool = False
    attention: bool = False
    by_question: bool = False


ENGINES = {
    "transformers": EngineKind(
        "mai_plugin.engines.transformers:TransformersEngine", loads_weights=True, attention=True
    ),
    "vllm": EngineKind("mai_plugin.engines.vllm:VLLMEngine", concurrency=256, loads_weights=True),
    "openai": EngineKind("mai_plugin.engines.openai:OpenAIEngine"),
    "scripted": EngineKind("mai_plugin.engines.scripted:ScriptedEngine", attention=True, by_question=True),
}
"""The engines by name."""


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


@dataclass(frozen=True)
class ModelSpec:
    """A model and the arguments that its engine is loaded with; `hints` are dropped where it takes no such one."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The folder or Hub name to load: shipped models are named without their path.

        Where a server has loaded it (`base_url`), its name there.
        """
        return self.name if "base_url" in self.args else str(SHIPPED_MODELS.get(self.name, self.name))

    @property
    def short_name(self) -> str:
        """The last part of the name."""
        return self.name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".json")


def load_engines(name: str, models: Mapping[str, ModelSpec]) -> dict[str, Engine]:
    """Load the models of a strategy, all resident together.

    An engine whose models compete for devices has a class method `share(models)`: it returns groups of role to more
    arguments.  Groups load one after the other, the models of a group side by side.

    Args:
        name: one of `ENGINES`.
        models: role to model.

    Raises:
        ValueError: as `load_engine`; what was loaded by then is closed.
    """
    share = getattr(_engine_class(name), "share", None)
    groups: list[dict[str, dict[str, Any]]] = share(models) if share else [{role: {}} for role in models]
    engines: dict[str, Engine] = {}

    def load(role: str, more: Mapping[str, Any]) -> None:
        model = models[role]
        engines[role] = load_engine(name, model.source, {**more, **model.args}, model.hints)

    try:
        for group in groups:
            if len(group) == 1:
                load(*next(iter(group.items())))
                continue
            with ThreadPoolExecutor(len(group)) as pool:
                loading = [pool.submit(load, role, more) for role, more in group.items()]
            for loaded in loading:
                loaded.result()
    except BaseException:
        close_engines(engines)
        raise
    return {role: engines[role] for role in models}


def close_engines(engines: Mapping[str, Engine]) -> None:
    """Close engines side by side: one with processes of its own takes seconds to end them."""
    if engines:
        with ThreadPoolExecutor(len(engines)) as pool:
            for closing in [pool.submit(engine.close) for engine in engines.values()]:
                closing.result()


def load_engine(name: str, model: str, args: Mapping[str, Any], hints: Mapping[str, Any] | None = None) -> Engine:
    """Load one model in an engine; the arguments are those of `ModelSpec`.

    Raises:
        ValueError: no such engine, an argument it does not take, or a model that cannot be loaded.
    """
    engine = _engine_class(name)
    parameters = inspect.signature(engine).parameters.values()
    accepted = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_more = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)  # and looks at them itself
    unknown = [key for key in args if key not in accepted]
    if unknown and not takes_more:
        raise ValueError(f"engine {name!r} takes no argument {unknown[0]!r}; it takes: {', '.join(accepted)}")
    useful = {key: value for key, value in (hints or {}).items() if key in accepted}
    try:
        loaded: Engine = engine(model, **{**useful, **args})
    except TypeError as error:
        raise ValueError(f"engine {name!r} cannot be loaded with {dict(args)}: {error}") from error
    return loaded


def hf_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as chat templates of transformers take them."""
    return [
        {
            "role": message.role,
            "content": [
                {"type": "image", "image": part.data} if isinstance(part, Image) else {"type": "text", "text": part}
                for part in message.content
            ],
        }
        for message in messages
    ]


def _engine_class(name: str) -> Any:
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; engines are: {', '.join(ENGINES)}")
    module, _, attribute = ENGINES[name].path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValueError(f"engine {name!r} needs {error.name}: pip install 'mai-plugin[{name}]'") from error
