"""Reading one argument that was given: a checked value, or a ValueError of one line that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mai_plugin.core.text import did_you_mean as did_you_mean

_EXAMPLE = '{"dtype":"bfloat16"}'
_FLAGS = {"true": True, "false": False, "1": True, "0": False}


def refuse_api_keys(args: Mapping[str, Any]) -> None:
    """No API key among arguments: a harness writes them into its results.  The value is not repeated."""
    for key, value in args.items():
        if str(key).endswith("api_key") or (str(key).endswith("_args") and "api_key" in str(value)):
            raise ValueError(f"argument {key} holds an API key: give it as OPENAI_API_KEY in the environment instead")


def mapping(args: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A JSON object, given as one or as text; empty if it is not given."""
    value = args.get(key, {})
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"argument {key}={value!r} is not JSON ({error}); expected e.g. {_EXAMPLE}") from error
    if not isinstance(value, Mapping):
        raise ValueError(f"argument {key}={value!r} must be a JSON object such as {_EXAMPLE}")
    return dict(value)


def one_of(args: Mapping[str, Any], key: str, values: tuple[str, ...]) -> str:
    """One of some values."""
    value = str(args[key])
    if value not in values:
        raise ValueError(f"argument {key}={value!r}{did_you_mean(value, values)}; expected one of: {', '.join(values)}")
    return value


def text(args: Mapping[str, Any], key: str) -> str:
    """A name or a path."""
    value = args[key]
    if isinstance(value, int | float):  # a harness may have read a name of digits as a number
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"argument {key}={value!r} must be a name or a path")
    return value


def whole(args: Mapping[str, Any], key: str) -> int:
    """A whole number."""
    number: int | None
    try:
        number = int(args[key])
    except (TypeError, ValueError):
        number = None
    if number is None or str(number) != str(args[key]):
        raise ValueError(f"argument {key}={args[key]!r} must be a whole number")
    return number


def positive(args: Mapping[str, Any], key: str) -> int:
    """A whole number, at least 1."""
    try:
        number = whole(args, key)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"argument {key}={args[key]!r} must be a whole number, at least 1")
    return number


def number(args: Mapping[str, Any], key: str) -> float:
    """A number; infinity too, as a threshold that nothing reaches."""
    value = args[key]
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if found != found or isinstance(value, bool):
        raise ValueError(f"argument {key}={value!r} must be a number")
    return found


def flag(args: Mapping[str, Any], key: str) -> bool:
    """True or false, also as text."""
    value = args[key]
    if str(value).lower() not in _FLAGS:
        raise ValueError(f"argument {key}={value!r} must be true or false")
    return _FLAGS[str(value).lower()]


def checked(check: Callable[[Any], Any]) -> Callable[[Mapping[str, Any], str], Any]:
    """A reader from a function that takes the value and raises a ValueError which says what it must be."""

    def read(args: Mapping[str, Any], key: str) -> Any:
        try:
            return check(args[key])
        except ValueError as error:
            raise ValueError(f"argument {key}={args[key]!r} {error}") from error

    return read
