"""The real lmms-eval command line, offline, under the official task names."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from helpers.offline import LIMIT, SCORES, SCRIPTED, Offline
from helpers.offline import cascade as cascade
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from mai_plugin.run.store import Store
from mai_plugin.run.stored import load_runs
from mai_plugin.tiny.datasets import BENCHMARKS

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lmms_eval")


@pytest.mark.parametrize("task", BENCHMARKS)
def test_scores_under_the_official_names(cascade: Offline, task: str) -> None:
    """Of every four documents one is wrong, see `offline`."""
    metric, full = SCORES[task]
    assert cascade.results("cascade")["results"][task][metric] == pytest.approx(0.75 * full)


@pytest.mark.parametrize("task", BENCHMARKS)
def test_answers_are_bare_and_in_order(cascade: Offline, task: str) -> None:
    samples = cascade.samples("cascade", task)
    answers = {sample["doc_id"]: sample["filtered_resps"] for sample in samples}
    for number, question in enumerate(cascade.questions[task][:LIMIT]):
        assert (answers[number] in ([question.answer], question.answer)) == (number % 4 != 3)


def test_token_counts_per_sample(cascade: Offline) -> None:
    counts = {sample["doc_id"]: sample["token_counts"][0] for sample in cascade.samples("cascade", "chartqa")}
    reasoning = len(["Looking", "at", "the", "bars.", "Answer:", "X"])
    assert {number: counts[number]["reasoning_tokens"] for number in range(4)} == {
        0: 0,
        1: reasoning,
        2: reasoning,
        3: 0,
    }
    assert counts[1]["output_tokens"] == reasoning + 2
    assert all(count["input_tokens"] > 0 for count in counts.values())


def test_routes_calls_and_tokens_in_the_throughput_table(cascade: Offline) -> None:
    numbers = cascade.results("cascade")["throughput"]
    n = LIMIT * len(BENCHMARKS)
    assert numbers["avg_share_agree-simple"] == pytest.approx(0.5)
    assert numbers["avg_share_agree-reason"] == pytest.approx(0.25)
    assert numbers["avg_share_transfer"] == pytest.approx(0.25)
    assert (numbers["avg_small_calls"], numbers["avg_large_calls"]) == (1.5 * n, 1.25 * n)
    usage = cascade.results("cascade")["usage"]
    assert usage["total"]["n_api_calls"] == 2.75 * n
    assert usage["total"]["output_tokens"] == numbers["total_gen_tokens"]
    assert set(usage["by_task"]) == set(BENCHMARKS)


def test_the_result_folder_is_named_after_pair_and_strategy(cascade: Offline) -> None:
    assert (cascade.folder / "cascade" / "small+large-MAI").is_dir()
    assert cascade.results("cascade")["model_name"] == "small+large-MAI"


def test_the_run_is_in_the_store_and_points_to_its_samples(cascade: Offline) -> None:
    (run,) = load_runs(cascade.folder / "cascade.sqlite", ["small+large-MAI"])
    assert (run.name, run.finished, run.reused_calls) == ("small+large-MAI", True, 0)
    assert sorted(run.tasks) == sorted(run.environment["tasks"]) == sorted(BENCHMARKS)
    assert run.environment["harness"] == "lmms-eval"
    assert {"lmms_eval", "torch", "transformers"} <= set(run.environment["packages"])
    results = Path(run.environment["results"])
    assert results == cascade.folder / "cascade" / "small+large-MAI"
    for task in BENCHMARKS:
        (found,) = results.glob(f"*_samples_{task}.jsonl")
        for sample in map(json.loads, found.read_text().splitlines()):
            kept = run.samples[f"{task}/{sample['doc_id']}"]
            assert sample["filtered_resps"] in (kept.returned, [kept.returned])
            assert kept.usage().output_tokens == sample["token_counts"][0]["output_tokens"]
    assert len(run.samples) == LIMIT * len(BENCHMARKS)


def in_process(
    offline: Offline,
    tasks: TaskManager,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    args: str,
    limit: int,
    **more: Any,
) -> dict[str, Any]:
    """One evaluation of ChartQA without a process of its own, which takes some 12 s to start."""
    monkeypatch.chdir(offline.folder)
    monkeypatch.setenv("HF_HOME", str(offline.folder / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", offline.folder / "cache" / "datasets")
    return simple_evaluate(  # type: ignore[no-any-return]
        model=model, model_args=args, tasks=["chartqa"], limit=limit, task_manager=tasks, **{"batch_size": 1, **more}
    )  # fmt: skip


def test_after_a_cascade_the_large_model_alone_costs_no_call(
    offline: Offline, tasks: TaskManager, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """With the tiny pair, on ChartQA; the same cascade again costs none either, and says so."""
    runs = {
        "mai": ("mai_cascade", "preset=MAI-tiny,max_reasoning_tokens=32"),
        "large": ("mai_single", "preset=tiny-large-S"),
        "again": ("mai_cascade", "preset=MAI-tiny,max_reasoning_tokens=32"),
    }
    found, lines = {}, {}
    for name, (model, args) in runs.items():
        said.clear()
        found[name] = in_process(
            offline, tasks, monkeypatch, model, f"{args},store=pair", 12, batch_size=4, log_samples=True
        )
        lines[name] = "".join(said)
    numbers = {name: results["throughput"] for name, results in found.items()}
    samples = {name: sorted(results["samples"]["chartqa"], key=by_document) for name, results in found.items()}
    assert numbers["mai"]["avg_reused_calls"] == 0
    assert "not a timing" not in lines["mai"]
    assert numbers["large"]["avg_reused_calls"] == numbers["large"]["avg_model_calls"] == 12
    assert numbers["large"]["total_gen_tokens"] == numbers["large"]["avg_speed"] == 0
    assert "12 calls came from the store, so this is not a timing" in lines["large"]
    assert numbers["again"]["avg_reused_calls"] == numbers["mai"]["avg_small_calls"] + numbers["mai"]["avg_large_calls"]
    assert found["again"]["results"] == found["mai"]["results"]
    assert len(samples["mai"]) == len(samples["again"]) == 12
    for key in ("filtered_resps", "token_counts"):
        assert [sample[key] for sample in samples["again"]] == [sample[key] for sample in samples["mai"]]


def by_document(sample: dict[str, Any]) -> int:
    return int(sample["doc_id"])


def test_a_killed_command_goes_on_where_it_was(cascade: Offline) -> None:
    """With answers that take their time: killed once, then left alone.  test_recorder kills a run more often."""
    script = {
        question: {stage: {"text": text, "e2e_s": 0.2} for stage, text in stages.items()}
        for question, stages in json.loads((cascade.folder / "large.json").read_text()).items()
        if question.startswith("chartqa/")
    }
    (cascade.folder / "slow.json").write_text(json.dumps(script))
    args = (
        "--model", "mai_single", "--model_args", "engine=scripted,model=slow.json,store=slow.db,concurrency=2",
        "--tasks", "chartqa", "--limit", "20", "--output_path",
    )  # fmt: skip
    file = cascade.folder / "slow.db"
    process = cascade.start(*args, "slow")
    while process.poll() is None and (not file.exists() or count_calls(file) < 9):
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not list((cascade.folder / "slow").rglob("*_results.json"))
    kept = count_calls(file)
    assert 9 <= kept < 20
    done = cascade.lmms_eval(*args, "slow")
    assert f"{kept} calls came from the store, so this is not a timing" in done.stdout
    assert count_calls(file) == 20
    assert cascade.results("slow")["throughput"]["avg_reused_calls"] == kept
    assert [run.finished for run in load_runs(file)] == [False, True]


def count_calls(file: Path) -> int:
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'calls'").fetchone():
            return 0
        keys = [key for (key,) in connection.execute("SELECT key FROM calls")]
    assert len(set(keys)) == len(keys)
    return len(keys)


@pytest.mark.parametrize("content", ["not a store", "another version"])
def test_a_store_that_cannot_be_used_is_one_line(
    offline: Offline, tasks: TaskManager, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    file = offline.folder / "bad.sqlite"
    file.unlink(missing_ok=True)
    if content == "not a store":
        file.write_text(content)
        message = f"mai: call store {file.name} is damaged or no call store; give another file (store=PATH)"
    else:
        Store(file).close()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("UPDATE meta SET value = '9'")
            connection.commit()
        message = f"mai: call store {file.name} has schema version 9, this package writes 2; give another file"
    with pytest.raises(SystemExit) as stop:
        in_process(offline, tasks, monkeypatch, "mai_cascade", f"{SCRIPTED},store=bad.sqlite", 1)
    assert message in str(stop.value)
    assert "\n" not in str(stop.value)


def test_two_ranks_under_torchrun(offline: Offline) -> None:
    """Five documents over two ranks: one rank gets a padding request, which must not count."""
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", f"{SCRIPTED},store=ranks", "--tasks", "chartqa,pope", "--limit", "5",
        "--output_path", "ranks", "--log_samples", launcher=TORCHRUN,
    )  # fmt: skip
    results = offline.results("ranks")["results"]
    assert results["chartqa"]["relaxed_overall,none"] == pytest.approx(0.8), done.stderr[-2000:]
    assert results["pope"]["pope_accuracy,none"] == pytest.approx(0.8)
    assert sorted(sample["doc_id"] for sample in offline.samples("ranks", "chartqa")) == list(range(5))
    # Routes and cost are those of both ranks: documents 0 and 4 agree, 1 reasons, 2 transfers, 3 agrees on a wrong answer.
    numbers = offline.results("ranks")["throughput"]
    assert numbers["avg_share_agree-simple"] == pytest.approx(0.6)
    assert (numbers["avg_small_calls"], numbers["avg_large_calls"]) == (14, 12)
    assert offline.results("ranks")["usage"]["total"]["n_api_calls"] == 26
    # One store, one run, which both ranks wrote.
    (run,) = load_runs(offline.folder / "ranks")
    assert (run.finished, run.environment["world_size"], run.reused_calls) == (True, 2, 0)
    assert sorted(run.samples) == sorted(f"{task}/{number}" for task in ("chartqa", "pope") for number in range(5))
    assert count_calls(offline.folder / "ranks" / "calls.sqlite") == 26


def test_a_failure_on_one_rank_lets_the_others_finish(offline: Offline) -> None:
    script = json.loads((offline.folder / "small.json").read_text())
    for number in range(0, 6, 2):  # rank 0 has the even documents and takes its time
        script[f"chartqa/{number}"]["S"] = {"text": script[f"chartqa/{number}"]["S"], "e2e_s": 3}
    script["chartqa/1"] = {"S": {"error": "boom"}}
    (offline.folder / "boom.json").write_text(json.dumps(script))
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", "engine=scripted,small=boom.json,large=large.json,store=kept",
        "--tasks", "chartqa", "--limit", "6", "--output_path", "boom", launcher=TORCHRUN,
    )  # fmt: skip
    assert done.returncode != 0
    assert "1 of 6 questions could not be answered, so there is no score; first: question chartqa/1" in done.stderr
    assert f"; the calls of all others are stored in {offline.folder / 'kept' / 'calls.sqlite'}" in done.stderr
    (run,) = load_runs(offline.folder / "kept")
    assert sorted(run.samples) == [f"chartqa/{number}" for number in range(6)]
    assert [name for name, sample in run.samples.items() if sample.error] == ["chartqa/1"]


def with_cut_image(offline: Offline, folder: Path, document: int, size: int) -> Offline:
    """The ChartQA data in a folder of its own, one of its images cut after some bytes."""
    for name in ("small.json", "large.json"):
        shutil.copy(offline.folder / name, folder / name)
    relative = Path("lmms-lab-encoder/ChartQA/data/test-00000-of-00001.parquet")
    (folder / relative).parent.mkdir(parents=True)
    table = pyarrow.parquet.read_table(offline.folder / relative)
    rows = table.to_pylist()
    rows[document]["image"]["bytes"] = rows[document]["image"]["bytes"][:size]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), folder / relative)
    return Offline(folder, offline.questions)


def test_an_image_that_does_not_decode(offline: Offline, tmp_path: Path) -> None:
    """That sample is named, the others finish, and the exit code tells, although lmms-eval's own would be 0."""
    done = with_cut_image(offline, tmp_path, document=2, size=10).lmms_eval(
        "--model", "mai_cascade", "--model_args", SCRIPTED, "--tasks", "chartqa", "--limit", "6", "--output_path", "out"
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert "question chartqa/2 could not be answered: " in done.stderr
    assert "mai: 1 of 6 questions could not be answered, so there is no score; first: question chartqa/2" in done.stderr
    assert "5 questions in" in done.stdout
    assert not list(tmp_path.rglob("*_results.json"))


def test_a_truncated_image_is_answered_as_lmms_eval_does_but_not_without_a_word(
    offline: Offline, tasks: TaskManager, monkeypatch: pytest.MonkeyPatch, said: list[str], tmp_path: Path
) -> None:
    cut = with_cut_image(offline, tmp_path, document=2, size=60)
    results = in_process(cut, tasks, monkeypatch, "mai_cascade", SCRIPTED, 4)
    assert "mai: 1 truncated images were filled up, as lmms-eval does; first: question chartqa/2" in "".join(said)
    assert results["results"]["chartqa"]["relaxed_overall,none"] == 0.75


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("preset=MAI-tinny", "mai: unknown preset 'MAI-tinny' (did you mean 'MAI-tiny'?)"),
        ("engine=vlm", "mai: argument engine='vlm' (did you mean 'vllm'?); expected one of: "),
        ("small=/no/such/model,large=/no/such/model", "mai: model '/no/such/model': no such folder"),
    ],
)
def test_wrong_arguments_are_one_line(
    offline: Offline, tasks: TaskManager, monkeypatch: pytest.MonkeyPatch, args: str, message: str
) -> None:
    """lmms-eval lets a `SystemExit` pass, whose text is all that is printed: see the image that does not decode."""
    with pytest.raises(SystemExit) as stop:
        in_process(offline, tasks, monkeypatch, "mai_cascade", args, 1)
    assert str(stop.value).startswith(message)
    assert "\n" not in str(stop.value)
