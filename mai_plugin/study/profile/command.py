"""The command: what was typed, checked before anything is measured; then the run, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mai_plugin.output.files import Outputs
from mai_plugin.study.profile.grid import Grid
from mai_plugin.study.profile.models import resolve
from mai_plugin.study.profile.profiler import pick_device, run
from mai_plugin.study.profile.result import Profile
from mai_plugin.study.profile.tables import csv_tables, show

if TYPE_CHECKING:
    from mai_plugin.output.plots import Picture

DEFAULT_MODEL = "MAI-tiny"


def profile(
    names: Sequence[str],
    *,
    weights: str,
    layers: int | None,
    vision_layers: int | None,
    device: str | None,
    dtype: str | None,
    seed: int,
    quick: bool,
    sizes: dict[str, Any],
    outputs: Outputs,
) -> Profile:
    """Measure, with a progress bar on a terminal.

    Args:
        names: see `models.resolve`; the tiny pair if there are none.
        weights, layers, vision_layers: see `models.resolve`.
        device, dtype: see `profiler.pick_device`.
        seed: of random weights, images and query tokens.
        quick: fewer and smaller sizes.
        sizes: fields of `grid.Grid` by name; texts such as `256,512` are read; None keeps the default.
        outputs: are tried before anything is measured, so that no measurement is lost to a wrong path.

    Raises:
        ValueError: one line on what is wrong, or why nothing could be measured.
    """
    grid = Grid.of(quick, **{name: _numbers(name, value) for name, value in sizes.items()})
    outputs.prepare()
    chosen_device, chosen_dtype = pick_device(device, dtype)
    with suppress(ImportError):  # transformers' own bar for loading would break ours
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
    sources = resolve(names or [DEFAULT_MODEL], weights, layers, vision_layers)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # It moves from size to size only: a bar that is drawn by a thread of its own would take time from what is measured.
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=len(sources) * (grid.points() + 1))
        begun: list[str] = []

        def progress(what: str) -> None:
            bar.update(task, description=what, completed=len(begun), refresh=True)
            begun.append(what)

        found = run(sources, grid, chosen_device, chosen_dtype, seed, progress)
    if not found.rows:
        raise ValueError("; ".join([*found.failed, *found.skipped]) or "nothing was measured")
    return found


def write(found: Profile, outputs: Outputs, short_tokens: int, compare: bool) -> list[Path]:
    """Write what was asked for, then print the tables: a terminal that is gone loses no file.

    Returns:
        The files and folders.
    """

    def drawn() -> list[Picture]:
        from mai_plugin.study.profile.plots import pictures

        return pictures(found)

    try:
        return outputs.write(lambda: found.as_json(short_tokens), lambda: csv_tables(found, short_tokens), drawn)
    finally:
        show(found, short_tokens, compare)


def _numbers(name: str, value: Any) -> Any:
    """`256,512` as numbers."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise ValueError(f"--{name.replace('_', '-')} {value}: it must be whole numbers, such as 256,512") from None
