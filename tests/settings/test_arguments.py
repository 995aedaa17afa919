"""`mai args` and README's table: every argument, each once, and on one screen's width."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.core.strategies import STRATEGIES
from mai_plugin.settings.arguments import accepted, argument_rows
from mai_plugin.settings.strategies import strategy_spec

README = Path(__file__).parent.parent.parent / "README.md"


def printed(*words: str) -> str:
    done = CliRunner().invoke(app, ["args", *words])
    assert done.exit_code == 0
    return done.stdout


def test_every_argument_is_there_once() -> None:
    names = [name for row in argument_rows() for name in re.findall(r"\w+", row[0])]
    assert len(names) == len(set(names))
    everything = {name for strategy in STRATEGIES for name in accepted(strategy_spec(strategy))}
    by_role = {name for name in everything if re.fullmatch(r"(?:selector|model|large)_(?:args|base_url)", name)}
    assert everything - by_role - set(names) == set()


def test_every_argument_of_a_built_in_strategy_has_a_meaning_of_its_own() -> None:
    parameters = {p.name: p.accepts for name in STRATEGIES for p in strategy_spec(name).parameters.values()}
    meanings = {name: meaning for name, _, _, meaning in argument_rows()}
    assert [name for name, accepts in parameters.items() if meanings[name] == accepts] == []


def test_the_table_fits_a_terminal() -> None:
    lines = printed().splitlines()
    assert len(lines) > 30
    assert max(map(len, lines)) <= 100


def test_readme_has_the_table_that_is_printed() -> None:
    assert printed("--markdown") in README.read_text(encoding="utf-8")
