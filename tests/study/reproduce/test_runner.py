"""A plan is run once: what is finished is left out, what failed or changed is not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers.pretended import Pretended, plan_of
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.harness.lmms_eval.command import Evaluation, EvaluationFailed
from mai_plugin.harness.scores import ScoredRun
from mai_plugin.study.reproduce import command as main
from mai_plugin.study.reproduce.plan import Plan, evaluation
from mai_plugin.study.reproduce.runner import finished_runs, run_plan

KEYS = ["2B-S", "2B-R", "8B-S", "2B+8B-transfer-R", "2B+8B-MAI"]


def table_10(out: Path, **options: object) -> Plan:
    return plan_of(out, **{"tables": "10", "benchmarks": "chartqa", **options})


def run(plan: Plan, pretended: Pretended) -> list[str]:
    """Keys of the runs that were run."""
    pretended.made.clear()
    run_plan(plan, lambda line: None)
    return list(pretended.made)


def test_what_is_finished_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path)
    pretended = Pretended(plan).install(monkeypatch)
    pretended.fails = {"8B-S"}
    said: list[str] = []
    done = run_plan(plan, said.append)
    assert pretended.made == KEYS  # one that fails does not stop the others
    assert [key for key, run in done.items() if isinstance(run, str)] == ["8B-S"]
    assert done["8B-S"] == "lmms-eval wrote no results (exit code 0): out of memory (log: somewhere)"
    assert any(line.startswith("[3/5] 8B-S: FAILED after") and "out of memory" in line for line in said)
    assert set(finished_runs(plan)) == set(KEYS) - {"8B-S"}
    pretended.fails = set()
    assert run(plan, pretended) == ["8B-S"]
    assert run(plan, pretended) == []


def test_more_tables_run_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(table_10(tmp_path), Pretended(table_10(tmp_path)).install(monkeypatch))
    more = table_10(tmp_path, tables="10,15")
    assert run(more, Pretended(more).install(monkeypatch)) == ["2B-R-S2"]


@pytest.mark.parametrize(
    "changed",
    [{"limit": 20}, {"engine": "vllm"}, {"max_reasoning_tokens": 512}, {"models": "2B=a/b,8B=c/d"}],
)
def test_other_settings_are_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    plan, other = table_10(tmp_path), table_10(tmp_path, **changed)
    run(plan, Pretended(plan).install(monkeypatch))
    assert finished_runs(other) == {}
    assert run(other, Pretended(other).install(monkeypatch)) == KEYS
    # And back again: the first ones are still there.
    assert run(plan, Pretended(plan).install(monkeypatch)) == []


def test_a_checkpoint_with_new_weights_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"first")
    plan = plan_of(tmp_path / "out", tables="7", benchmarks="chartqa", models=f"2B={checkpoint}")
    pretended = Pretended(plan).install(monkeypatch)
    assert run(plan, pretended) == ["2B-S", "2B-E-S2", "2B-R-S2"]
    assert run(plan, pretended) == []
    (checkpoint / "model.safetensors").write_bytes(b"second")
    assert len(run(plan, pretended)) == 3


def test_a_run_that_did_not_end_or_lost_its_results_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table_10(tmp_path)
    pretended = Pretended(plan).install(monkeypatch)
    run(plan, pretended)
    with closing(sqlite3.connect(plan.request.store)) as connection, connection:
        connection.execute("UPDATE runs SET finished_at = NULL, wall_s = NULL WHERE id LIKE '2B-R-%'")
    for file in evaluation(plan.request, plan.runs[2]).output.rglob("*_results.json"):
        file.unlink()
    assert run(plan, pretended) == ["2B-R", "8B-S"]


def test_results_that_do_not_fit_the_run_are_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path)
    pretended = Pretended(plan).install(monkeypatch)
    run(plan, pretended)
    (samples,) = evaluation(plan.request, plan.runs[0]).output.rglob("*_samples_chartqa.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    samples.write_text("".join(json.dumps({**line, "filtered_resps": "changed"}) + "\n" for line in lines))
    assert run(plan, pretended) == ["2B-S"]


def test_a_run_that_reports_success_but_is_not_in_the_store_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a disk that is full: lmms-eval scores, and the store could not keep it."""
    plan = table_10(tmp_path)
    monkeypatch.setattr(Evaluation, "run", lambda evaluation, log: evaluation.output)
    done = run_plan(plan, lambda line: None)
    assert all(isinstance(run, str) and run.startswith("there is no call store yet (log: ") for run in done.values())


