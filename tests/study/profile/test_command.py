"""`mai profile` as it is typed."""

import json
import sys
from pathlib import Path

import pytest
from helpers.checkpoints import random_qwen3_vl
from typer.testing import CliRunner

from mai_plugin.cli import app

SMALL = [
    "--image-sides", "64", "--ttft-sides", "64", "--query-tokens", "8", "--decode-sides", "64", "--decode-query-tokens",
    "8", "--output-tokens", "2,6,12", "--batch-sizes", "1,2", "--repeats", "3", "--warmup", "1",
]  # fmt: skip


def test_everything_that_it_writes(tmp_path: Path):
    outputs = [
        "--json",
        str(tmp_path / "a" / "p.json"),
        "--csv",
        str(tmp_path / "p.csv"),
        "--plots",
        str(tmp_path / "plots"),
    ]
    done = CliRunner().invoke(app, ["profile", *SMALL, "--compare-paper", "--short-tokens", "2", *outputs])
    assert done.exit_code == 0, done.output
    for part in (
        "mai-tiny-small (0.5 M parameters, its weights)",
        "Time to first token, ms",
        "Break-even with a short answer of 2 tokens",
    ):
        assert part in done.output
    content = json.loads((tmp_path / "a" / "p.json").read_text())
    assert [model["label"] for model in content["models"]] == ["mai-tiny-small", "mai-tiny-large"]
    assert {row["part"] for row in content["rows"]} == {"preprocessing", "vision_encoder", "ttft", "decoding"}
    assert content["break_even"][0]["small"] == "mai-tiny-small"
    assert content["environment"]["versions"]["torch"]
    assert (tmp_path / "p.csv").read_text().startswith("model,part,image_side")
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"parts.png", "decoding.svg", "throughput.svg"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Qwen3-VL-2B"], "add --weights random"),
        (["no-such"], "no model or preset 'no-such'"),
        (["--weights", "none"], "--weights none: expected checkpoint or random"),
        (["--image-sides", "256,big"], "--image-sides 256,big: it must be whole numbers"),
        (["--query-tokens", "0"], "--query-tokens: it must be whole numbers, at least 1"),
        (["--repeats", "0"], "--repeats 0: it must be more than 0"),
        (["--max-seconds", "-1"], "--max-seconds -1.0: it must be more than 0"),
        (["--max-seconds", "nan"], "--max-seconds nan: it must be more than 0"),
        (["--time-limit", "nan"], "--time-limit nan: it must be more than 0"),
        (["--device", "cuda:99"], "--device cuda:99: expected cpu"),
        (["--dtype", "int8"], "--dtype int8: expected float32"),
        (["--layers", "0"], "--layers 0: it must be at least 1"),
        (["--json", "."], "--json .: "),
        (["--time-limit", "0.000001"], "share of --time-limit 1e-06 is used up"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str):
    done = CliRunner().invoke(app, ["profile", *SMALL, *words])
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith("mai: ")
    assert message in done.output
    assert done.output.count("\n") == 1


def test_an_output_that_cannot_be_written_is_found_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mai_plugin.study.profile.command.run", lambda *args: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    for option in ("--json", "--csv", "--plots"):
        done = CliRunner().invoke(app, ["profile", *SMALL, option, str(tmp_path / "file" / "below" / "x.csv")])
        assert f"mai: {option} " in done.output


@pytest.mark.parametrize(("missing", "extra"), [("matplotlib", "report"), ("transformers", "transformers")])
def test_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, extra: str):
    for name in list(sys.modules):
        if name in ("mai_plugin.study.profile.plots", "mai_plugin.report.plots") or name.partition(".")[0] == missing:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(app, ["profile", *SMALL, "--plots", str(tmp_path)])
    assert done.output.startswith("mai: ")
    assert f"pip install 'mai-plugin[{extra}]'" in done.output


def test_a_model_that_fails_later_leaves_the_others_results_and_exit_code_1(tmp_path: Path):
    damaged = random_qwen3_vl(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nonsense")
    done = CliRunner().invoke(
        app, ["profile", "mai-tiny-small", str(damaged), *SMALL, "--json", str(tmp_path / "p.json")]
    )
    assert done.exit_code == 1
    assert "could not be loaded" in done.output
    assert len(json.loads((tmp_path / "p.json").read_text())["rows"]) == 10


def test_a_terminal_that_is_gone_loses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def gone(*args: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("mai_plugin.study.profile.command.show", gone)
    CliRunner().invoke(app, ["profile", "mai-tiny-small", *SMALL, "--csv", str(tmp_path / "p.csv")])
    assert (tmp_path / "p.csv").read_text().startswith("model,part,image_side")
