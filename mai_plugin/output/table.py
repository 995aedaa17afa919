"""What a table is, before it is rendered: columns, cells and notes."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | None
"""A number or a text; None where the column does not apply."""


@dataclass(frozen=True)
class Column:
    """A heading, and how the numbers below it are written (`format` as in Python)."""

    name: str
    format: str = ""

    def text(self, cell: Cell) -> str:
        """A cell as readers see it."""
        if cell is None:
            return "-"
        return cell if isinstance(cell, str) else format(cell, self.format)

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers."""
        return bool(self.format)


@dataclass(frozen=True)
class Table:
    """A table, to be rendered by `output.render`.

    Attributes:
        key: stable name, for files and JSON.
        title: one line.
        columns: its columns.
        rows: cells, a tuple per row.
        notes: what has to be known to read it.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


TEXT, COUNT, POINTS, TOKENS, SECONDS, FACTOR = "", ",d", ".1f", ",.1f", ",.3f", ".2f"
