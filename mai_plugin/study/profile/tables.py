"""A profile as tables: the paper's tables 1 to 4 in shape, throughput, fits and break-even."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from math import floor

from mai_plugin.output.render import to_terminal
from mai_plugin.output.table import Cell, Column, Table
from mai_plugin.study.profile.beside_paper import compare_tables
from mai_plugin.study.profile.result import (
    DECODING,
    PART_NAMES,
    PREPROCESSING,
    TTFT,
    VISION,
    Profile,
    Row,
    break_evens,
    fits,
)

MS = ",.2f"


def tables(profile: Profile, short_tokens: int, compare: bool = False) -> list[Table]:
    """All tables for which something was measured.

    Args:
        profile: what was measured.
        short_tokens: output tokens of the large model's short answer, for the break-even.
        compare: with the paper's printed figures too.
    """
    found = [
        *(_part(profile, part, _side) for part in (PREPROCESSING, VISION)),
        _part(profile, TTFT, lambda row: f"{row.image_side}+{row.query_tokens}"),
        _decoding(profile),
        _batches(profile),
        _fits(profile),
        _break_even(profile, short_tokens),
        *(compare_tables(profile) if compare else []),
    ]
    return [table for table in found if table.rows]


def show(profile: Profile, short_tokens: int, compare: bool = False) -> None:
    """Print the tables, where it was measured, and what was skipped."""
    print(f"{describe(profile)}\n")
    to_terminal(tables(profile, short_tokens, compare))
    if compare and not any(table.rows for table in compare_tables(profile)):
        print(
            "Nothing beside the paper: no size was measured that it prints, which are those of Qwen3-VL 2B, 4B and 8B."
        )
    for line in profile.skipped:
        print(line)


def describe(profile: Profile) -> str:
    """Device, dtype, versions and models, in a sentence."""
    where = profile.environment
    versions = ", ".join(f"{name} {where['versions'][name]}" for name in ("torch", "transformers"))
    threads = f", {where['threads']} thread{'s' * (where['threads'] > 1)}" if where["device"] == "cpu" else ""
    models = ", ".join(
        f"{model.label} ({model.parameters / 1e6:,.1f} M parameters, {_weights(model.weights)})"
        for model in profile.models
    )
    return f"{models or 'nothing'} on {where['device_name']}{threads}, {where['dtype']}, {versions}."


def csv_tables(profile: Profile, short_tokens: int) -> list[Table]:
    """The rows as they are, then every other table."""
    columns = tuple(Column(each.name) for each in fields(Row))
    rows = tuple(tuple(asdict(row).values()) for row in profile.rows)
    return [Table("rows", "Rows", columns, rows), *tables(profile, short_tokens, compare=True)]


def _part(profile: Profile, part: str, place: Callable[[Row], str]) -> Table:
    """A row per model, a column per size, at batch 1."""
    rows = [row for row in profile.of(part) if row.batch == 1]
    places = list(dict.fromkeys(place(row) for row in rows))
    body = _grid(rows, places, place, lambda row: (row.model,))
    notes = [_SPREAD] + [f"columns: image side + query tokens; {_image_tokens(rows)}"] * (part == TTFT)
    columns = (Column("model"), *(Column(name, MS) for name in places))
    return Table(part, f"{PART_NAMES[part].capitalize()}, ms", columns, body, tuple(notes))


def _decoding(profile: Profile) -> Table:
    rows = [row for row in profile.of(DECODING) if row.batch == 1]
    lengths = [str(n) for n in sorted({row.output_tokens or 0 for row in rows})]
    body = _grid(rows, lengths, lambda row: str(row.output_tokens), lambda row: (row.model, shape(row)))
    notes = (
        _SPREAD,
        "columns: output tokens, vision encoder and prefill included; image/input: image side and input tokens, those "
        "of the image included",
    )
    columns = (Column("model"), Column("image/input"), *(Column(name, MS) for name in lengths))
    return Table(DECODING, "Decoding, ms", columns, body, notes)


def _batches(profile: Profile) -> Table:
    """Throughput of the sizes that were measured at several batches."""
    first = {(row.model, row.image_side, row.query_tokens, row.batch): row.median_ms for row in profile.of(TTFT)}
    longest: dict[tuple[str, int, int | None, int], Row] = {}
    batched = [row for row in profile.of(DECODING) if row.batch > 1]
    wanted = {(row.model, row.image_side, row.query_tokens, row.output_tokens) for row in batched}
    for row in profile.of(DECODING):
        if (row.model, row.image_side, row.query_tokens, row.output_tokens) in wanted:
            longest[row.model, row.image_side, row.query_tokens, row.batch] = row
    body = tuple(
        (row.model, shape(row), row.batch, first.get(key), row.output_tokens, row.median_ms,
         row.batch * (row.output_tokens or 0) / row.median_ms * 1000)
        for key, row in longest.items()
    )  # fmt: skip
    columns = (
        Column("model"), Column("image/input"), Column("batch", ",d"), Column("TTFT, ms", MS),
        Column("output tokens", ",d"), Column("ms", MS), Column("tokens/s", ",.1f"),
    )  # fmt: skip
    notes = ("tokens/s: output tokens of the whole batch over the time of the whole generation",)
    return Table("batches", "Batches", columns, body, notes)


def _fits(profile: Profile) -> Table:
    sides = {(row.model, row.image_side): row.image_tokens for row in profile.of(DECODING)}
    body = tuple(
        (line.model, f"{line.image_side}/{sides[line.model, line.image_side] + line.query_tokens}", line.batch,
         line.fixed_ms, line.per_token_ms, 1000 * line.batch / line.per_token_ms, line.r2)
        for line in fits(profile)
    )  # fmt: skip
    columns = (
        Column("model"), Column("image/input"), Column("batch", ",d"), Column("a, ms", MS), Column("b, ms", ",.3f"),
        Column("tokens/s", ",.1f"), Column("R2", ".4f"),
    )  # fmt: skip
    notes = (
        "time of n output tokens is a + b n; tokens/s: batch / b, prefill left out; where only one length was "
        "measured, the line goes through the time to first token too",
    )
    return Table("fits", "Decode time, fitted", columns, body, notes)


def _break_even(profile: Profile, short_tokens: int) -> Table:
    body = tuple(
        (found.small, found.large, max(0, floor(found.tokens)), found.tokens, found.source)
        for found in break_evens(profile, short_tokens)
    )
    columns = (
        Column("small"), Column("large"), Column("tokens that small may write", ",d"), Column("exactly", ",.2f"),
        Column("source"),
    )  # fmt: skip
    notes = (
        f"so many tokens may the small model write before the large model's answer of {short_tokens} tokens is "
        f"cheaper: (a of large + {short_tokens} b of large - a of small) / b of small",
    )
    return Table("break_even", f"Break-even with a short answer of {short_tokens} tokens", columns, body, notes)


_SPREAD = "median (quartiles; least and most where there are less than four repeats)"


def shape(row: Row) -> str:
    """Image side / input tokens, those of the image included, as in the paper's table 4."""
    return f"{row.image_side}/{row.image_tokens + (row.query_tokens or 0)}"


