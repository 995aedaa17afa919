"""Own scores beside others': what is compared, what is refused, what is flagged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from helpers.replay_stores import SHORT, record
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.core.ways import Way
from mai_plugin.harness.scores import ScoredRun, TaskScore
from mai_plugin.report.comparability import beside_paper, beside_reported, compare
from mai_plugin.report.compare import as_json, compare_runs, table
from mai_plugin.report.leaderboard import about, leaderboard_figures, read_leaderboard
from mai_plugin.report.published import Figure, System, own_figures, paper_figures, reported_figures, run_system
from mai_plugin.run.stored import load_runs

SMALL, LARGE = "Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-VL-8B-Instruct"
BOARD: dict[str, Any] = {
    "time": "20250917",
    "results": {
        "Qwen3-VL-8B": {"META": {"Method": ["Qwen3-VL-8B", "https://example.org"], "Parameters": "8B"}, "ChartQA_TEST": {"Overall": 86.0, "test_human": 80.0}, "POPE": {"Overall": 88.0}, "MMMU_VAL": {"Overall": "N/A"}},
        "Best-70B": {"META": {}, "ChartQA_TEST": {"Overall": 90.5}, "InfoVQA_TEST": {"Overall": 85.0}},
        "Other-7B": {"META": {}, "ChartQA_TEST": {"Overall": 70.0}, "Unknown_Set": {"Overall": 1.0}},
    },
}  # fmt: skip


def figure(**changes: Any) -> Figure:
    """An own figure: 8B in R-S2 on all of ChartQA, in lmms-eval."""
    own = Figure(System("Qwen3-VL", ("8B",), Way.parse("R-S2")), "ChartQA", 87.0, "relaxed accuracy", "test", "run", "lmms-eval", "rules", 2500, 2500)  # fmt: skip
    return replace(own, **changes)


def reported_figure(size: str, benchmark: str, source: str = "Qwen3-VL report") -> Figure:
    return next(
        f for f in reported_figures() if (f.system.sizes, f.benchmark, f.source) == ((size,), benchmark, source)
    )


def test_beside_the_paper() -> None:
    found = beside_paper(figure(), paper_figures())
    assert {(one.other.source.rpartition(", ")[2], one.other.value) for one in found} == {("table 7", 86.2), ("table 12", 85.52), ("table 12", 86.32)}  # fmt: skip
    assert all(not one.refused for one in found)
    first = next(one for one in found if one.other.value == 86.2)
    assert first.difference == pytest.approx(0.8)
    assert first.flags == ("the source names no harness",)


def test_ways_are_not_mixed() -> None:
    values = {way: {one.other.value for one in beside_paper(figure(system=System("Qwen3-VL", ("8B",), Way.parse(way))), paper_figures())} for way in ("S", "E", "R", "E-S2")}  # fmt: skip
    assert values == {"S": {84.72}, "E": set(), "R": {77.08, 77.68}, "E-S2": {87.68}}


def test_mai_beside_the_papers_conflicting_figures() -> None:
    mai = figure(system=System("Qwen3-VL", ("2B", "8B"), Way.parse("MAI")))
    assert {one.other.value for one in beside_paper(mai, paper_figures())} == {86.8, 86.52}
    assert not beside_paper(replace(mai, system=System("Qwen3-VL", ("2B", "4B"), Way.parse("MAI"))), paper_figures())


def test_infovqa_val_against_test_is_refused() -> None:
    own = figure(benchmark="InfoVQA", metric="ANLS", split="val", n=2801, full_n=2801)
    one = compare(own, reported_figure("8B", "InfoVQA"))
    assert one.difference is None
    assert one.refused == ("InfoVQA val against test",)
    (there,) = beside_paper(own, paper_figures())
    assert there.difference == pytest.approx(87.0 - 86.66)


def test_mmmu_across_harnesses_is_refused() -> None:
    own = figure(benchmark="MMMU", metric="accuracy", split="val", n=900, full_n=900)
    board = Figure(
        System(None, ("X",), None), "MMMU", 60.0, "accuracy", "val", "board", "VLMEvalKit", "rules or judge", 900, 900
    )
    one = compare(own, board)
    assert one.difference is None
    assert one.refused == ("lmms-eval against VLMEvalKit: they score the same answers differently",)
    assert compare(replace(own, harness="VLMEvalKit"), board).difference == 27.0


def test_vlmevalkit_beside_the_paper_is_refused() -> None:
    assert any(
        "lmms-eval's" in reason
        for one in beside_paper(figure(harness="VLMEvalKit"), paper_figures())
        for reason in one.refused
    )


def test_pope_accuracy_against_f1_is_refused() -> None:
    own = figure(benchmark="POPE", metric="accuracy", n=9000, full_n=9000)
    found = beside_paper(own, paper_figures())
    assert [one.refused for one in found] == [("accuracy against F1",)]
    assert (
        "F1 here; the source does not say"
        in compare(replace(own, metric="F1"), reported_figure("4B", "POPE", "independent rerun")).flags[0]
    )


def test_pope_of_the_two_harnesses_is_another_set() -> None:
    kit = figure(benchmark="POPE", metric="F1", n=5127, full_n=5127, harness="VLMEvalKit")
    assert any(
        "5,127 questions in the one, 9,000" in reason
        for one in beside_paper(kit, paper_figures())
        for reason in one.refused
    )


def test_mmbench_scorers_and_metric_are_flagged() -> None:
    own = figure(benchmark="MMBench", metric="circular accuracy", split="EN dev", n=4329, full_n=4329)
    (there,) = beside_paper(own, paper_figures())
    assert there.difference is not None
    assert any("circular accuracy here; the source does not say" in flag for flag in there.flags)
    judged = compare(own, replace(own, scorer="rules or judge"))
    assert judged.difference == 0
    assert judged.flags == ("scored by rules here, by rules or judge there",)
    assert "MMBench EN dev against EN" in compare(own, reported_figure("8B", "MMBench")).flags


def test_a_limited_run_is_flagged() -> None:
    assert all("50 of 2,500 questions" in one.flags for one in beside_paper(figure(n=50), paper_figures()))


def test_toys_are_refused() -> None:
    toy = figure(system=System(None, ("mai-tiny-small", "mai-tiny-large"), Way.parse("MAI"), toy=True), n=300)
    found = beside_paper(toy, paper_figures())
    assert {one.other.value for one in found} == {86.8, 86.52}
    assert all(one.difference is None and one.refused == ("toy model on toy data",) for one in found)
    assert not beside_reported(toy, reported_figures())


def test_reported_figures_come_with_their_settings() -> None:
    (one,) = beside_reported(figure(), reported_figures())
    assert one.difference == pytest.approx(87.0 - 89.6)
    assert any("sampled, long answers" in flag for flag in one.flags)
    both = beside_reported(figure(benchmark="RealWorldQA", metric="accuracy", system=System("Qwen3-VL", ("2B", "8B"), Way.parse("MAI")), n=765, full_n=765), reported_figures())  # fmt: skip
    assert {(one.other.system.sizes[0], one.other.source) for one in both} == {("2B", "Qwen3-VL report"), ("2B", "independent rerun"), ("8B", "Qwen3-VL report")}  # fmt: skip
    assert all("one model alone there" in one.flags for one in both)


def test_internvl_rows_do_not_say_their_stage() -> None:
    own = figure(system=System("InternVL3.5", ("8B",), Way.parse("R-S2")))
    (one,) = beside_paper(own, paper_figures())
    assert one.other.value == 83.8
    assert any("does not say whether with the two-stage" in flag for flag in one.flags)


def scored_run(path: Path, *, engine: str = "transformers", n: int = 3, task: str = "chartqa", metric: str = "relaxed_overall", strategy: str = "mutual_verification") -> ScoredRun:  # fmt: skip
    ids = [f"{task}/{i}" for i in range(n)]
    answers = {id: {"*": "7"} for id in ids}
    models = {"small": SMALL, "large": LARGE} if strategy != "single" else {"model": LARGE}
    record(path, "own", strategy, models, dict.fromkeys(models, answers), dict.fromkeys(ids, SHORT), engine=engine)
    run = load_runs(path)[-1]
    scores = {str(i): 1.0 for i in range(n)}
    return ScoredRun(run, {task: TaskScore(metric, 100.0, scores, {}, {}, path)}, {})


def test_figures_of_a_run(tmp_path: Path) -> None:
    own, remarks = own_figures(scored_run(tmp_path / "calls.sqlite"))
    assert not remarks
    assert own[0].system == System("Qwen3-VL", ("2B", "8B"), Way.parse("MAI"))
    assert (own[0].benchmark, own[0].n, own[0].full_n, own[0].value) == ("ChartQA", 3, 2500, 100.0)
    scripted = scored_run(tmp_path / "s" / "calls.sqlite", engine="scripted")
    assert run_system(scripted.run).toy


def test_the_way_of_a_single_run_and_of_our_tasks(tmp_path: Path) -> None:
    assert run_system(scored_run(tmp_path / "a" / "calls.sqlite", strategy="single").run).way == Way("single", "S")
    asked = scored_run(tmp_path / "b" / "calls.sqlite", strategy="single", task="chartqa_mai_r")
    assert run_system(asked.run).way == Way("single", "R")
    assert own_figures(asked)[0][0].benchmark == "ChartQA"


def test_other_tasks_metrics_and_unscored_runs_are_said(tmp_path: Path) -> None:
    other = scored_run(tmp_path / "a" / "calls.sqlite", task="docvqa_val", metric="anls")
    assert own_figures(other) == (
        [],
        ["own, docvqa_val (anls): not one of the benchmarks for which published figures are known"],
    )
    accuracy = scored_run(tmp_path / "b" / "calls.sqlite", task="pope", metric="pope_accuracy")
    assert own_figures(accuracy)[0] == []
    unscored = replace(other, scores={}, unscored={"chartqa": "no results"})
    assert own_figures(unscored) == ([], ["own, chartqa: not scored: no results"])


def test_a_run_beside_everybody(tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    file.write_text(json.dumps(BOARD))
    compared = compare_runs([scored_run(tmp_path / "calls.sqlite")], True, True, str(file))
    sources = [one.other.source for one in compared.pairs]
    assert any("table 10" in source for source in sources)
    assert "Qwen3-VL report" in sources
    board = [one for one in compared.pairs if one.other.source.startswith("leaderboard")]
    assert [one.other.system.sizes for one in board] == [("Qwen3-VL-8B",)]
    assert board[0].difference is None  # lmms-eval against VLMEvalKit
    rows = table(compared).rows
    assert rows[0][0] == "ChartQA"
    assert rows[1][0] == ""
    assert all("3 of 2,500 questions" in str(row[-1]) for row in rows if row[5] is not None)
    assert json.loads(json.dumps(as_json(compared)))["comparisons"][-1]["not_comparable"]


def test_leaderboard_figures() -> None:
    figures = leaderboard_figures(BOARD, "OpenVLM.json")
    assert {(f.system.sizes[0], f.benchmark, f.split, f.value) for f in figures} == {
        ("Qwen3-VL-8B", "ChartQA", "test", 86.0), ("Qwen3-VL-8B", "POPE", "test", 88.0),
        ("Best-70B", "ChartQA", "test", 90.5), ("Best-70B", "InfoVQA", "test", 85.0), ("Other-7B", "ChartQA", "test", 70.0),
    }  # fmt: skip
    assert {f.harness for f in figures} == {"VLMEvalKit"}
    assert {f.value for f in about(figures, LARGE)} == {86.0, 88.0}
    assert about(figures, SMALL) == []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/board.json": json.dumps(BOARD), "/page.json": "<html>moved</html>"}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write((body or "gone").encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_leaderboard_from_a_url(server: str) -> None:
    assert read_leaderboard(f"{server}/board.json") == BOARD


@pytest.mark.parametrize(
    ("source", "trouble"),
    [
        ("{server}/gone.json", "404"),
        ("{server}/page.json", "Expecting value"),
        ("http://127.0.0.1:1/board.json", "refused"),
        ("{folder}/nowhere.json", "No such file"),
        ("{folder}", "Is a directory"),
        ("{folder}/list.json", "not in OpenVLM's format"),
        ("{folder}/empty.json", "not in OpenVLM's format"),
        ("{folder}/flat.json", "none of its models has a benchmark that we know"),
        ("{folder}/bytes.json", "codec can't decode"),
    ],
)
def test_a_leaderboard_that_is_none(tmp_path: Path, server: str, source: str, trouble: str) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "empty.json").write_text('{"time": 1, "results": {}}')
    (tmp_path / "flat.json").write_text('{"results": {"model": {"ChartQA_TEST": 86.0}}}')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="leaderboard") as caught:
        read_leaderboard(source.format(server=server, folder=tmp_path))
    assert trouble in str(caught.value)
    assert "\n" not in str(caught.value)


def test_command(tmp_path: Path) -> None:
    scored_run(tmp_path / "calls.sqlite", engine="scripted")
    answer = CliRunner().invoke(app, ["compare", "--store", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert "own, chartqa: not scored: lmms-eval was run without --output_path" in answer.output


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        (["--store", "nowhere"], "no call store at nowhere"),
        (["nobody", "--store", "{}"], "no run is called 'nobody'"),
        (["--store", "{}", "--leaderboard", "{}/none.json"], "No such file"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, options: list[str], trouble: str) -> None:
    scored_run(tmp_path / "calls.sqlite")
    answer = CliRunner().invoke(app, ["compare", *(option.format(tmp_path) for option in options)])
    assert answer.exit_code == 1
    (line,) = answer.stderr.strip().splitlines()
    assert line.startswith("mai: ")
    assert trouble in line
