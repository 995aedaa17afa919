"""The paper's printed figures beside the measured ones (arXiv 2604.04929, tables 1 to 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mai_plugin.output.table import Cell, Column, Table
from mai_plugin.paper.figures import SOURCE, model_size, paper
from mai_plugin.study.profile.models import published_depth
from mai_plugin.study.profile.result import DECODING, PREPROCESSING, TTFT, VISION, Model, Profile, Row

_TITLES = {
    PREPROCESSING: (1, "table1_preprocess_ms", "Image preprocessing"),
    VISION: (2, "table2_vision_encoder_ms", "Vision encoder"),
    TTFT: (3, "table3_ttft_ms", "Time to first token"),
    DECODING: (4, "table4_decode_ms", "Decoding"),
}


def compare_tables(profile: Profile) -> list[Table]:
    """For each of the paper's tables 1 to 4 the points that were measured too: measured, printed, and their ratio.

    A model that was cut is shown beside the full one's figures without a ratio, but for the preprocessing, which has
    no layers.
    """
    return [_table(profile, part) for part in _TITLES]


def _table(profile: Profile, part: str) -> Table:
    number, key, title = _TITLES[part]
    printed = paper()[key]
    body: list[tuple[Cell, ...]] = []
    cells: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for model in profile.models:
        size = _printed_size(model, printed)
        if size is None:
            continue
        for row in profile.of(part, model.label):
            place, column = _place(part, row)
            figure = _figure(printed[size], part, place, column)
            if row.batch == 1 and figure is not None:
                cells.setdefault(model.label, {}).setdefault(place, {})[column] = row.median_ms, figure
    columns = list(dict.fromkeys(name for places in cells.values() for found in places.values() for name in found))
    columns.sort(key=_numbers)
    models = {model.label: model for model in profile.models}
    for label, places in cells.items():
        cut = _incomparable(models[label], part)
        for place, found in places.items():
            head = (label, place) if part == DECODING else (label,)
            kinds: dict[str, Callable[[float, float], Cell]] = {
                "measured": lambda measured, figure: measured,
                "printed": lambda measured, figure: figure,
                "ratio": lambda measured, figure, cut=cut: "cut" if cut else f"{measured / figure:.2f}",  # type: ignore[misc]
            }
            for kind, value in kinds.items():
                body.append((*head, kind, *(value(*found[name]) if name in found else None for name in columns)))
    heads = ("model", "image/input", "ms") if part == DECODING else ("model", "ms")
    where = profile.environment
    notes = [
        f"measured on {where['device_name']} in {where['dtype']}; the paper's hardware is its own; "
        "ratio: measured over printed"
    ]
    left_out = [label for label in cells if _incomparable(models[label], part)]
    if left_out:
        notes.append(
            f"no ratio for models that were cut, since the printed figures are of full ones: {'; '.join(left_out)}"
        )
    return Table(
        f"paper_table{number}",
        f"{title}, ms, beside table {number} of {SOURCE}",
        (*(Column(name) for name in heads), *(Column(name, ",.2f") for name in columns)),
        tuple(body),
        tuple(notes),
    )


def _printed_size(model: Model, printed: Mapping[str, Any]) -> str | None:
    """The size of a Qwen3-VL model, if the paper has it; a model of another depth only has such a name."""
    found = model_size(model.name)
    if found is None or found[0] != "Qwen3-VL" or found[1] not in printed:
        return None
    return found[1] if published_depth(*found) == (model.all_layers, model.all_vision_layers) else None


def _incomparable(model: Model, part: str) -> bool:
    if part == PREPROCESSING:
        return False
    return model.vision_is_cut if part == VISION else model.is_cut


def _place(part: str, row: Row) -> tuple[str, str]:
    """Where the paper prints a row: (its line, its column)."""
    side = row.image_side
    if part == TTFT:
        return "", f"{side}+{row.query_tokens}"
    if part == DECODING:
        return f"{side}/{row.image_tokens + (row.query_tokens or 0)}", str(row.output_tokens)
    return "", f"{side}x{side}"


def _figure(of_size: Mapping[str, Any], part: str, place: str, column: str) -> float | None:
    found = of_size.get(place, {}).get(int(column)) if part == DECODING else of_size.get(column)
    return None if found is None else float(found)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.replace("x", "+").split("+"))
