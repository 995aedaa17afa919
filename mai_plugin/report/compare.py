"""`mai compare`: own runs, the paper, reported figures and a leaderboard, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mai_plugin.harness.scores import ScoredRun, score
from mai_plugin.output.render import to_terminal
from mai_plugin.output.table import POINTS, Column, Table
from mai_plugin.report.command import latest
from mai_plugin.report.comparability import SideBySide, beside_leaderboard, beside_paper, beside_reported
from mai_plugin.report.leaderboard import leaderboard_figures, read_leaderboard
from mai_plugin.report.published import Figure, own_figures, paper_figures, reported_figures
from mai_plugin.run.stored import load_runs


@dataclass(frozen=True)
class Compared:
    """Figures side by side, and remarks on what has no counterpart."""

    pairs: tuple[SideBySide, ...]
    remarks: tuple[str, ...]


def compare_store(
    store: Path, names: Sequence[str], folders: Sequence[Path], paper: bool, reported: bool, leaderboard: str | None
) -> Compared:
    """Compare runs of a call store.

    Args:
        store: its file or folder.
        names: runs; if there are none, the latest of every name, engine and task.
        folders: where lmms-eval wrote its results; by default where each run remembers.
        paper, reported, leaderboard: as in `compare_runs`.

    Raises:
        ValueError: no such store or run, scores that do not fit a run, or a leaderboard that cannot be read.
    """
    runs = load_runs(store, names) if names else latest(load_runs(store))
    if not runs:
        raise ValueError(f"the call store {store} holds no runs yet")
    return compare_runs([score(run, folders) for run in runs], paper, reported, leaderboard)


def compare_runs(runs: Sequence[ScoredRun], paper: bool, reported: bool, leaderboard: str | None) -> Compared:
    """Put every score of some runs beside the figures of others.

    Args:
        runs: runs with their scores.
        paper, reported: whether to take those figures.
        leaderboard: a file or URL in OpenVLM's format.

    Raises:
        ValueError: the leaderboard cannot be read.
    """
    board = leaderboard_figures(read_leaderboard(leaderboard), leaderboard) if leaderboard else []
    printed, others = paper_figures() if paper else [], reported_figures() if reported else []
    pairs: list[SideBySide] = []
    remarks: list[str] = []
    for scored in runs:
        own, why_not = own_figures(scored)
        remarks += why_not
        names = [model["name"] for model in scored.run.settings["models"].values()]
        for figure in own:
            beside = [
                *beside_paper(figure, printed),
                *beside_reported(figure, others),
                *beside_leaderboard(figure, board, names),
            ]
            pairs += beside
            if not beside:
                remarks.append(f"{figure.source}, {figure.benchmark} {figure.value:.1f}: no figure to put beside it")
    return Compared(tuple(pairs), tuple(dict.fromkeys(remarks)))


def table(compared: Compared) -> Table:
    """A row per comparison, those of one own figure together."""
    columns = (
        Column("benchmark"), Column("own"), Column("score", POINTS), Column("other"), Column("theirs", "g"),
        Column("difference", "+.1f"), Column("remarks"),
    )  # fmt: skip
    rows = []
    before: Figure | None = None
    for one in compared.pairs:
        new, before = one.own is not before, one.own
        own = (one.own.benchmark, f"{one.own.source} ({one.own.system.way})", one.own.value) if new else ("", "", "")
        refused = f"not comparable: {'; '.join(one.refused)}"
        other = (f"{one.other.system}, {one.other.source}", one.other.value, one.difference)
        rows.append((*own, *other, refused if one.refused else "; ".join(one.flags)))
    return Table("compare", "Own scores beside others', in points", columns, tuple(rows), compared.remarks)


def show(compared: Compared) -> None:
    """Print everything on the terminal."""
    to_terminal([table(compared)])


def as_json(compared: Compared) -> dict[str, Any]:
    """Everything, for another program."""
    return {
        "comparisons": [
            {
                "own": _figure(one.own),
                "other": _figure(one.other),
                "difference": one.difference,
                "not_comparable": list(one.refused),
                "flags": list(one.flags),
            }
            for one in compared.pairs
        ],
        "remarks": list(compared.remarks),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "source": figure.source,
        "models": list(figure.system.sizes),
        "way": str(figure.system.way or ""),
        "benchmark": figure.benchmark,
        "split": figure.split,
        "metric": figure.metric,
        "harness": figure.harness,
        "n": figure.n,
        "value": figure.value,
    }
