"""Measured figures against those that the rules of `pretended` come to by hand, and what is said of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from helpers.pretended import N, Pretended, plan_of

from mai_plugin.study.reproduce.measured import Measured, Measurer, tables
from mai_plugin.study.reproduce.plan import Plan
from mai_plugin.study.reproduce.runner import run_plan


def measured(out: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Plan, list[Measured]]:
    plan = plan_of(out, **{"benchmarks": "chartqa", **options})
    Pretended(plan).install(monkeypatch)
    return plan, Measurer(plan, run_plan(plan, lambda line: None)).all()


def by_name(found: list[Measured]) -> dict[tuple[int, str, str, str], Measured]:
    return {
        (one.printed.table, "+".join(one.printed.sizes), str(one.printed.way), one.printed.what): one for one in found
    }


def test_scores_routes_and_the_second_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five questions: 0 and 3 agree at once (3 wrongly), 1 after R, 2 and 4 are transferred, 4 to a wrong answer."""
    _, found = measured(tmp_path, monkeypatch, tables="7,8,10,15")
    values = {name: one.value for name, one in by_name(found).items()}
    assert values[7, "2B", "S", "score"] == 20
    assert values[7, "2B", "R-S2", "score"] == 100
    assert values[8, "8B", "S", "score"] == 60
    assert values[10, "2B", "R", "score"] == 80
    assert values[10, "2B+8B", "transfer-R", "score"] == 80
    assert values[10, "2B+8B", "MAI", "score"] == 60
    routes = [values[10, "2B+8B", "MAI", route] for route in ("agree-simple", "agree-reason", "transfer")]
    assert routes == [40, 20, 40]
    # R(S2) lets number 4 agree, on the right answer.
    second = {what: values[15, "2B+8B", "MAI-R-S2", what] for what in ("agree-reason", "transfer", "score")}
    assert second == {"agree-reason": 40, "transfer": 20, "score": 80}


def test_differences_and_their_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wilson's interval for 24 of 40: centre 0.6 - 0.2 z^2 / (2 (n + z^2)) ..., worked out here by its formula."""
    _, found = measured(tmp_path, monkeypatch, tables="10")
    one = by_name(found)[10, "2B+8B", "MAI", "score"]
    z, share = 1.959964, 0.6
    centre = (share + z * z / (2 * N)) / (1 + z * z / N)
    half = z / (1 + z * z / N) * math.sqrt(share * (1 - share) / N + z * z / (4 * N * N))
    assert one.ci95 == pytest.approx((100 * (centre - half), 100 * (centre + half)), abs=1e-3)
    assert one.difference == pytest.approx(60 - 86.8)
    assert one.difference_ci95 == pytest.approx((100 * (centre - half) - 86.8, 100 * (centre + half) - 86.8), abs=1e-3)
    assert one.within is False
    assert "40 of 2,500 questions" in one.remarks
    assert "table 12 has 86.52" in one.remarks
    share_of = by_name(found)[10, "2B+8B", "MAI", "agree-reason"]
    assert share_of.printed.value == 7.8  # 195 of 2,500
    assert share_of.difference == pytest.approx(20 - 7.8)
    assert share_of.difference_ci95 is not None


def test_tokens_are_means_with_students_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R has 30, 31 or 32 tokens: 14, 13 and 13 of the 40 questions."""
    _, found = measured(tmp_path, monkeypatch, tables="5")
    one = by_name(found)[5, "2B", "R", "output tokens"]
    mean = (14 * 30 + 13 * 31 + 13 * 32) / 40
    variance = (14 * (30 - mean) ** 2 + 13 * (31 - mean) ** 2 + 13 * (32 - mean) ** 2) / 39
    half = 2.022691 * math.sqrt(variance / 40)  # Student's t, 39 degrees of freedom
    assert one.value == pytest.approx(mean)
    assert one.ci95 == pytest.approx((mean - half, mean + half), abs=1e-4)
    assert one.difference == pytest.approx(mean - 256.3)
    constant = by_name(found)[5, "2B", "S", "output tokens"]
    assert (constant.value, constant.ci95, constant.difference_ci95) == (2, None, None)


def test_tokens_that_sparse_transfer_hands_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 or 13, by turns."""
    _, found = measured(tmp_path, monkeypatch, tables="9", benchmarks="pope")
    one = by_name(found)[9, "2B+8B", "sparse-transfer-R-L16", "tokens transferred"]
    half = 2.022691 * math.sqrt(40 * 0.25 / 39 / 40)
    assert (one.value, one.printed.value) == (12.5, 121.1)
    assert one.ci95 == pytest.approx((12.5 - half, 12.5 + half), abs=1e-4)


def test_times_come_from_runs_that_reused_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pretended runs take 10 (S), 60 (R), 50 (transfer) and 20 (MAI) seconds."""
    _, found = measured(tmp_path, monkeypatch, tables="11,10")
    values = {(str(one.printed.way), one.printed.what): one for one in found if one.printed.table == 11}
    assert values["MAI", "total s"].value == 20
    assert values["MAI", "total s"].difference is None
    assert values["MAI", "total s"].refused == ("seconds of another machine",)
    assert values["MAI", "speed-up against full transfer"].value == 2.5
    assert values["MAI", "speed-up against full transfer"].difference == pytest.approx(2.5 - 2.6)
    assert values["MAI", "speed-up against large-R"].value == 3
    assert values["MAI", "speed-up against large-S"].value == 0.5
    assert values["MAI", "speed-up against large-S"].difference is None
    assert by_name(found)[10, "2B+8B", "MAI", "score"].value == 60


def test_toys_are_named_and_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, found = measured(tmp_path, monkeypatch, tables="5,10", models="2B=mai-tiny-small,8B=mai-tiny-large")
    assert all(one.difference is None and "toy model on toy data" in one.refused for one in found)
    assert {one.models for one in found} == {"mai-tiny-small", "mai-tiny-large", "mai-tiny-small + mai-tiny-large"}
    made = tables(plan, found)
    assert [table.key for table in made] == ["table5", "table10"]
    assert any(note.startswith("TOY SCORES") for note in made[-1].notes)
    assert any(note.startswith("4B: no model given") for note in made[-1].notes)
    assert not any("lie within" in note for table in made for note in table.notes)
    assert all(row[-1].startswith("not comparable: toy model on toy data") for table in made for row in table.rows)


def test_other_checkpoints_are_compared_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = measured(tmp_path, monkeypatch, tables="7", models="8B=org/tuned-8B")
    assert {one.models for one in found} == {"tuned-8B"}
    for one in found:
        assert "org/tuned-8B is not the paper's 8B" in one.remarks
        assert one.difference is not None


def test_what_all_rows_have_in_common_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, found = measured(tmp_path, monkeypatch, tables="7")
    (table,) = tables(plan, found)
    assert "All rows: the source names no harness." in table.notes
    assert "All rows: 40 of 2,500 questions." in table.notes
    assert not any("no harness" in str(cell) for row in table.rows for cell in row)
    assert any(
        note.endswith("printed figures lie within the 95 % interval of the measured one.") for note in table.notes
    )


def test_a_failed_run_leaves_its_figures_out_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path, tables="10,15", benchmarks="chartqa")
    pretended = Pretended(plan).install(monkeypatch)
    pretended.fails = {"2B-R-S2"}
    found = by_name(Measurer(plan, run_plan(plan, lambda line: None)).all())
    assert found[15, "2B+8B", "MAI-R-S2", "score"].value == "run 2B-R-S2 failed"
    assert found[15, "2B+8B", "MAI", "score"].value == 60
