"""Joining lmms-eval's scores to runs: what fits is joined, and whatever does not fit is an error."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.report_stores import Asked, add_run, write_results

from mai_plugin.harness.scores import ScoredRun, score
from mai_plugin.run.store import Store
from mai_plugin.run.stored import load_runs

QUESTIONS = {"chartqa": [Asked(), Asked(returned="8", score=0.0), Asked(returned="yes", score=1.0, target="yes")]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "calls.sqlite")


def scored(tmp_path: Path, *folders: Path) -> ScoredRun:
    return score(load_runs(tmp_path)[0], folders)


def edit_samples(folder: Path, **fields: object) -> None:
    """Change fields of document 1 in the samples file."""
    (file,) = folder.rglob("*_samples_chartqa.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1] |= fields
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_scores_are_joined_by_document(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS)
    found = scored(tmp_path)
    assert {id: sample.score for id, sample in found.run.samples.items()} == {
        "chartqa/0": 1.0,
        "chartqa/1": 0.0,
        "chartqa/2": 1.0,
    }
    task = found.scores["chartqa"]
    assert (task.metric, task.value) == ("relaxed_overall", pytest.approx(200 / 3))
    assert task.targets == {"0": "7", "1": "7", "2": "yes"}


def test_another_text_is_an_error_that_shows_both(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS)
    edit_samples(tmp_path, filtered_resps="9")
    with pytest.raises(ValueError, match=r"document 1 of chartqa: the harness has '9', the run returned '8'"):
        scored(tmp_path)


def test_the_text_before_the_harness_filters_counts(store: Store, tmp_path: Path) -> None:
    """With filters or --reasoning_tags the harness records what the model returned as `resps`."""
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS)
    edit_samples(tmp_path, filtered_resps="eight", resps=["8"])
    assert scored(tmp_path).scores["chartqa"].scores["1"] == 0.0
    edit_samples(tmp_path, filtered_resps="8", resps=["eight"])
    with pytest.raises(ValueError, match="the harness has 'eight', the run returned '8'"):
        scored(tmp_path)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (QUESTIONS["chartqa"][:2], "2 documents of chartqa, the run 3; the first that only the run has is 2"),
        (
            [*QUESTIONS["chartqa"], Asked()],
            "4 documents of chartqa, the run 3; the first that only the harness has is 3",
        ),
    ],
)
def test_other_documents_are_an_error(store: Store, tmp_path: Path, theirs: list[Asked], message: str) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", {"chartqa": theirs})
    with pytest.raises(ValueError, match=message):
        scored(tmp_path)


def test_a_document_twice_is_an_error(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS)
    edit_samples(tmp_path, doc_id=0)
    with pytest.raises(ValueError, match="document 0 of chartqa is in it twice"):
        scored(tmp_path)


def test_samples_that_do_not_make_up_the_aggregate_are_an_error(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS, aggregate=0.5)
    with pytest.raises(
        ValueError, match=r"chartqa: the harness gives relaxed_overall 50\.0000, its samples make 66\.6667"
    ):
        scored(tmp_path)


def test_of_several_results_the_newest_that_fits_is_taken(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    fits = write_results(tmp_path / "out", "tiny", QUESTIONS, date="20990101_000000")
    others = {"chartqa": [replace(question, returned="other") for question in QUESTIONS["chartqa"]]}
    newer = write_results(tmp_path / "out", "tiny", others, date="20990101_000001")
    os.utime(newer, (fits.stat().st_mtime + 10,) * 2)
    assert scored(tmp_path).scores["chartqa"].file.name == "20990101_000000_samples_chartqa.jsonl"


def test_results_older_than_the_run_are_not_taken(store: Store, tmp_path: Path) -> None:
    old = write_results(tmp_path / "out", "tiny", QUESTIONS)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    assert "that are younger than the run" in scored(tmp_path).unscored["chartqa"]


def test_results_of_another_run_and_other_json_files_are_not_taken(store: Store, tmp_path: Path) -> None:
    """The harness keeps files of the benchmarks' own beside its results, also called *_results.json."""
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "other", QUESTIONS)
    (tmp_path / "out" / "submissions").mkdir()
    (tmp_path / "out" / "submissions" / "mmbench_en_dev_results.json").write_text("no JSON")
    assert "no results of tiny on chartqa" in scored(tmp_path).unscored["chartqa"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({}, "lmms-eval was run without --output_path"),
        ({"harness": "other"}, "its harness is other, and only results of lmms-eval and VLMEvalKit are read"),
        ({"results": Path("/nowhere")}, "the folder /nowhere is gone: name it with --results"),
        ({"wall_s": None, "results": Path()}, "the run did not finish"),
        ({"failed": ["chartqa/3"], "results": Path()}, "1 of 4 questions could not be answered"),
    ],
)
def test_why_a_run_is_not_scored(store: Store, tmp_path: Path, how: dict, reason: str) -> None:
    add_run(store, "tiny", QUESTIONS, **how)
    found = scored(tmp_path)
    assert reason in found.unscored["chartqa"]
    assert all(sample.score is None for sample in found.run.samples.values())


def test_without_log_samples_a_run_is_not_scored(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS, samples=False)
    assert scored(tmp_path).unscored["chartqa"] == "lmms-eval was run without --log_samples"


def test_a_given_folder_goes_before_the_remembered_one(store: Store, tmp_path: Path) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "gone")
    write_results(tmp_path / "moved", "tiny", QUESTIONS)
    assert scored(tmp_path, tmp_path / "moved").scores["chartqa"].value == pytest.approx(200 / 3)
    with pytest.raises(ValueError, match="--results /nowhere: no such folder"):
        scored(tmp_path, Path("/nowhere"))


@pytest.mark.parametrize(("name", "damage"), [("samples_chartqa.jsonl", "{"), ("results.json", "{")])
def test_a_damaged_file_is_named(store: Store, tmp_path: Path, name: str, damage: str) -> None:
    add_run(store, "tiny", QUESTIONS, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", QUESTIONS)
    (file,) = (tmp_path / "out").rglob(f"*_{name}")
    file.write_text(damage)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        scored(tmp_path)
