"""How base URLs may be typed, and what is refused."""

from __future__ import annotations

import re

import pytest

from mai_plugin.engines.openai_urls import parse_base_url

A, B = "http://a:8000/v1", "http://b:8000/v1"


@pytest.mark.parametrize("typed", [f"{A},{B}", f"{A};{B}", f'["{A}","{B}"]', f"[{A}, {B}]", f'"{A},{B}"'])
def test_several_urls_are_refused_with_what_to_use_instead(typed: str) -> None:
    with pytest.raises(ValueError, match="one is accepted: that of a router such as vllm-router or LiteLLM") as error:
        parse_base_url(typed)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        (A, A),
        (f' "{A}/" ', A),
        ("http://a:8000", A),
        ("https://host/openai/v1beta/", "https://host/openai/v1beta"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        ("http://[::1]", "http://[::1]/v1"),
    ],
)
def test_v1_is_added_where_there_is_no_path(typed: str, url: str) -> None:
    assert parse_base_url(typed) == url


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "localhost:8000",
            "argument small_base_url: 'localhost:8000' is no URL; it must be one such as http://localhost:8000/v1",
        ),
        ("http://", "is no URL"),
        ("http://a:x/v1", "is no URL"),
        ("http://a b/v1", "is no URL"),
        ("http://[::1", "is no URL"),
        ("ftp://a/v1", "is no URL"),
        (f"{A}/chat/completions", "names an operation; give the part before it"),
        ("", "is empty: give a URL"),
        (' "" ', "is empty: give a URL"),
        (3, "must be one URL"),
        ({"a": A}, "must be one URL"),
        ([A, B], "must be one URL"),
    ],
)
def test_wrong_urls(typed: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        parse_base_url(typed, "small_base_url")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "typed", ["http://me:hunter2@a/v1", "http://a/v1?key=hunter2", "http://a/v1#hunter2", "me:hunter2@a"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(ValueError, match="holds a password, a query or a fragment: give a plain URL") as error:
        parse_base_url(f"{A},{typed}")
    assert "hunter2" not in str(error.value)
