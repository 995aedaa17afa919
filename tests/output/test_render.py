"""Tables on a terminal: as wide as it is, no word broken, no column without a value."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mai_plugin.output.render import to_terminal
from mai_plugin.output.table import COUNT, Column, Table

NAMES = (
    "run",
    "benchmark",
    "n",
    "score",
    "95 % interval",
    "nothing",
    "output tokens",
    "small",
    "large",
    "per question",
)
COLUMNS = tuple(Column(name, ",.1f" if name not in ("run", "benchmark", "95 % interval") else "") for name in NAMES)
ROW = (
    "MAI-Qwen3VL-2B-8B-transfer-R",
    "mmbench_en_dev_static",
    4329,
    85.5,
    "84.4 to 86.5",
    None,
    123456,
    100000,
    23456,
    28.5,
)
TABLE = Table("t", "Scores", COLUMNS, (ROW, ("tiny-large-S", "pope", *ROW[2:])), ("A note.",))


def shown(width: int, table: Table = TABLE) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    to_terminal([table], console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_fits_the_terminal(width: int) -> None:
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    for cell in ("MAI-Qwen3VL-2B-8B-transfer-R", "mmbench_en_dev_static", "84.4 to 86.5", "123,456.0", "28.5"):
        assert cell in text
    assert "A note." in text


def test_each_part_of_a_wide_table_names_its_rows() -> None:
    assert shown(80).count("MAI-Qwen3VL-2B-8B-transfer-R") > 1
    assert shown(200).count("MAI-Qwen3VL-2B-8B-transfer-R") == 1


def test_a_column_without_a_value_is_left_out() -> None:
    assert "nothing" not in shown(200)
    assert "score" in shown(200)


def test_a_table_without_rows_has_its_title() -> None:
    assert "Empty" in shown(80, Table("t", "Empty", (Column("a"), Column("b", COUNT)), ()))
