"""Reading single arguments: each returns a checked value, or raises a ValueError of one line that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

_EXAMPLE = '{"dtype":"bfloat16"}'


def refuse_keys(args: Mapping[str, Any]) -> None:
    """No API key among arguments: a harness writes them into its results.  The value is not repeated."""
    for key, value in args.items():
        if str(key).endswith("api_key") or (str(key).endswith("_args") and "api_key" in str(value)):
            raise ValueError(f"argument {key} holds an API key: give it as OPENAI_API_KEY in the environment instead")


def mapping(args: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A JSON object, given as one or as text; empty by default."""
    value = args.get(key, {})
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"argument {key}={value!r} is not JSON ({error}); write it as {_EXAMPLE}") from error
    if not isinstance(value, Mapping):
        raise ValueError(f"argument {key}={value!r} must be a JSON object such as {_EXAMPLE}")
    return dict(value)


def one_of(args: Mapping[str, Any], key: str, values: tuple[str, ...], default: str) -> str:
    """One of some values."""
    value = str(args.get(key, default))
    if value not in values:
        raise ValueError(f"argument {key}={value!r}{did_you_mean(value, values)}; it may be: {', '.join(values)}")
    return value


def text(args: Mapping[str, Any], key: str) -> str:
    """A name or a path."""
    value = args[key]
    if isinstance(value, int | float):  # a harness may have read a name of digits as a number
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"argument {key}={value!r} must be a name or a path")
    return value


def positive(args: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number, at least 1."""
    value = args.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1 or str(number) != str(value):
        raise ValueError(f"argument {key}={value!r} must be a whole number, at least 1")
    return number


def flag(args: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false, also as text."""
    value = args.get(key, default)
    flags = {"true": True, "false": False, "1": True, "0": False}
    if str(value).lower() not in flags:
        raise ValueError(f"argument {key}={value!r} must be true or false")
    return flags[str(value).lower()]


def share(args: Mapping[str, Any], key: str, default: float) -> float:
    """A number above 0 and at most 1."""
    value = args.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= 1 or isinstance(value, bool):
        raise ValueError(f"argument {key}={value!r} must be a number above 0 and at most 1")
    return number


def layer(args: Mapping[str, Any], key: str, default: float) -> int | float:
    """A layer: its number, counted from 0, or, with a point in it, its share of the depth."""
    value = args.get(key, default)
    try:
        number = float(value) if "." in str(value) else int(str(value))
    except ValueError:
        number = -1
    if number < 0 or (isinstance(number, float) and number >= 1):
        raise ValueError(
            f"argument {key}={value!r} must be a layer's number, counted from 0, or a share of the depth such as 0.44"
        )
    return number


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """The known word that comes closest, as a question; nothing if none is close."""
    close = get_close_matches(word.casefold(), {name.casefold(): name for name in known}, 1)
    return f" (did you mean {next(name for name in known if name.casefold() == close[0])!r}?)" if close else ""
