"""Every figure of the tables, worked out by hand from small runs; and what stands where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.report_stores import TINY, Asked, add_run, demo_store, write_results

from mai_plugin.core.records import critical_path
from mai_plugin.output.table import Table
from mai_plugin.report.command import Report, make_report
from mai_plugin.run.store import Store
from mai_plugin.run.stored import load_runs


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("demo")
    demo_store(folder)
    return make_report(folder, [], [], None)


def table(report: Report, key: str) -> Table:
    return next(table for table in report.tables if table.key == key)


def rows(report: Report, key: str) -> list[dict[str, object]]:
    """Rows by column name."""
    found = table(report, key)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def row(report: Report, key: str, **wanted: str) -> dict[str, object]:
    (found,) = (row for row in rows(report, key) if wanted.items() <= row.items())
    return found


def report_of(tmp_path: Path, baseline: str | None = None, *names: str) -> Report:
    return make_report(tmp_path, names, [], baseline)


def test_overview(demo: Report) -> None:
    """24 agree at once (2 + 2 tokens), 8 after reasoning (34), 8 by transfer (36); 36 of 40 are right."""
    found = row(demo, "overview", run="MAI-tiny", benchmark="chartqa")
    tokens = 24 * 4 + 8 * 34 + 8 * 36
    assert found["output tokens"] == tokens
    assert found["small"] == 24 * 2 + 16 * 32
    assert found["large"] == 32 * 2 + 8 * 4
    assert found["tokens per question"] == tokens / 40
    assert found["tokens per right answer"] == tokens / 36
    assert (found["score"], found["metric"], found["n"]) == (90, "relaxed_overall", 40)
    assert any(note.startswith("TOY SCORES") for note in table(demo, "overview").notes)


def test_tables_5_6_and_7(demo: Report) -> None:
    tokens = row(demo, "output_tokens", model="mai-tiny-large", asked="R")
    assert (tokens["chartqa"], tokens["realworldqa"]) == (30, 30)
    assert row(demo, "scores", model="mai-tiny-large", asked="E")["realworldqa"] == 70
    assert [(line["model"], line["asked"]) for line in rows(demo, "scores")] == [
        (f"mai-tiny-{size}", asked) for size in ("large", "small") for asked in "SER"
    ]


def test_table_8(demo: Report) -> None:
    assert [(line["answering"], line["chartqa"]) for line in rows(demo, "transfer")] == [
        ("mai-tiny-small-R", 70),
        ("mai-tiny-large-S", 70),
        ("mai-tiny-large-R", 90),
        ("mai-tiny-large + mai-tiny-small-R", 90),
    ]


def test_table_10(demo: Report) -> None:
    assert table(demo, "cascade").rows[1] == (
        "MAI-tiny", "realworldqa", 40, 24, 0.6, 8, 0.2, 8, 0.2, 80, 40, 60, 60, 80, None, 90,
    )  # fmt: skip


def test_table_11(demo: Report) -> None:
    """18 s against 36 of full transfer, 60 of the large model's R and 4 of its S."""
    found = row(demo, "time", run="MAI-tiny")
    assert (found["total s"], found["s per question"]) == (18, 18 / 80)
    assert (found["full transfer"], found["large-R"], found["large-S"]) == (2, 60 / 18, 4 / 18)
    assert found["large-R-S2"] is None


def test_latency_is_the_critical_path(demo: Report) -> None:
    """S of both side by side: the large one's 0.1 s count; then R of the small one, 0.5 s; then 0.2 s."""
    found = {line["route"]: line["mean"] for line in rows(demo, "latency") if line["run"] == "MAI-tiny"}
    assert found == {
        "all": pytest.approx(0.6 * 0.1 + 0.2 * 0.6 + 0.2 * 0.8),
        "agree-simple": pytest.approx(0.1),
        "agree-reason": pytest.approx(0.6),
        "transfer": pytest.approx(0.8),
    }


