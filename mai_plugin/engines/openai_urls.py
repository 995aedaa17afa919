"""The address of a server, as a user types it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

_EXAMPLE = "http://localhost:8000/v1"


def parse_base_url(value: Any, name: str = "base_url") -> str:
    """A base URL, checked.

    Args:
        value: as typed.
        name: what the argument is called, for errors.

    Returns:
        The URL without a slash at the end; `/v1`, where such servers have their API, is added to one without a path.

    Raises:
        ValueError: it is no URL, or several, or it holds a password or a key, which is not repeated.
    """
    if not isinstance(value, str):
        raise ValueError(f"argument {name} must be one URL such as {_EXAMPLE}")
    url = value.strip().strip("\"'").rstrip("/")
    if not url:
        raise ValueError(f"argument {name} is empty: give a URL such as {_EXAMPLE}")
    if "@" in url or "?" in url or "#" in url:  # these may hold passwords and keys: the value is not repeated
        raise ValueError(
            f"argument {name} holds a password, a query or a fragment: give a plain URL such as {_EXAMPLE}, "
            "and the key as OPENAI_API_KEY in the environment"
        )
    if "," in url or ";" in url:
        raise ValueError(
            f"argument {name}: {url!r} holds several URLs; one is accepted: that of a router such as vllm-router or "
            "LiteLLM in front of the servers"
        )
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not set(url) & set(" \t\n")
    except ValueError:  # a port that is no number, a bracket that does not close
        sound = False
    if not sound:
        raise ValueError(f"argument {name}: {url!r} is no URL; it must be one such as {_EXAMPLE}")
    if parts.path.endswith("/completions"):
        raise ValueError(f"argument {name}: {url} names an operation; give the part before it, such as {_EXAMPLE}")
    return url if parts.path else f"{url}/v1"
