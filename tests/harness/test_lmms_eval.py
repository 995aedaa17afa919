"""The real lmms-eval command line, offline, under the official task names."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from offline import LIMIT, SCORES, Offline

from mai_plugin.tiny.datasets import BENCHMARKS

SCRIPTED = "engine=scripted,small=small.json,large=large.json"
TASKS = ",".join(BENCHMARKS)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lmms_eval")


@pytest.fixture(scope="module")
def cascade(offline: Offline) -> Offline:
    """One run of `mai_cascade` over all six tasks."""
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", SCRIPTED, "--tasks", TASKS, "--limit", str(LIMIT),
        "--output_path", "cascade", "--log_samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return offline


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


def test_two_ranks_under_torchrun(offline: Offline) -> None:
    """Five documents over two ranks: one rank gets a padding request, which must not count."""
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args", SCRIPTED, "--tasks", "chartqa,pope", "--limit", "5",
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
    lines = [
        json.loads(line)
        for path in (offline.folder / "kept").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sorted(line["question"] for line in lines if "route" in line) == [
        f"chartqa/{number}" for number in (0, 2, 3, 4, 5)
    ]


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
    assert "question chartqa/2 could not be answered: " in done.stderr
    assert "mai: 1 of 6 questions could not be answered, so there is no score; first: question chartqa/2" in done.stderr
    assert "5 questions in" in done.stdout
    assert not list(tmp_path.rglob("*_results.json"))


def test_a_truncated_image_is_answered_as_lmms_eval_does_but_not_without_a_word(
    offline: Offline, tmp_path: Path
) -> None:
    cut = with_cut_image(offline, tmp_path, document=2, size=60)
    done = cut.lmms_eval(
        "--model", "mai_cascade", "--model_args", SCRIPTED, "--tasks", "chartqa", "--limit", "4", "--output_path", "out"
    )  # fmt: skip
    assert "mai: 1 truncated images were filled up, as lmms-eval does; first: question chartqa/2" in done.stdout
    assert cut.results("out")["results"]["chartqa"]["relaxed_overall,none"] == 0.75


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("preset=MAI-tinny", "mai: unknown preset 'MAI-tinny' (did you mean 'MAI-tiny'?)"),
        ("engine=vlm", "mai: argument engine='vlm'; it may be: "),
        ("small=/no/such/model,large=/no/such/model", "mai: model '/no/such/model': no such folder"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_1(offline: Offline, args: str, message: str) -> None:
    done = offline.lmms_eval("--model", "mai_cascade", "--model_args", args, "--tasks", "chartqa", "--limit", "1")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
