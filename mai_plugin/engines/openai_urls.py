"""The addresses of servers, as a user types them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

_EXAMPLE = "http://localhost:8000/v1"


def parse_base_urls(value: Any, name: str = "base_url") -> tuple[str, ...]:
    """One or several base URLs, checked.

    Args:
        value: a list, or a text with `,` or `;` between the URLs, in brackets or quotes or not.  lmms-eval splits
            `--model_args` at commas that stand free, so that `;`, brackets or quotes are for its command line.
        name: what the argument is called, for errors.

    Returns:
        The URLs, without a slash at the end.  One without a path gets `/v1`, where such servers have their API.

    Raises:
        ValueError: none is given, or one is no URL, or it holds a password or a key, which is not repeated.
    """
    if isinstance(value, str):
        text = value.strip().strip("\"'")
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1]
        value = text.replace(";", ",").split(",")
    if not isinstance(value, Iterable) or isinstance(value, dict) or not all(isinstance(url, str) for url in value):
        raise ValueError(f"argument {name} must be a URL such as {_EXAMPLE}, or several")
    urls = [url.strip().strip("\"'").rstrip("/") for url in value]
    urls = [_checked(url, name) for url in urls if url]
    if not urls:
        raise ValueError(f"argument {name} is empty: give a URL such as {_EXAMPLE}, or several")
    if len(set(urls)) < len(urls):
        raise ValueError(f"argument {name} names {max(urls, key=urls.count)} twice")
    return tuple(urls)


def _checked(url: str, name: str) -> str:
    if "@" in url or "?" in url or "#" in url:  # where passwords and keys stand: the value is not repeated
        raise ValueError(
            f"argument {name} holds a password, a query or a fragment: give plain URLs such as {_EXAMPLE}, "
            "and the key as OPENAI_API_KEY in the environment"
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
