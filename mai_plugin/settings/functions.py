"""Functions of the user's own, by file or module."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mai_plugin.core.agreement import AGREEMENTS, Agree


def load_function(name: str, what: str) -> Callable[..., Any]:
    """A function as `path/to/file.py:function` or `module:function` (the working directory is looked in too).

    Args:
        name: as the user typed it.
        what: what it is, for errors.

    Raises:
        ValueError: one line: no such file, module or function, or the file does not import.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ValueError(f"{what}; expected file.py:function or module:function")
    try:
        module = _from_file(Path(place).expanduser(), what) if place.endswith(".py") else _from_module(place)
    except ValueError:
        raise
    except Exception as error:  # the user's own code runs here
        raise ValueError(f"{what} cannot be imported: {type(error).__name__}: {_one_line(error)}") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ValueError(f"{what}: {place} has no function {attribute!r}")
    return found  # type: ignore[no-any-return]


def load_agreement(name: Any, what: str) -> Agree:
    """When two answers count as equal: `exact`, `relaxed`, or a function of one's own.

    Raises:
        ValueError: there is no such rule, or it does not take two answers and their kind.
    """
    if str(name) in AGREEMENTS:
        return AGREEMENTS[str(name)]
    if ":" not in str(name):
        raise ValueError(f"{what}; expected one of: {', '.join(AGREEMENTS)}, or your own as file.py:function")
    found = load_function(str(name), what)
    try:
        inspect.signature(found).bind("a", "b", "short")
    except TypeError as error:
        raise ValueError(f"{what} must take two answers and their kind: {error}") from error
    except ValueError:  # some functions written in C do not tell what they take
        pass
    return found


def function_name(function: Callable[..., Any]) -> str:
    """How a rule for agreement is recorded: its name, or `module:function`."""
    known = {rule: name for name, rule in AGREEMENTS.items()}
    module, name = (getattr(function, key, type(function).__name__) for key in ("__module__", "__qualname__"))
    return known.get(function) or f"{module}:{name}"


def _from_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:  # which console scripts do not look at
        sys.path.append(os.getcwd())
    return import_module(name)


def _from_file(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{what}: no such file {path}")
    # Two files of one name are two modules; the same file is imported once.
    name = f"{path.stem}_{sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
