"""`mai attention` at the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mai_plugin.cli import app


def run(*words):
    return CliRunner().invoke(app, ["attention", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "MAI-tyni"], "unknown preset 'MAI-tyni' (did you mean 'MAI-tiny'?)"),
        (["--preset", "tiny-small-S"], "is for strategy single"),
        (["--engine", "vllm"], "--engine vllm: attention weights require engine=transformers"),
        (["--small", "mai-tiny-small"], "argument 'large' is missing"),
        (["--keep", "0"], "--keep 0.0: must be above 0 and at most 1"),
        (["--keep", "1.5"], "--keep 1.5"),
        (["--keep", "nan"], "--keep nan"),
        (["--tasks", "chartqa", "--limit", "0"], "--limit 0: must be at least 1"),
        (["--charts", "0"], "--charts 0: must be at least 1"),
        (["--batch-size", "0"], "batch_size=0"),
        (["--engine-args", "{"], "engine_args='{' is not JSON"),
        (["--engine-args", '{"layers": 1}'], "takes no argument 'layers'"),
        (["--dtype", "int8"], "dtype 'int8' must be one of"),
        (["--large", "./nowhere", "--small", "mai-tiny-small"], "no such folder"),
        (["--json", "."], "--json .: is a folder"),
        (["--plots", "file"], "--plots file: "),
        (["--csv", "file"], "--csv file: "),
        (["--store", "file"], "call store file"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    done = run(*words)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    said = [line for line in done.output.splitlines() if not line.startswith("Loading weights")]
    assert message in said[-1]
    assert said[-1].startswith("mai: ")
    assert len([line for line in said if line.strip()]) == 1
    assert (tmp_path / "file").read_text() == "kept"


def test_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("--charts", "3", "--json", "a.json", "--keep", "0.5", "--plots", "pictures", "--store", "off")
    assert done.exit_code == 0, done.output
    assert "Share of the reasoning's tokens that hold 50% of its weight" in done.output
    assert "TOY: toy models" in done.output
    assert done.stdout.splitlines()[-1] == "pictures/attention_tokens.svg"
    content = json.loads((tmp_path / "a.json").read_text())
    assert (content["n"], content["keep"]) == (3, 0.5)
    assert not (tmp_path / "mai_runs").exists()


def test_a_terminal_that_is_gone_loses_no_file(tmp_path, monkeypatch):
    """Such as `mai attention --json a.json | head`."""

    def gone(tables):
        raise BrokenPipeError

    monkeypatch.setattr("mai_plugin.study.attention.command.to_terminal", gone)
    run("--charts", "2", "--json", str(tmp_path / "a.json"), "--csv", str(tmp_path / "csv"), "--store", "off")
    assert json.loads((tmp_path / "a.json").read_text())["n"] == 2
    assert (tmp_path / "csv").is_dir()
