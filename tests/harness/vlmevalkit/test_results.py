"""VLMEvalKit's files joined to stored runs: scores per question, and what is refused.  (The real kit: tests/harness.)"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.report_stores import TINY, Asked, add_run

from mai_plugin.harness.scores import ScoredRun, score
from mai_plugin.report.measures import measure
from mai_plugin.report.published import own_figures
from mai_plugin.report.related_runs import Results
from mai_plugin.report.tables import overview
from mai_plugin.run.store import Store
from mai_plugin.run.stored import load_runs

NAME = "tiny-large-S"
ANSWERS = ("12", "no", "7")
Row = Mapping[str, Any]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".xlsx":
        import pandas

        pandas.DataFrame(rows).to_excel(path, index=False)
        return
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys(), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


class Written:
    """A run in a store, and the kit's files of it."""

    def __init__(self, folder: Path, task: str, returned: Sequence[str]) -> None:
        self.folder, self.task = folder / "outputs" / NAME, task
        self.store = folder / "calls.sqlite"
        questions = {task: [Asked(returned=text) for text in returned]}
        add_run(Store(self.store), NAME, questions, harness="VLMEvalKit", results=self.folder)
        self.rows: list[dict[str, Any]] = [{"index": index, "prediction": text} for index, text in enumerate(returned)]

    def file(self, ending: str) -> Path:
        return self.folder / f"{NAME}_{self.task}{ending}"

    def write(
        self, scored: str, aggregates: Row | Sequence[Row], *columns: Row, ending: str = ".tsv", judge: str = ""
    ) -> None:
        """The predictions, what the scorer made of each (`scored` names the file), and the aggregates."""
        rows = [{**row, **own} for row, own in zip(self.rows, columns, strict=True)]
        write_table(self.file(ending), [{**row, "answer": row.get("answer", "")} for row in rows])
        write_table(self.file(f"_{scored}{ending}"), [{**row, "answer": row.get("answer", "")} for row in rows])
        many = [aggregates] if isinstance(aggregates, Mapping) else aggregates
        write_table(self.file("_score.csv" if scored == "auxmatch" else "_acc.csv"), many)
        self.status({"judge_model": judge, "status": "done"})

    def status(self, entry: Row) -> None:
        (self.folder / "status.json").write_text(json.dumps({"datasets": {self.task: entry}}))

    def score(self, *folders: Path) -> ScoredRun:
        return score(load_runs(self.store)[0], folders)


def chartqa(folder: Path, marks: Sequence[bool] = (True, False, True), overall: float = 200 / 3, **how: Any) -> Written:
    written = Written(folder, "ChartQA_TEST", ANSWERS)
    aggregates = {"test_human": 100.0, "test_augmented": 0.0, "Overall": overall}
    columns = [{"answer": "7", "eval_match": f"[{mark}]"} for mark in marks]
    written.write("results", aggregates, *columns, **how)
    return written


@pytest.mark.parametrize("ending", [".tsv", ".xlsx"])
def test_short_answers(tmp_path: Path, ending: str) -> None:
    written = chartqa(tmp_path, ending=ending)
    found = written.score().scores["ChartQA_TEST"]
    assert (found.metric, found.value, found.counted) == ("Overall", pytest.approx(200 / 3), 3)
    assert found.scores == {"0": 1.0, "1": 0.0, "2": 1.0}
    assert found.targets == {"0": "7", "1": "7", "2": "7"}
    assert written.score(tmp_path).scores["ChartQA_TEST"].file == written.file(ending)
    sample = written.score().run.samples["ChartQA_TEST/1"]
    assert sample.score == 0.0
    ((figure,), remarks) = own_figures(written.score())
    assert (figure.benchmark, figure.harness, figure.metric, figure.n, figure.full_n, remarks) == (
        "ChartQA", "VLMEvalKit", "relaxed accuracy", 3, 2500, [],
    )  # fmt: skip


def test_edit_distances_become_anls(tmp_path: Path) -> None:
    written = Written(tmp_path, "InfoVQA_VAL", ("12", "no", "7"))
    distances = [{"eval_match": match} for match in ("[0.9, 0.25]", "[0.51]", "[0.0, 1.0]")]
    written.write("results", {"Overall": 100 * 1.75 / 3}, *distances)
    assert written.score().scores["InfoVQA_VAL"].scores == {"0": 0.75, "1": 0.0, "2": 1.0}