def test_latency_of_both_stages_of_one_model(tmp_path: Path) -> None:
    add_run(Store(tmp_path / "calls.sqlite"), "two", {"chartqa": [Asked("R-S2")]})
    (run,) = load_runs(tmp_path)
    assert critical_path(run.samples["chartqa/0"].calls) == pytest.approx(1.2)


def pair_of_runs(tmp_path: Path, **how: object) -> Report:
    """A cascade, with something about it, beside large-S; both on two questions."""
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, "large-S", {"chartqa": [Asked(), Asked()]}, wall_s=20.0)
    questions = {"chartqa": [Asked("agree-simple"), Asked("transfer")]}
    add_run(store, "MAI", questions, strategy="mutual_verification", models=TINY, **how)  # type: ignore[arg-type]
    return report_of(tmp_path)


@pytest.mark.parametrize(
    ("how", "cell"),
    [
        ({}, 2.0),
        ({"reused": True}, "n/a (6 calls reused)"),
        ({"wall_s": None}, "n/a (not finished)"),
        ({"failed": ["chartqa/2"]}, "n/a (1 of 3 questions failed)"),
    ],
)
def test_speed_up_or_why_there_is_none(tmp_path: Path, how: dict, cell: object) -> None:
    assert row(pair_of_runs(tmp_path, **how), "time", run="MAI")["large-S"] == cell


@pytest.mark.parametrize(
    ("how", "questions", "cell"),
    [
        ({"reused": True}, 2, "n/a (there 2 calls reused)"),
        ({}, 3, "n/a (other questions)"),
        ({"engine": "vllm"}, 2, None),
        ({"models": {"model": "another/model"}}, 2, None),
    ],
)
def test_what_a_cascade_is_not_compared_with(tmp_path: Path, how: dict, questions: int, cell: object) -> None:
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, "large-S", {"chartqa": [Asked()] * questions}, **how)
    add_run(
        store, "MAI", {"chartqa": [Asked("agree-simple")] * 2}, strategy="mutual_verification", models=TINY
    )  # fmt: skip
    assert row(report_of(tmp_path), "time", run="MAI")["large-S"] == cell


def test_a_run_without_score_says_why(tmp_path: Path) -> None:
    report = pair_of_runs(tmp_path)
    assert row(report, "overview", run="MAI")["score"] == "not scored"
    assert "MAI on chartqa is not scored: lmms-eval was run without --output_path." in table(report, "overview").notes
    json = next(run for run in report.as_json()["runs"] if run["name"] == "MAI")
    assert (json["tasks"]["chartqa"]["score"], json["tasks"]["chartqa"]["tokens_per_correct"]) == (None, None)


def test_what_went_wrong_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    questions = {"chartqa": [Asked("R"), Asked("R", returned="")]}
    add_run(store, "cut", questions, finish_reason="length", failed=["chartqa/2"])
    found = row(report_of(tmp_path), "calls", run="cut")
    assert (found["failed questions"], found["no answer stated"], found["reasoning cut"], found["calls"]) == (
        1,
        1,
        2,
        2,
    )


