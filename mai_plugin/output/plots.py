"""Pictures as PNG and SVG, and the colours and marks that all of them share.

Colours are Okabe's and Ito's, which colour-blind readers tell apart; markers, line styles and hatches do without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, YELLOW)
MARKERS = "os^DvPX*<>h"
LINE_COLOURS = COLOURS[:7]
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
WIDTH = 9.0
"""Inches."""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows, in a sentence above it."""

    name: str
    caption: str
    figure: Figure

    def __post_init__(self) -> None:
        text = "\n".join(wrap(self.caption, int(13 * self.figure.get_figwidth())))
        self.figure.suptitle(text, fontsize=9, x=0.01, ha="left")

    def save(self, folder: Path) -> list[Path]:
        """Write it as PNG and SVG."""
        paths = [folder / f"{self.name}.png", folder / f"{self.name}.svg"]
        self.figure.savefig(paths[0], dpi=150)
        paths[1].write_bytes(self.svg())
        return paths

    def svg(self) -> bytes:
        """The figure as SVG, equal for equal figures."""
        stream = BytesIO()
        with rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(stream, format="svg", metadata={"Date": None})
        return stream.getvalue()


def panels(titles: Sequence[str], height: float, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with a panel per title, at most three in a row, each `height` inches high."""
    columns = min(3, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(WIDTH if columns > 1 else 0.65 * WIDTH, height * rows + 0.6), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=share_y).flatten())
    for title, axes in zip(titles, grid, strict=False):
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
    for axes in grid[len(titles) :]:
        axes.remove()
    return figure, grid[: len(titles)]


def legend(figure: Figure, handles: Iterable[Artist] | None = None) -> None:
    """A legend below the panels: of some handles, else of all lines with a label."""
    if handles is None:
        handles = {str(handle.get_label()): handle for axes in figure.axes for handle in axes.get_lines()}.values()
    shown = [handle for handle in handles if not str(handle.get_label()).startswith("_")]
    longest = max(len(str(handle.get_label())) for handle in shown)
    columns = max(1, min(len(shown), int(figure.get_figwidth() * 13 / (longest + 8))))
    figure.legend(handles=shown, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A colour, marker and line style for each of some lines."""
    looks = zip(cycle(LINE_COLOURS), cycle(MARKERS), cycle(DASHES), strict=False)
    return {
        label: {"color": colour, "marker": marker, "linestyle": dashes}
        for label, (colour, marker, dashes) in zip(labels, looks, strict=False)
    }


def plain_log(axis: Axis, subs: Sequence[float] = (1.0,)) -> None:
    """Plain numbers on a logarithmic axis, at these multiples of the powers of ten."""
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def log_if_wide(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic horizontal axis where the values differ more than tenfold."""
    positive = [value for value in values if value > 0]
    if len(positive) < len(values) or max(positive) < 10 * min(positive):
        if positive:
            axes.set_xlim(left=0)
        return
    axes.set_xscale("log")
    plain_log(axes.xaxis, (1.0,) if max(positive) > 100 * min(positive) else (1.0, 2.0, 5.0))
