"""Pictures as PNG and SVG, and the colours and marks that all of them share.

Colours are Okabe's and Ito's, which colour-blind readers tell apart; markers, line styles and hatches do without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

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
    """A figure and what it shows, in a sentence that stands on top of it."""

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
