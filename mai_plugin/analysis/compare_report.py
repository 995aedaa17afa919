"""`mai compare`: own runs, the paper, reported figures and a leaderboard, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mai_plugin.analysis import figures as of
from mai_plugin.analysis.compare import SideBySide, beside_leaderboard, beside_paper, beside_reported
from mai_plugin.analysis.leaderboard import leaderboard_figures, read_leaderboard
from mai_plugin.analysis.runs import Run


def compare_runs(
    runs: Sequence[Run],
    scores: Mapping[str, Mapping[str, float]],
    *,
    paper: bool = True,
    reported: bool = True,
    leaderboard: str | None = None,
) -> tuple[list[SideBySide], list[str]]:
    """Put every score of some runs beside the figures of others.

    Args:
        runs: the runs.
        scores: run id -> task -> the harness's aggregate, in points.
        paper, reported: whether to take those figures.
        leaderboard: a file or URL in OpenVLM's format.

    Returns:
        The comparisons, and remarks on what has no counterpart.

    Raises:
        ValueError: no run has a score, or the leaderboard cannot be read.
    """
    board = leaderboard_figures(read_leaderboard(leaderboard), leaderboard) if leaderboard else []
    printed, others = of.paper_figures() if paper else [], of.reported_figures() if reported else []
    found: list[SideBySide] = []
    remarks: list[str] = []
    for run in runs:
        own, unknown = of.own_figures(run, scores.get(run.id, {}))
        remarks += unknown
        for figure in own:
            names = [model["name"] for model in run.settings["models"].values()]
            beside = [
                *beside_paper(figure, printed),
                *beside_reported(figure, others),
                *beside_leaderboard(figure, board, names),
            ]
            found += beside
            if not beside:
                remarks.append(f"{run.name}, {figure.benchmark} {figure.value:.1f}: nobody's figure to put beside it")
    if not found and not remarks:
        raise ValueError("no run has a score to compare: run lmms-eval with --output_path and --log_samples")
    return found, list(dict.fromkeys(remarks))
