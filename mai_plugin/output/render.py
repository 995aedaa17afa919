"""A table on the terminal, in Markdown, as CSV and as plain data."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mai_plugin.output.table import Table

TABLE_WIDTH, NOTE_WIDTH = 400, 150
"""Characters in a line where the output is no terminal: tables are as wide as they need to be."""


def to_terminal(tables: Sequence[Table], console: Console | None = None, width: int = TABLE_WIDTH) -> None:
    """Print tables with their notes, at most `width` characters wide where the output is no terminal."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    for table in tables:
        console.print(Text(table.title, style="bold"))
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in table.columns:
            shown.add_column(Text(column.name), justify="right" if column.numeric else "left", overflow="fold")
        for row in table.rows:
            # As `Text`, because a cell in square brackets would else be taken for markup.
            cells = zip(table.columns, row, strict=True)
            shown.add_row(*(Text(column.text(cell)) for column, cell in cells))
        console.print(shown)
        for note in table.notes:
            console.print(Text(note), width=min(NOTE_WIDTH, console.width))
        console.print()


def to_markdown(tables: Sequence[Table]) -> str:
    """Tables as Markdown, a heading each."""
    return "\n".join(f"## {table.title}\n\n{markdown_table(table)}\n" for table in tables)


def markdown_table(table: Table) -> str:
    """One table as Markdown, its notes behind it."""
    lines = [
        [column.name for column in table.columns],
        ["---:" if column.numeric else "---" for column in table.columns],
        *([column.text(cell) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows),
    ]
    grid = "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)
    notes = "".join(f"\n- {note}" for note in table.notes)
    return f"{grid}\n{notes}" if notes else grid


def to_csv(tables: Sequence[Table], path: Path) -> None:
    """A file per table in a folder; or, if the path ends in .csv, the first table (the overview) as that file."""
    if path.suffix == ".csv":
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_csv(tables[0], path)
        return
    path.mkdir(parents=True, exist_ok=True)
    for table in tables:
        _write_csv(table, path / f"{table.key}.csv")


def to_data(table: Table) -> dict[str, Any]:
    """A table as plain data, numbers unrounded."""
    return {
        "key": table.key,
        "title": table.title,
        "columns": [column.name for column in table.columns],
        "rows": [list(row) for row in table.rows],
        "notes": list(table.notes),
    }


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
        writer = csv.writer(stream)
        writer.writerow([column.name for column in table.columns])
        writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