def _grid(
    rows: Sequence[Row], places: Sequence[str], place: Callable[[Row], str], head: Callable[[Row], tuple[str, ...]]
) -> tuple[tuple[Cell, ...], ...]:
    """Rows as a table: heads down, places across; a size that was not measured is empty."""
    body: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in rows:
        body.setdefault(head(row), {})[place(row)] = _cell(row)
    return tuple((*key, *(cells.get(name) for name in places)) for key, cells in body.items())


def _cell(row: Row) -> str:
    return f"{_ms(row.median_ms)} ({_ms(row.low_ms)}-{_ms(row.high_ms)})"


def _ms(value: float) -> str:
    """Three digits at least, and no more than two behind the point."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _side(row: Row) -> str:
    return f"{row.image_side}x{row.image_side}"


def _image_tokens(rows: Sequence[Row]) -> str:
    """How many tokens the images became: `64 image tokens at 256 px, ...`, by model where they differ."""
    found: dict[int, set[int]] = {}
    for row in rows:
        found.setdefault(row.image_side, set()).add(row.image_tokens)
    said = (f"{' or '.join(f'{n:,}' for n in sorted(counts))} at {side} px" for side, counts in found.items())
    return "image tokens: " + ", ".join(said)


def _weights(weights: str) -> str:
    return "random weights" if weights == "random" else "its weights"
