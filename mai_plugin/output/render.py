"""A table on the terminal, in Markdown, as CSV and as plain data."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mai_plugin.output.table import Table

TABLE_WIDTH, NOTE_WIDTH = 400, 150
"""Characters in a line where the output is no terminal: tables are as wide as they need to be."""


def to_terminal(tables: Sequence[Table], console: Console | None = None, width: int = TABLE_WIDTH) -> None:
    """Print tables with their notes.

    Columns without any value are left out.  A table that is too wide for a terminal is split into several, each
    of which begins with the columns that name its rows.

    Args:
        tables: what to print.
        console: where to; default: the terminal.
        width: characters in a line where the output is no terminal.
    """
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    for table in tables:
        console.print(Text(table.title, style="bold"))
        places_of_all = range(len(table.columns))
        used = [place for place in places_of_all if any(row[place] not in (None, "") for row in table.rows)]
        widths = _widths(table, used) if console.is_terminal else {}
        for places in _parts(table, used, widths, console.width) if widths else [used]:
            shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
            for place in places:
                column, width_here = table.columns[place], widths.get(place)
                side: Literal["right", "left"] = "right" if column.numeric else "left"
                shown.add_column(Text(column.name), justify=side, overflow="fold", width=width_here)
            for row in table.rows:
                # As `Text`, because a cell in square brackets would else be taken for markup.
                shown.add_row(*(Text(table.columns[place].text(row[place])) for place in places))
            console.print(shown)
        for note in table.notes:
            console.print(Text(note), width=min(NOTE_WIDTH, console.width))
        console.print()


_LONGEST = 48
"""Cells up to this many characters stay on one line of a terminal; longer ones wrap between words."""


def _widths(table: Table, used: Sequence[int]) -> dict[int, int]:
    """Characters that each column needs: its cells on one line, its heading wrapped between words."""
    widths = {}
    for place in used:
        cells = [table.columns[place].text(row[place]) for row in table.rows]
        longest = max((len(cell) for cell in cells), default=0)
        widths[place] = max(min(longest, _LONGEST), *map(len, table.columns[place].name.split() or [""]))
    return widths


def _parts(table: Table, used: Sequence[int], widths: Mapping[int, int], width: int) -> list[list[int]]:
    """The columns of each part of a table, so that each fits the width."""
    numeric = [place for place in used if table.columns[place].numeric]
    leading = [place for place in used if not numeric or place < numeric[0]][:2] or list(used[:1])
    parts = [[*leading]]
    for place in (place for place in used if place not in leading):
        if sum(widths[other] + 3 for other in (*parts[-1], place)) > width and parts[-1] != leading:
            parts.append([*leading])
        parts[-1].append(place)
    return parts


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
