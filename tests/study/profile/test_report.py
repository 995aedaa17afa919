"""Tables, the paper's figures beside them, and pictures."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.profiles import linear, model, pair, row

from mai_plugin.output.render import to_csv
from mai_plugin.output.table import Table
from mai_plugin.study.profile.beside_paper import compare_tables
from mai_plugin.study.profile.plots import pictures
from mai_plugin.study.profile.result import DECODING, VISION, Profile
from mai_plugin.study.profile.tables import csv_tables, describe, show, tables


def by_key(found: list[Table]) -> dict[str, Table]:
    return {table.key: table for table in found}


def lines(table: Table) -> list[tuple[object, ...]]:
    return [tuple(row) for row in table.rows]


def test_the_parts():
    found = by_key(tables(pair(), 4))
    assert list(found) == ["preprocessing", "vision_encoder", "ttft", "decoding", "batches", "fits", "break_even"]
    assert [column.name for column in found["ttft"].columns] == ["model", "256+64", "256+65"]
    assert lines(found["decoding"])[0] == (
        "Qwen3-VL-8B",
        "256/128",
        "220.0 (219.0-222.0)",
        "3,220 (3,219-3,222)",
        "6,420 (6,419-6,422)",
        "12,820 (12,819-12,822)",
    )


def test_batches_have_throughput():
    (one, four) = lines(by_key(tables(pair(), 4))["batches"])
    assert one == ("Qwen3-VL-2B", "256/128", 1, 30.0, 512, 5130.0, pytest.approx(512 / 5.13))
    assert four == ("Qwen3-VL-2B", "256/128", 4, 40.0, 512, 10260.0, pytest.approx(4 * 512 / 10.26))


def test_break_even_below_one_token_is_none():
    profile = Profile(
        pair().environment, [model("a"), model("b", parameters=9)], [*linear("a", 1, 1), *linear("b", 900, 1)]
    )
    assert lines(by_key(tables(profile, 4))["break_even"])[0][2] == 0


def test_printed_figures_stand_beside_the_points_that_the_paper_has():
    found = by_key(compare_tables(pair()))
    vision = found["paper_table2"]
    assert [column.name for column in vision.columns] == ["model", "ms", "256x256"]  # 300 pixels are not printed
    assert lines(vision)[3:] == [
        ("Qwen3-VL-2B", "measured", 12.0), ("Qwen3-VL-2B", "printed", 12.69), ("Qwen3-VL-2B", "ratio", "0.95"),
    ]  # fmt: skip
    assert [column.name for column in found["paper_table3"].columns] == ["model", "ms", "256+64"]
    decoding = found["paper_table4"]
    assert [column.name for column in decoding.columns][3:] == ["8", "128", "256", "512"]
    assert lines(decoding)[1] == ("Qwen3-VL-8B", "256/128", "printed", 178.5, 2651.51, 5282.48, 10517.45)
    assert "Some GPU in bfloat16" in vision.notes[0]


def test_a_batch_is_not_compared():
    profile = Profile(pair().environment, [model("Qwen3-VL-2B")], linear("Qwen3-VL-2B", 1, 1, batch=4))
    assert not any(table.rows for table in compare_tables(profile))


@pytest.mark.parametrize(("layers", "vision", "cut"), [(2, None, {3, 4}), (None, 2, {2, 3, 4}), (None, None, set())])
def test_a_cut_model_gets_no_ratio_but_for_preprocessing(layers: int | None, vision: int | None, cut: set[int]):
    found = by_key(compare_tables(pair(layers, vision)))
    for number in (1, 2, 3, 4):
        table = found[f"paper_table{number}"]
        ratios = {cell for line in lines(table) if "ratio" in line for cell in line[-1:]}
        assert (ratios == {"cut"}) == (number in cut), number
        assert any("no ratio" in note for note in table.notes) == (number in cut)


def test_a_model_that_is_only_named_like_one_is_not_compared():
    named = replace(model("my/Qwen3-VL-2B-toy"), all_layers=2, layers=2)
    profile = Profile(pair().environment, [named], [row(named.label, VISION, 1.0)])
    assert not any(table.rows for table in compare_tables(profile))


def test_other_models_are_not_compared(capsys: pytest.CaptureFixture[str]):
    profile = Profile(pair().environment, [model("mai-tiny-small")], [row("mai-tiny-small", VISION, 1.0)])
    show(profile, 4, compare=True)
    assert "Nothing beside the paper" in capsys.readouterr().out


def test_what_was_skipped_and_where_it_ran_is_shown(capsys: pytest.CaptureFixture[str]):
    show(pair(), 4)
    printed = capsys.readouterr().out
    assert "x: skipped, too large" in printed
    assert printed.startswith(describe(pair()))
    assert "on Some GPU, bfloat16, torch 2.13, transformers 5.19." in printed


def test_csv(tmp_path: Path):
    to_csv(csv_tables(pair(), 4), tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as stream:
        read = list(csv.DictReader(stream))
    assert len(read) == len(pair().rows)
    assert read[0]["median_ms"] == "2.0"
    to_csv(csv_tables(pair(), 4), tmp_path / "all")
    assert {"rows.csv", "decoding.csv", "paper_table4.csv"} <= {path.name for path in (tmp_path / "all").iterdir()}


def test_pictures(tmp_path: Path):
    assert [picture.name for picture in pictures(pair())] == ["parts", "decoding", "throughput"]
    files = [path for picture in pictures(pair()) for path in picture.save(tmp_path)]
    assert [path.name for path in files] == [
        "parts.png",
        "parts.svg",
        "decoding.png",
        "decoding.svg",
        "throughput.png",
        "throughput.svg",
    ]
    assert all(path.stat().st_size > 1000 for path in files)


def test_pictures_of_little(tmp_path: Path):
    """A picture for which nothing was measured is left out."""
    profile = Profile(pair().environment, [model("a")], [row("a", DECODING, 5.0, query=64, output=8)])
    assert pictures(profile) == []
