"""A strategy of the user's own over stored calls: the routes, answers and tokens of its live run."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.replay_stores import SHORT
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.core.records import Message, Outcome
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.replay.command import replay_store
from mai_plugin.run.runner import Item, Result
from mai_plugin.run.session import Session
from mai_plugin.run.summary import Summary
from mai_plugin.settings import Settings

CHAIN = f"{Path(__file__).parents[2] / 'examples' / 'strategies' / 'chain.py'}:chain"
MODELS = {"small": "org/s", "medium": "org/m", "large": "org/l"}
# small S, medium S, medium R, large after it: agree at once, confirmed by reasoning, transferred.
CASES = {"chartqa/0": ("7", "7", "7", "7"), "chartqa/1": ("5", "7", "7", "7"), "chartqa/2": ("5", "6", "8", "9")}


def run_chain(store: Path) -> tuple[list[Result], Summary]:
    scripts = {
        "small": {id: {"S": s} for id, (s, _, _, _) in CASES.items()},
        "medium": {id: {"S": m, "R": f"Bars.\nAnswer: {r}"} for id, (_, m, r, _) in CASES.items()},
        "large": {id: {"final": final} for id, (_, _, _, final) in CASES.items()},
    }
    args = {**MODELS, "strategy": CHAIN, "engine": "scripted", "store": str(store)}
    settings = Settings.from_args("mutual_verification", args)
    with Session(settings, {role: ScriptedEngine(script) for role, script in scripts.items()}) as session:
        messages = [Message("user", (SHORT,))]
        items = [Item(id, lambda id=id: session.question(id, messages, 16)) for id in CASES]  # type: ignore[misc]
        return session.run(items, progress=False)


def test_a_chain_of_three_models_replayed_is_its_live_run(tmp_path: Path) -> None:
    results, summary = run_chain(tmp_path)
    assert [result.route for result in results if isinstance(result, Outcome)] == [
        "agree-simple", "agree-reason", "transfer",
    ]  # fmt: skip
    (task,) = replay_store(tmp_path, strategy=CHAIN, latency="paper").tasks
    row = task.policies[-1] if task.policies[-1].policy == CHAIN else task.policies[-2]
    assert (row.policy, row.n, row.missing) == (CHAIN, 3, {})
    assert dict(row.routes) == summary.routes
    assert dict(row.usage) == summary.usage


def test_a_call_that_nobody_made_is_named(tmp_path: Path) -> None:
    run_chain(tmp_path)
    named = {"small": "m", "medium": "s", "large": "l"}  # the small model never reasoned
    (task,) = replay_store(tmp_path, strategy=CHAIN, models=named, latency="paper").tasks
    row = next(row for row in task.policies if row.policy == CHAIN)
    assert row.missing == {("medium", "R"): 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--strategy", "nowhere.py:f"], "no such file nowhere.py"),
        (["--strategy", CHAIN, "--model", "medium"], "--model 'medium' must be NAME=VALUE"),
        (["--strategy", "confident_small"], "needs argument 'threshold'"),
        (
            ["--strategy", "confident_small", "--strategy-args", "threshold=high"],
            "argument threshold='high' must be a number",
        ),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    run_chain(tmp_path)
    done = CliRunner().invoke(app, ["replay", str(tmp_path), *words])
    assert done.exit_code == 1
    assert message in done.output
    assert done.output.startswith("mai: ")
    assert done.output.count("\n") == 1
