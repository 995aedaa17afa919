"""Strategies of one's own: what their signatures may be, and one line for each that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mai_plugin.settings import Settings

HEAD = "from typing import Literal\nfrom mai_plugin import Agent, Agree, Outcome, Question, agree\n"


def load(folder: Path, signature: str, head: str = HEAD, **args: object) -> Settings:
    (folder / "mine.py").write_text(f"{head}{signature}: ...\n")
    return Settings.from_args("mutual_verification", {"strategy": f"{folder}/mine.py:f", **args})


def test_roles_and_arguments_come_from_the_signature(tmp_path: Path) -> None:
    signature = (
        "async def f(question: Question, a: Agent, b: Agent, c: Agent | None = None, *, n: int, share: float = 0.5, "
        "loud: bool = False, how: Literal['x', 'y'] = 'x', agreement: Agree = agree)"
    )
    args = {"a": "org/A", "b": "org/B", "b_args": '{"dtype":"float32"}', "n": "3", "loud": "true", "how": "y"}
    settings = load(tmp_path, signature, **args)
    assert {role: model.name for role, model in settings.models.items()} == {"a": "org/A", "b": "org/B"}
    assert settings.models["b"].args == {"dtype": "float32"}
    found = {name: value for name, value in settings.arguments.items() if name != "agreement"}
    assert found == {"n": 3, "share": 0.5, "loud": True, "how": "y"}
    assert settings.name.startswith("A+B-f")


def test_a_layer_of_ones_own_is_no_sparse_transfer(tmp_path: Path) -> None:
    """`layer` is an argument like any other where there is no selector."""
    assert load(tmp_path, "async def f(question: Question, a: Agent, layer: int = 1)", a="A").arguments == {"layer": 1}


@pytest.mark.parametrize(
    ("signature", "error"),
    [
        ("async def f(question, small, large)", "parameter 'small' is not annotated; expected Agent for a model"),
        ("async def f(question, small: Agent, weights: dict)", "parameter 'weights' is annotated dict; expected Agent"),
        ("def f(question, small: Agent)", "must be a coroutine function: async def f"),
        ("async def f(small: Agent)", "must take the question first"),
        ("async def f(question, n: int = 1)", "has no model: annotate a parameter with mai_plugin.Agent"),
        ("async def f(question, small: Agent, store: str)", "'store' is an argument of every run"),
        ("async def f(question, small: Agent, *more: Agent)", "name each model and argument"),
        ("async def f(question, small: Agent, selector: Agent)", "the role 'selector' is sparse transfer's"),
        ("async def f(question, small: Agent, n: int)", "needs argument 'n': a whole number"),
        ("async def f(question, small: Agent, large: Agent)", "argument 'large' is missing: give small=MODEL and large"),
        ("async def f(question, small: Agnet)", "its annotations cannot be read: NameError"),
        ("async def g(question, small: Agent)", "has no function 'f'"),
    ],
)  # fmt: skip
def test_a_signature_that_is_wrong(tmp_path: Path, signature: str, error: str) -> None:
    head = "from __future__ import annotations\n" + HEAD
    with pytest.raises(ValueError, match=error) as caught:
        load(tmp_path, signature, head, small="S")
    assert "\n" not in str(caught.value)
