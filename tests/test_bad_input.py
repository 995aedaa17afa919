"""Bad input at the command line: one line, exit code 1, and nothing lost."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.settings import Settings


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith("mai: ")
    assert done.output.count("\n") == 1
    return done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "vlm"], "did you mean 'vllm'"),
        (["--engine", "openai"], "is missing: engine=openai needs"),
        (["--small-base-url", "http://localhost:1"], "needs engine=openai"),
    ],
)
def test_a_wrong_argument_leaves_the_last_demo_alone(tmp_path: Path, words: list[str], message: str):
    kept = {name: tmp_path / name for name in ("summary.json", "demo.sqlite")}
    for path in kept.values():
        path.write_text(json.dumps("kept"))
    assert message in run("demo", "-n", "2", "--out", str(tmp_path), *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.sqlite", "summary.json"]


def test_a_demo_into_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert "File exists" in run("demo", "--out", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--latency", "paper", "--overhead", "inf"], "must be a number of seconds"),
        (["--small", "a", "--large", "a"], "a pair has two models"),
        (["--agreement", "os:getcwd"], "must take two answers and their kind"),
    ],
)
def test_replay(words: list[str], message: str):
    assert message in run("replay", "nowhere", *words)


@pytest.mark.parametrize("option", ["--tables", "--benchmarks"])
def test_reproduce_of_nothing(option: str):
    assert f"{option} names no" in run("reproduce", "--dry-run", option, "")


def same(a: str, b: str, kind: str) -> bool:
    return a == b


def test_an_agreement_must_take_what_it_is_given(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "own_agreement", sys.modules[__name__])
    args = {"preset": "MAI-tiny", "agreement": "own_agreement:same"}
    assert Settings.from_args("mutual_verification", args).arguments["agreement"] is same
    with pytest.raises(ValueError, match="must take two answers and their kind"):
        Settings.from_args("mutual_verification", {**args, "agreement": "os:getcwd"})