def test_the_command_line_runs_reports_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path)
    pretended = Pretended(plan).install(monkeypatch)
    pretended.fails = {"2B-R"}
    args = ["reproduce", "--tables", "10", "--benchmarks", "chartqa", "--out", str(tmp_path)]
    failed = CliRunner().invoke(app, [*args, "--json", str(tmp_path / "r.json")])
    assert failed.exit_code == 1
    assert "1 of 5 runs failed; the same command runs them again:\n  2B-R: lmms-eval wrote no results" in failed.output
    found = json.loads((tmp_path / "r.json").read_text())
    assert list(found["failed"]) == ["2B-R"]
    assert [one["missing"] for one in found["figures"] if one["sizes"] == ["2B"] and one["way"] == "R"] == [
        "run 2B-R failed"
    ]
    assert sum(one["measured"] is not None for one in found["figures"]) == len(found["figures"]) - 1
    pretended.fails = set()
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0
    assert "[1/5] 2B-S: finished before" in done.output
    assert "[2/5] 2B-R: running; log: " in done.output
    assert pretended.made == [*KEYS, "2B-R"]
    again = CliRunner().invoke(app, args)
    assert again.output.count("finished before") == 5


def test_dry_run_lists_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path / "out")
    pretended = Pretended(plan).install(monkeypatch)
    args = ["reproduce", "--tables", "10", "--benchmarks", "chartqa", "--out", str(tmp_path / "out"), "--dry-run"]
    shown = CliRunner().invoke(app, [*args, "--json", str(tmp_path / "plan.json")])
    assert shown.exit_code == 0, shown.output
    assert not (tmp_path / "out").exists()
    assert pretended.made == []
    lines = shown.output.splitlines()
    commands = [line for line in lines if line.startswith("lmms-eval ")]
    assert commands[-1] == (
        "lmms-eval --model mai_cascade --model_args small=Qwen/Qwen3-VL-2B-Instruct,large=Qwen/Qwen3-VL-8B-Instruct,"
        f"max_reasoning_tokens=8192,store={tmp_path}/out/mai_runs/calls.sqlite --tasks chartqa --batch_size 16 "
        f"--output_path {tmp_path}/out/results/all/2B+8B-MAI --log_samples"
    )
    assert len(commands) == 5
    (row,) = [line.split() for line in lines if line.split()[1:2] == ["2B-R"] and "to" in line.split()]
    assert row == ["2", "2B-R", "10", "1", "2,500", "2.81", "to", "do"]  # 2,500 * (15.7 + 15.742 * 256.3) ms
    assert [one["run"] for one in json.loads((tmp_path / "plan.json").read_text())["plan"]] == KEYS
    run(plan, pretended)
    assert CliRunner().invoke(app, args).output.count("(finished)") == 5


def test_two_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path)
    Pretended(plan).install(monkeypatch)
    with main._alone(tmp_path), pytest.raises(ValueError, match="another `mai reproduce` works in"):
        main.reproduce(plan)
    assert main.reproduce(plan)[1] == {}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["reproduce", "--tables", "10", "--out", str(tmp_path / "file" / "out")])
    assert done.exit_code == 1
    assert "--out" in done.output
    assert "Traceback" not in done.output


def test_lmms_eval_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(EvaluationFailed, match=r"pip install 'mai-plugin\[lmms-eval\]'"):
        Evaluation("mai_single", "", ["chartqa"], 1, tmp_path / "results").run(tmp_path / "log")


def test_a_scored_run_is_what_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = table_10(tmp_path)
    Pretended(plan).install(monkeypatch)
    done = run_plan(plan, lambda line: None)
    assert all(isinstance(run, ScoredRun) and set(run.scores) == {"chartqa"} for run in done.values())