def test_engines_side_by_side(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    for engine, wall_s in (("vllm", 2.0), ("transformers", 10.0)):
        add_run(store, "tiny-S", {"chartqa": [Asked()] * 4}, engine=engine, wall_s=wall_s, id=engine)
    report = report_of(tmp_path)
    assert [(line["engine"], line["s per question"], line["speed-up"]) for line in rows(report, "engines")] == [
        ("transformers", 2.5, 1),
        ("vllm", 0.5, 5),
    ]
    assert [line["run"] for line in rows(report, "overview")] == ["tiny-S (vllm)", "tiny-S (transformers)"]


def test_by_default_the_latest_of_every_name_and_task(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, "tiny-S", {"chartqa": [Asked()], "pope": [Asked()]}, id="1-old")
    add_run(store, "tiny-S", {"chartqa": [Asked()] * 2}, id="2-new")
    add_run(store, "tiny-S", {"chartqa": [Asked()] * 3}, id="3-newest")
    assert [run["id"] for run in report_of(tmp_path).as_json()["runs"]] == ["1-old", "3-newest"]
    assert {line["run"] for line in rows(report_of(tmp_path), "overview")} == {"1-old", "3-newest"}
    assert [run["id"] for run in report_of(tmp_path, None, "2-new").as_json()["runs"]] == ["2-new"]


def test_runs_of_one_name_on_different_tasks_share_a_row(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, "tiny-S", {"pope": [Asked()]}, id="first")
    add_run(store, "tiny-S", {"chartqa": [Asked("S")] * 2}, id="second")
    (found,) = rows(report_of(tmp_path), "output_tokens")
    assert (found["pope"], found["chartqa"]) == (2, 2)


def test_baseline(tmp_path: Path) -> None:
    """One of four questions is better: that tells nothing apart."""
    store = Store(tmp_path / "calls.sqlite")
    worse = [Asked(), Asked(returned="8", score=0.0), Asked(), Asked()]
    for name, questions in (("base", worse), ("better", [Asked()] * 4)):
        add_run(store, name, {"chartqa": questions}, results=tmp_path / "out")
        write_results(tmp_path / "out", name, {"chartqa": questions})
    report = report_of(tmp_path, "base", "better")
    (found,) = rows(report, "comparisons")
    assert (found["run"], found["difference"], found["p"]) == ("better", 25, 1.0)
    assert found["verdict (p < 0.05)"] == "not significant"
    assert report.as_json()["comparisons"][0]["verdict"] == "not significant"


def test_a_baseline_on_other_questions_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    for name, n in (("base", 2), ("more", 3)):
        add_run(store, name, {"chartqa": [Asked()] * n}, results=tmp_path / "out")
        write_results(tmp_path / "out", name, {"chartqa": [Asked()] * n})
    with pytest.raises(ValueError, match="more and baseline base cannot be compared on chartqa: 3 and 2 questions"):
        report_of(tmp_path, "base")


def test_a_baseline_that_is_not_scored_is_an_error(tmp_path: Path) -> None:
    add_run(Store(tmp_path / "calls.sqlite"), "base", {"chartqa": [Asked()]})
    with pytest.raises(ValueError, match="baseline base is not scored on chartqa: lmms-eval was run without"):
        report_of(tmp_path, "base")


def test_a_store_without_runs(tmp_path: Path) -> None:
    Store(tmp_path / "calls.sqlite")
    with pytest.raises(ValueError, match="holds no run with an answered question yet"):
        report_of(tmp_path)


def test_a_run_without_questions_is_named_or_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, "killed", {}, wall_s=None)
    add_run(store, "tiny-S", {"chartqa": [Asked()]})
    assert [run["id"] for run in report_of(tmp_path).as_json()["runs"]] == ["tiny-S"]
    with pytest.raises(ValueError, match="run killed has no answered question yet; leave it out"):
        report_of(tmp_path, None, "killed", "tiny-S")


def test_a_run_of_failures_only(tmp_path: Path) -> None:
    add_run(
        Store(tmp_path / "calls.sqlite"), "bad", {}, strategy="mutual_verification", models=TINY, failed=["chartqa/0"]
    )  # fmt: skip
    found = row(report_of(tmp_path), "cascade", cascade="bad")
    assert (found["n"], found["agree-simple"], found["agree-simple share"], found["MAI"]) == (1, 0, None, "not scored")


def test_the_latest_of_equal_baselines_stands_beside_the_cascade(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    for id, wall_s in (("1-S", 40.0), ("2-S", 20.0)):
        add_run(store, id, {"chartqa": [Asked()]}, wall_s=wall_s)
    add_run(store, "MAI", {"chartqa": [Asked("agree-simple")]}, strategy="mutual_verification", models=TINY)
    assert row(report_of(tmp_path), "time", run="MAI")["large-S"] == 2
