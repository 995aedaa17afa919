"""Pictures of a profile (PNG, SVG): latency of the parts (figure 1 of arXiv 2604.04929), decode time, throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mai_plugin.output.plots import WIDTH, Picture, legend, panels, plain_log, styles
from mai_plugin.study.profile.result import DECODING, PART_NAMES, PREPROCESSING, TTFT, VISION, Profile, Row, fits


def pictures(profile: Profile) -> list[Picture]:
    """All pictures for which there are rows."""
    drawn = [parts(profile), decoding(profile), throughput(profile)]
    return [picture for picture in drawn if picture]


def parts(profile: Profile) -> Picture | None:
    """Latency of the parts against the image side, a panel per model."""
    models = [model.label for model in profile.models if profile.of(VISION, model.label)]
    if not models:
        return None
    figure, grid = panels(models, 3.4, share_y=True)
    for label, axes in zip(models, grid, strict=True):
        lines = {PART_NAMES[part]: _by_side(profile.of(part, label)) for part in (PREPROCESSING, VISION)}
        lines[PART_NAMES[TTFT]] = _by_side(_least_query(profile.of(TTFT, label)))
        for n in sorted({row.output_tokens or 0 for row in profile.of(DECODING, label)}):
            rows = [row for row in profile.of(DECODING, label) if row.output_tokens == n]
            lines[f"decoding {n} tokens"] = _by_side(_least_query(rows))
        _draw(axes, lines)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_log(axes.yaxis)
        axes.set_xticks(
            ticks := sorted({x for line in lines.values() for x, _ in line}), [f"{tick:g}" for tick in ticks]
        )
        axes.set_xlabel("image side, pixels")
        axes.set_ylabel("ms")
    legend(figure)
    return Picture("parts", f"What takes the time: latency of the parts.{_where(profile)}", figure)


def decoding(profile: Profile) -> Picture | None:
    """Decode time against output tokens, a line per model with its fit, at the first shape of each."""
    lines = {line.model: line for line in reversed(fits(profile)) if line.batch == 1}
    if not lines:
        return None
    figure = Figure(figsize=(0.7 * WIDTH, 4.0), layout="constrained")
    axes = figure.subplots()
    for (label, line), style in zip(reversed(lines.items()), styles(lines).values(), strict=True):
        rows = [
            row for row in profile.of(DECODING, label)
            if (row.image_side, row.query_tokens, row.batch) == (line.image_side, line.query_tokens, 1)
        ]  # fmt: skip
        axes.errorbar(
            [row.output_tokens or 0 for row in rows], [row.median_ms for row in rows], yerr=_errors(rows),
            **{**style, "linestyle": "none"}, capsize=3,
        )  # fmt: skip
        ends = [0, max(line.lengths)]
        axes.plot(
            ends, [line.fixed_ms + line.per_token_ms * n for n in ends], **{**style, "marker": ""},
            label=f"{label}: {line.fixed_ms:.1f} + {line.per_token_ms:.2f} n ms",
        )  # fmt: skip
    axes.set_xlabel("output tokens")
    axes.set_ylabel("ms")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    legend(figure)
    return Picture("decoding", f"Decode time and its fit.{_where(profile)}", figure)


def throughput(profile: Profile) -> Picture | None:
    """Output tokens per second against the batch size, a line per model."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for label in dict.fromkeys(row.model for row in profile.of(DECODING) if row.batch > 1):
        batched = [row for row in profile.of(DECODING, label) if row.batch > 1]
        longest = max(row.output_tokens or 0 for row in batched)
        shape = batched[0].image_side, batched[0].query_tokens, longest
        rows = [
            row for row in profile.of(DECODING, label)
            if (row.image_side, row.query_tokens, row.output_tokens) == shape
        ]  # fmt: skip
        points: list[tuple[float, float]] = sorted(
            (row.batch, 1000 * row.batch * longest / row.median_ms) for row in rows
        )
        lines[f"{label}, {longest} output tokens"] = points
    if not lines:
        return None
    figure = Figure(figsize=(0.7 * WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    _draw(axes, lines)
    axes.set_xlabel("batch size")
    axes.set_ylabel("output tokens per second")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    legend(figure)
    return Picture(
        "throughput", f"Output tokens per second of whole batches, prefill included.{_where(profile)}", figure
    )


def _draw(axes: Axes, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for (label, points), style in zip(lines.items(), styles(lines).values(), strict=True):
        axes.plot([x for x, _ in points], [y for _, y in points], label=label, **style)
    axes.grid(alpha=0.3)


def _by_side(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return [(row.image_side, row.median_ms) for row in rows if row.batch == 1]


def _least_query(rows: Sequence[Row]) -> list[Row]:
    least = min((row.query_tokens or 0 for row in rows), default=0)
    return [row for row in rows if row.query_tokens == least]


def _errors(rows: Sequence[Row]) -> list[list[float]]:
    return [[row.median_ms - row.low_ms for row in rows], [row.high_ms - row.median_ms for row in rows]]


def _where(profile: Profile) -> str:
    return f" {profile.environment['device_name']}, {profile.environment['dtype']}."
