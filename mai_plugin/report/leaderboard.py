"""A leaderboard file in the format of OpenVLM (VLMEvalKit's), from a file or a URL."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from mai_plugin.core.text import last_part, one_line
from mai_plugin.harness.benchmarks import TASKS
from mai_plugin.report.published import Figure, System

TIMEOUT_S = 30
_SHAPE = 'expected {"time": ..., "results": {model: {data set: {"Overall": number}}}}'


def read_leaderboard(source: str) -> dict[str, Any]:
    """Read and check a leaderboard.

    Args:
        source: a file, or an http(s) URL.

    Raises:
        ValueError: it cannot be had, is no JSON, or has another shape.
    """
    try:
        text = _download(source) if re.match(r"https?://", source) else Path(source).read_text(encoding="utf-8")
        board: dict[str, Any] = json.loads(text)
    except (OSError, ValueError, HTTPException) as error:
        raise ValueError(f"leaderboard {source}: {one_line(error)}") from error
    results = board.get("results") if isinstance(board, dict) else None
    if not isinstance(results, dict) or not results or not all(isinstance(row, dict) for row in results.values()):
        raise ValueError(f"leaderboard {source}: not in OpenVLM's format; {_SHAPE}")
    if not any(isinstance(row.get(name), dict) for row in results.values() for name in TASKS):
        raise ValueError(f"leaderboard {source}: none of its models has a benchmark that we know; {_SHAPE}")
    return board


def leaderboard_figures(board: dict[str, Any], source: str) -> list[Figure]:
    """The six benchmarks' overall scores of every model, in points; what is no number is left out."""
    time = board.get("time", "no date")
    found = []
    for model, row in board["results"].items():
        for name, task in TASKS.items():
            value = row[name].get("Overall") if isinstance(row.get(name), dict) else None
            if task.harness == "VLMEvalKit" and isinstance(value, int | float) and not isinstance(value, bool):
                found.append(
                    Figure(
                        System(None, (str(model),), None), task.benchmark, float(value), task.metric, task.split,
                        f"leaderboard {Path(source).name} ({time})", task.harness, task.scorer, task.n, task.n,
                    )
                )  # fmt: skip
    return found


def about(figures: Sequence[Figure], name: str) -> list[Figure]:
    """The figures of a model by its name, whatever the signs and the letter case: `Qwen/Qwen3-VL-8B-Instruct`."""
    wanted = _plain(last_part(name))
    return [figure for figure in figures if _plain(figure.system.sizes[0]).startswith(wanted)]


def best(figures: Sequence[Figure], benchmark: str, count: int) -> list[Figure]:
    """The leaderboard's best figures on a benchmark, one per model."""
    ranked = sorted((f for f in figures if f.benchmark == benchmark), key=lambda figure: -figure.value)
    return list({figure.system.sizes: figure for figure in reversed(ranked)}.values())[::-1][:count]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|instruct", "", name.casefold())


def _download(url: str) -> str:
    request = urllib.request.Request(url, headers={"User-Agent": "mai-plugin"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # only http(s) comes here
        return str(answer.read().decode("utf-8"))