def test_yes_and_no_make_f1(tmp_path: Path) -> None:
    """A row that is neither is wrong; one that belongs to two categories counts twice."""
    written = Written(tmp_path, "POPE", ("yes", "yes", "maybe", "no"))
    columns = [
        {"answer": answer, "extracted": extracted, "category": category}
        for answer, extracted, category in (
            ("Yes", "Yes", "random,popular"), ("No", "Yes", "random"), ("Yes", "Unknown", "random"), ("No", "No", "popular"),
        )
    ]  # fmt: skip
    f1 = 100 * 2 * 2 / (2 * 2 + 2)
    written.write("auxmatch", [{"split": "Overall", "Overall": f1, "acc": 60, "precision": 66, "recall": 66}], *columns)
    found = written.score().scores["POPE"]
    assert found.value == pytest.approx(f1)
    assert found.scores == {"0": 1.0, "1": 0.0, "2": 0.0, "3": 1.0}
    assert found.units == {"0": (4.0, 4.0), "1": (0.0, 1.0), "2": (0.0, 1.0), "3": (0.0, 0.0)}


def test_of_mmmu_the_validation_rows_count(tmp_path: Path) -> None:
    written = Written(tmp_path, "MMMU_DEV_VAL", ("A", "B", "C"))
    columns = [
        {"answer": "A", "hit": hit, "split": split} for hit, split in ((1, "validation"), (0, "validation"), (0, "dev"))
    ]
    aggregates = [{"split": "dev", "Overall": 0.0}, {"split": "validation", "Overall": 0.5}]
    written.write("exact_matching_result", aggregates, *columns, judge="exact_matching")
    found = written.score().scores["MMMU_DEV_VAL"]
    assert (found.value, found.counted, len(found.scores)) == (50.0, 2, 3)
    ((figure,), _) = own_figures(written.score())
    assert (figure.split, figure.n, figure.full_n) == ("val", 2, 900)
    table = overview(Results(measure([written.score()])))
    assert "MMMU_DEV_VAL: its headline score is over 2 of the 3 questions." in table.notes


def test_all_rotations_have_to_be_right(tmp_path: Path) -> None:
    written = Written(tmp_path, "MMBench_DEV_EN", ("A", "B", "C", "A"))
    written.rows = [
        {"index": index, "prediction": text} for index, text in ((0, "A"), (1, "B"), (1_000_000, "C"), (1_000_001, "A"))
    ]
    run = load_runs(written.store)[0]
    ids = {"0": "0", "1": "1", "2": "1000000", "3": "1000001"}
    samples = {
        f"MMBench_DEV_EN/{ids[sample.doc_id]}": replace(sample, question_id=f"MMBench_DEV_EN/{ids[sample.doc_id]}")
        for sample in run.samples.values()
    }
    run = replace(run, samples=samples)
    columns = [{"answer": answer, "split": "dev"} for answer in ("A", "B", "B", "A")]
    written.write("exact_matching_result", {"split": "dev", "Overall": 0.5}, *columns, judge="exact_matching")
    marked = [{**row, **own, "hit": hit} for row, own, hit in zip(written.rows[:2], columns[:2], (0, 1), strict=True)]
    write_table(written.file("_exact_matching_result.tsv"), marked)
    found = score(run).scores["MMBench_DEV_EN"]
    assert found.scores == {"0": 1.0, "1": 1.0, "1000000": 0.0, "1000001": 1.0}
    assert found.units == {"0": (0.0, 1.0), "1": (1.0, 1.0)}
    assert (found.value, found.counted) == (50.0, 4)


def test_the_marks_of_the_judge_that_was_used_are_taken(tmp_path: Path) -> None:
    written = Written(tmp_path, "RealWorldQA", ("A", "B", "C"))
    columns = [{"answer": "A", "hit": hit} for hit in (1, 0, 0)]
    written.write("openai_result", {"split": "none", "Overall": 1 / 3}, *columns, judge="chatgpt-0125")
    write_table(written.file("_exact_matching_result.tsv"), [{**row, "answer": "A", "hit": 0} for row in written.rows])
    assert written.score().scores["RealWorldQA"].value == pytest.approx(100 / 3)


