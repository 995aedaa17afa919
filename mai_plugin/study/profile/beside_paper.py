"""The paper's printed figures beside the measured ones (arXiv 2604.04929, tables 1 to 4)."""

from __future__ import annotations

from collections.abc import Mapping
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
    points = [
        (model, *_place(part, row), row.median_ms, figure)
        for model in profile.models
        for row in profile.of(part, model.label)
        if row.batch == 1 and (figure := _figure(printed, model, part, *_place(part, row))) is not None
    ]
    columns = sorted({column for _, _, column, _, _ in points}, key=_numbers)
    body: list[tuple[Cell, ...]] = []
    for model, place in dict.fromkeys((model, place) for model, place, *_ in points):
        head = (model.label, place) if part == DECODING else (model.label,)
        found = {column: pair for one, at, column, *pair in points if (one, at) == (model, place)}
        cut = _incomparable(model, part)
        ratios = {column: "cut" if cut else f"{measured / figure:.2f}" for column, (measured, figure) in found.items()}
        body += [
            (*head, "measured", *(found[column][0] if column in found else None for column in columns)),
            (*head, "printed", *(found[column][1] if column in found else None for column in columns)),
            (*head, "ratio", *map(ratios.get, columns)),
        ]
    heads = ("model", "image/input", "ms") if part == DECODING else ("model", "ms")
    where = profile.environment
    notes = [
        f"measured on {where['device_name']} in {where['dtype']}; the paper's hardware is its own; "
        "ratio: measured over printed"
    ]
    left_out = dict.fromkeys(model.label for model, *_ in points if _incomparable(model, part))
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


def _figure(printed: Mapping[str, Any], model: Model, part: str, place: str, column: str) -> float | None:
    """What the paper prints for a Qwen3-VL model of its depth: a model of another depth only has such a name."""
    size = model_size(model.name)
    if size is None or size[0] != "Qwen3-VL" or size[1] not in printed:
        return None
    if published_depth(*size) != (model.all_layers, model.all_vision_layers):
        return None
    line = printed[size[1]]
    figure: float | None = line.get(place, {}).get(int(column)) if part == DECODING else line.get(column)
    return figure


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.replace("x", "+").split("+"))
