"""What users and their files depend on, pinned: names, keys, columns, commands and arguments.

`pinned.json` was written before the package was regrouped.  An entry changes only together with the CHANGELOG.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.report_stores import demo_store
from typer.main import get_command

from mai_plugin.cli import app
from mai_plugin.report.command import make_report
from mai_plugin.run.store import Store
from mai_plugin.settings import Settings, preset_names

PINNED = json.loads((Path(__file__).parent / "pinned.json").read_text(encoding="utf-8"))
PAIR = {"small": "org/Small-2B", "large": "/models/Large-8B/"}


@pytest.mark.parametrize(("strategy", "args", "name"), PINNED["result_names"])
def test_result_names(strategy: Any, args: dict[str, Any], name: str) -> None:
    assert Settings.from_args(strategy, args).name == name


def test_presets() -> None:
    assert preset_names() == sorted(PINNED["presets"])


@pytest.mark.parametrize("name", PINNED["presets"])
def test_a_preset_loads_what_it_did(name: str) -> None:
    strategy, *rest = PINNED["presets"][name]
    settings = Settings.from_args(strategy, {"preset": name})
    models = {role: [model.name, dict(model.args)] for role, model in settings.models.items()}
    way = settings.way
    assert [models, way.style, way.two_stage] == rest


@pytest.mark.parametrize("strategy", PINNED["arguments"])
def test_arguments(strategy: Any) -> None:
    """Every argument that was accepted still is."""
    with pytest.raises(ValueError, match="arguments are: ") as caught:
        Settings.from_args(strategy, {"nonsense": 1})
    accepted = str(caught.value).partition("arguments are: ")[2].split(", ")
    assert set(PINNED["arguments"][strategy]) <= set(accepted)


def test_commands() -> None:
    """Every command and option that there was is still there."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    now = {name: sorted(o for p in c.params for o in (p.opts if p.opts else [p.name])) for name, c in commands.items()}
    for name, options in PINNED["commands"].items():
        assert set(options) <= set(now[name]), name


def test_the_stores_columns(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    rows = store._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = {name: [row[1] for row in store._connection.execute(f"PRAGMA table_info({name})")] for (name,) in rows}
    assert columns == PINNED["store"]


def test_the_reports_keys_and_columns(tmp_path: Path) -> None:
    demo_store(tmp_path).close()
    report = make_report(tmp_path, [], [], "tiny-large-R")
    found = shape(report.as_json() | {"tables": []})
    assert missing(PINNED["report"], found) == []
    assert {
        table.key: [re.sub(r"\s+", " ", column.name) for column in table.columns] for table in report.tables
    } == PINNED["tables"]


def shape(value: Any) -> Any:
    """Keys of objects, and the shape of a list's first element."""
    if isinstance(value, dict):
        return {str(key): shape(item) for key, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


def missing(wanted: Any, found: Any, place: str = "") -> list[str]:
    """The places in which something that was there is gone."""
    if isinstance(wanted, dict):
        gone = [] if isinstance(found, dict) else [place]
        for key, item in wanted.items():
            gone += missing(item, found[key], f"{place}/{key}") if key in (found or {}) else [f"{place}/{key}"]
        return gone
    if isinstance(wanted, list) and wanted:
        return missing(wanted[0], found[0], f"{place}[0]") if found else [place]
    return []