def test_another_text_or_row_than_the_run_s_is_an_error(tmp_path: Path) -> None:
    written = chartqa(tmp_path)
    first, second, third = (
        {"index": str(index), "prediction": text, "answer": "7"} for index, text in enumerate(ANSWERS)
    )
    counts = "the kit has {} rows of ChartQA_TEST, the run 3; the first that only the {} has is "
    for rows, said in (
        (
            [first, {**second, "prediction": "yes"}, third],
            "row 1 of ChartQA_TEST: the kit has 'yes', the run returned 'no'",
        ),
        ([first, third], counts.format(2, "run") + "1"),
        ([first, second, third, {**third, "index": "3"}], counts.format(4, "kit") + "3"),
        ([first, second, third, third], "row 2 is in it twice"),
        ([{"index": "0", "guess": "12"}], "lacks the column index, prediction or answer"),
    ):
        write_table(written.file(".tsv"), rows)
        with pytest.raises(ValueError, match=said):
            written.score()


def test_texts_that_the_kit_loses_or_reads_as_numbers_are_the_run_s_all_the_same(tmp_path: Path) -> None:
    written = Written(tmp_path, "ChartQA_TEST", ("None", "07", "=45"))
    written.rows = [{"index": index, "prediction": text} for index, text in enumerate(("", "7", "=45"))]
    columns = [{"answer": "7", "eval_match": "[False]"}] * 3
    written.write("results", {"Overall": 0.0}, *columns)
    assert written.score().scores["ChartQA_TEST"].value == 0
    written.rows[2]["prediction"] = "0"  # what a spreadsheet makes of it: that is another answer
    written.write("results", {"Overall": 0.0}, *columns)
    with pytest.raises(ValueError, match="the kit has '0', the run returned '=45'"):
        written.score()


def test_marks_of_other_predictions_are_an_error(tmp_path: Path) -> None:
    written = chartqa(tmp_path)
    marks = written.file("_results.tsv")
    text = marks.read_text()
    marks.write_text(text.replace("\tno\t", "\tyes\t"))
    with pytest.raises(ValueError, match=r"_results.tsv is not made of the predictions in .*: row 1 differs"):
        written.score()
    marks.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"row 2 of .* is not in what VLMEvalKit's scorer wrote; evaluate again"):
        written.score()


def test_marks_that_do_not_make_the_aggregate_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"VLMEvalKit gives Overall 50.0000, its rows make 66.6667"):
        chartqa(tmp_path, overall=50.0).score()


def test_why_there_is_no_score(tmp_path: Path) -> None:
    written = chartqa(tmp_path)

    def why() -> str:
        return written.score().unscored["ChartQA_TEST"]

    written.status({"error_message": "1 of 3 questions\ncould not be answered"})
    assert why() == "VLMEvalKit gave no score: 1 of 3 questions could not be answered"
    written.status({"error_message": ""})
    assert why() == "VLMEvalKit gave no score: it failed"
    written.status({})
    written.file("_acc.csv").unlink()
    assert why() == f"VLMEvalKit has left no Overall in {NAME}_ChartQA_TEST_acc.csv"
    written.file("_results.tsv").unlink()
    assert "not evaluated, or other rules" in why()
    os.utime(written.file(".tsv"), (0, 0))
    assert why().startswith(f"no predictions of {NAME}_ChartQA_TEST in ")
    assert why().endswith("that are younger than the run")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    written = chartqa(tmp_path, ending=".xlsx")
    written.file(".xlsx").write_bytes(b"no spreadsheet")
    with pytest.raises(ValueError, match=r"ChartQA_TEST.xlsx cannot be read"):
        written.score()
    written = chartqa(tmp_path / "other")
    (written.folder / "status.json").write_text("{")
    with pytest.raises(ValueError, match=r"status.json cannot be read"):
        written.score()


def test_a_pair_is_scored_like_a_single_model(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "mine"
    store = Store(tmp_path / "calls.sqlite")
    questions = {"ChartQA_TEST": [Asked("transfer", "12"), Asked("agree-simple", "7")]}
    add_run(store, "mine", questions, harness="VLMEvalKit", results=folder, models=TINY, strategy="mutual_verification")
    rows = [
        {"index": index, "prediction": text, "answer": "7", "eval_match": f"[{text == '7'}]"}
        for index, text in enumerate(("12", "7"))
    ]
    for ending in (".tsv", "_results.tsv"):
        write_table(folder / f"mine_ChartQA_TEST{ending}", rows)
    write_table(folder / "mine_ChartQA_TEST_acc.csv", [{"Overall": 50.0}])
    assert score(load_runs(tmp_path / "calls.sqlite")[0]).scores["ChartQA_TEST"].value == 50.0
