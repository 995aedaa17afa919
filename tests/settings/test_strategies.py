"""Strategies of one's own: what their signature says, and one line for each that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from mai_plugin.settings import Settings
from mai_plugin.settings.strategies import strategy_spec

HEAD = """
from typing import Literal
from mai_plugin.core.agent import Agent
from mai_plugin.core.agreement import Agree, agree
"""


def write(folder: Path, source: str, name: str = "mine.py") -> str:
    (folder / name).write_text(HEAD + source)
    return f"{folder / name}:ask"


def test_a_signature_is_a_configuration(tmp_path: Path) -> None:
    name = write(
        tmp_path,
        "async def ask(question, small: Agent, judge: Agent | None = None, style: Literal['S', 'R'] = 'R', n: int = 3,\n"
        "              share: float = 0.5, check: bool = False, note: str | None = None, rule: Agree = agree): ...\n",
    )
    spec = strategy_spec(name)
    assert (spec.roles, spec.required_roles) == ({"small": True, "judge": False}, ["small"])
    assert list(spec.parameters) == ["style", "n", "share", "check", "note", "rule"]
    given = {"style": "S", "n": "4", "share": "1e-2", "check": "true", "note": "x", "rule": "relaxed"}
    settings = Settings.from_args("mutual_verification", {"strategy": name, "small": "a", **given})
    assert {**settings.arguments, "rule": None} == {
        "style": "S", "n": 4, "share": 0.01, "check": True, "note": "x", "rule": None,
    }  # fmt: skip
    assert settings.arguments["rule"]("100", "96", "short")
    assert list(settings.models) == ["small"]
    assert list(Settings.from_args("single", {"strategy": name, "small": "a", "judge": "b"}).models) == [
        "small",
        "judge",
    ]


def test_a_string_annotation_is_read_and_files_of_one_name_are_two(tmp_path: Path) -> None:
    for folder, parameter in (("one", "a"), ("two", "b")):
        (tmp_path / folder).mkdir()
        name = write(tmp_path / folder, f"async def ask(question, {parameter}: 'Agent'): ...\n")
        assert list(strategy_spec(name).roles) == [parameter]


SIGNATURES = [
    ("def ask(question, small: Agent): ...", "must be a coroutine function: async def ask"),
    ("async def ask(small: Agent): ...", "must take the question first"),
    ("async def ask(): ...", "must take the question first"),
    ("async def ask(question, n: int = 1): ...", "has no model: annotate a parameter with mai_plugin.Agent"),
    ("async def ask(question, small: Agent, x: list = ()): ...", "parameter 'x' is annotated list; expected Agent"),
    ("async def ask(question, small: Agent, x=1): ...", "parameter 'x' is not annotated; expected Agent"),
    ("async def ask(question, small: Agent, *rest): ...", r"parameter \*rest is not supported"),
    ("async def ask(question, small: Agent, **rest): ...", r"parameter \*\*rest is not supported"),
    ("async def ask(question, small: Agent, store: str = ''): ...", "'store' is an argument of every run"),
    ("async def ask(question, small: 'Agnet'): ...", "annotations cannot be read: NameError: name 'Agnet'"),
    ("async def ask(question, small: Agent, x: int | str = 1): ...", "parameter 'x' is annotated int | str; expected"),
    ("ask = 3", "has no function 'ask'"),
    ("async def ask(question, small: Agent):", "cannot be imported: .*SyntaxError|IndentationError"),
    ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
]


@pytest.mark.parametrize(("source", "message"), SIGNATURES)
def test_what_is_no_strategy_is_told_in_one_line(tmp_path: Path, source: str, message: str) -> None:
    name = write(tmp_path, source + "\n")
    with pytest.raises(ValueError, match=message) as error:
        Settings.from_args("mutual_verification", {"strategy": name, "small": "a"})
    assert "\n" not in str(error.value)
    assert name.rpartition(":")[0] in str(error.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "argument 'small' is missing: give small=MODEL and judge=MODEL, or preset=NAME"),
        ({"small": "a"}, "argument 'judge' is missing"),
        ({"small": "a", "judge": "b"}, "needs argument 'n': a whole number"),
        ({"small": "a", "judge": "b", "n": "many"}, "argument n='many' must be a whole number"),
        ({"small": "a", "judge": "b", "n": 1, "m": 2}, r"unknown argument 'm'.*; arguments are: small, small_args"),
        ({"small": "a", "judge": "b", "n": 1, "large": "c"}, "unknown argument 'large'"),
    ],
)
def test_what_it_is_given(tmp_path: Path, args: dict[str, object], message: str) -> None:
    name = write(tmp_path, "async def ask(question, small: Agent, judge: Agent, n: int): ...\n")
    with pytest.raises(ValueError, match=message) as error:
        Settings.from_args("mutual_verification", {"strategy": name, **args})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such.py:ask", "argument strategy='no/such.py:ask': no such file no/such.py"),
        ("mine.py", "argument strategy='mine.py'; expected one of: .*, or your own as file.py:function"),
        ("no_such_module:ask", "argument strategy='no_such_module:ask' cannot be imported: ModuleNotFoundError"),
        (":ask", "expected file.py:function"),
    ],
)
def test_what_is_not_found(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.from_args("mutual_verification", {"strategy": name, "small": "a", "large": "b"})


def test_an_agreement_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("def near(a, b, kind):\n    return a[0] == b[0]\n")
    args = {"preset": "MAI-tiny", "agreement": f"{tmp_path / 'rule.py'}:near"}
    assert Settings.from_args("mutual_verification", args).arguments["agreement"]("75", "70", "short")
    with pytest.raises(ValueError, match=r"argument agreement='.*rule.py:far': .*rule.py has no function 'far'"):
        Settings.from_args("mutual_verification", {**args, "agreement": f"{tmp_path / 'rule.py'}:far"})


@pytest.mark.parametrize("strategy", ["confident_large", "confident_small"])
def test_a_threshold_has_no_default(strategy: str) -> None:
    with pytest.raises(ValueError, match=f"strategy {strategy} needs argument 'threshold': a number"):
        Settings.from_args("mutual_verification", {"strategy": strategy, "preset": "MAI-tiny"})
    settings = Settings.from_args(
        "mutual_verification", {"strategy": strategy, "preset": "MAI-tiny", "threshold": "-0.5"}
    )
    assert settings.arguments == {"threshold": -0.5}
