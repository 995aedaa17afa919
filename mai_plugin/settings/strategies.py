"""What a strategy's signature says: its roles, and its arguments with name, type and default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from mai_plugin.core.agent import Agent
from mai_plugin.core.agreement import Agree
from mai_plugin.core.strategies import STRATEGIES
from mai_plugin.settings import readers
from mai_plugin.settings.functions import load_agreement, load_function

Read = Callable[[Mapping[str, Any], str], Any]


@dataclass(frozen=True)
class Parameter:
    """An argument of a strategy: how it is read, and its default (`inspect.Parameter.empty` if it must be given)."""

    name: str
    read: Read = field(compare=False)
    default: Any
    accepts: str

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True)
class StrategySpec:
    """A strategy as its signature describes it.

    Attributes:
        name: as the user gives it: a key of `STRATEGIES`, `file.py:function` or `module:function`.
        run: the coroutine function.
        roles: parameters annotated `Agent`, role to whether a model must be given.
        parameters: the other ones, by name.
    """

    name: str
    run: Callable[..., Any]
    roles: Mapping[str, bool]
    parameters: Mapping[str, Parameter]

    @property
    def required_roles(self) -> list[str]:
        """Roles that need a model."""
        return [role for role, required in self.roles.items() if required]

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all parameters, from what a user typed.

        Raises:
            ValueError: one line that names the argument and what it accepts.
        """
        values = {}
        for parameter in self.parameters.values():
            if parameter.name in given:
                values[parameter.name] = parameter.read(given, parameter.name)
            elif parameter.required:
                raise ValueError(f"strategy {self.name} needs argument {parameter.name!r}: {parameter.accepts}")
            else:
                values[parameter.name] = parameter.default
        return values


def strategy_spec(name: str | Callable[..., Any]) -> StrategySpec:
    """A strategy by name: a built-in one, or a function of one's own as `file.py:function` or `module:function`.

    From Python also the function itself.

    Raises:
        ValueError: there is no such strategy, its file does not import, or its signature is none of a strategy.
    """
    if callable(name):
        return _described(getattr(name, "__name__", repr(name)), name)
    name = str(name)
    if name in STRATEGIES:
        return _described(name, STRATEGIES[name])
    if ":" not in name:
        known = tuple(STRATEGIES)
        raise ValueError(
            f"argument strategy={name!r}{readers.did_you_mean(name, known)}; expected one of: {', '.join(known)}, "
            "or your own as file.py:function"
        )
    return _described(name, load_function(name, f"argument strategy={name!r}"))


def _described(name: str, function: Callable[..., Any]) -> StrategySpec:
    what = f"strategy {name}"
    if not inspect.iscoroutinefunction(function):
        raise ValueError(f"{what} must be a coroutine function: async def {function.__name__}(question, small: Agent)")
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ValueError(f"{what}: its annotations cannot be read: {type(error).__name__}: {error}") from error
    taken = list(inspect.signature(function).parameters.values())
    if not taken or taken[0].name != "question":
        raise ValueError(f"{what} must take the question first, then its models (annotated Agent) and arguments")
    roles: dict[str, bool] = {}
    parameters: dict[str, Parameter] = {}
    for parameter in taken[1:]:
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(f"{what}: parameter {parameter} is not supported: name each model and argument")
        if hint is Agent or (_is_optional(hint) and Agent in get_args(hint)):
            roles[parameter.name] = parameter.default is parameter.empty
            continue
        if parameter.name in RESERVED:
            raise ValueError(f"{what}: {parameter.name!r} is an argument of every run: give its parameter another name")
        read = _reader(hint)
        if read is None:
            found = "not annotated" if hint is parameter.empty else f"annotated {inspect.formatannotation(hint)}"
            raise ValueError(
                f"{what}: parameter {parameter.name!r} is {found}; expected Agent for a model, or bool, int, float, "
                "str, a Literal or Agree for an argument"
            )
        parameters[parameter.name] = Parameter(parameter.name, read, parameter.default, _accepts(hint))
    if not any(roles.values()):
        raise ValueError(f"{what} has no model: annotate a parameter with mai_plugin.Agent")
    if "selector" in roles and "layer" not in parameters:
        raise ValueError(f"{what}: the role 'selector' is sparse transfer's: add layer: Layer, or give it another name")
    return StrategySpec(name, function, roles, parameters)


RESERVED: set[str] = set()
"""Names of the arguments that all strategies share; filled in by `arguments`."""


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def _reader(hint: Any) -> Read | None:
    """How a value of some type is read from what a user typed."""
    if hint == Agree:
        return lambda given, key: load_agreement(given[key], f"argument {key}={given[key]!r}")
    if get_origin(hint) is Annotated:
        check = next((extra for extra in hint.__metadata__ if callable(extra)), None)
        return readers.checked(check) if check else _reader(get_args(hint)[0])
    if get_origin(hint) is Literal:
        values = tuple(map(str, get_args(hint)))
        return lambda given, key: readers.one_of(given, key, values)
    if _is_optional(hint):
        (inner,) = (kind for kind in get_args(hint) if kind is not type(None))
        return _reader(inner)
    return {bool: readers.flag, int: readers.whole, float: readers.number, str: readers.text}.get(hint)


def _accepts(hint: Any) -> str:
    """What an argument accepts, in a few words."""
    if hint == Agree:
        return "exact, relaxed, or your own as file.py:function"
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is Annotated:
        return "a number"
    if _is_optional(hint):
        return _accepts(next(kind for kind in get_args(hint) if kind is not type(None)))
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}.get(hint, str(hint))
