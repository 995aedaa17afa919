"""What was measured, as data: rows, fits of decode time, break-even."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

from mai_plugin.paper.figures import SOURCE, paper
from mai_plugin.replay.latency import PAPER_COLUMN, Latency, fit

PREPROCESSING, VISION, TTFT, DECODING = "preprocessing", "vision_encoder", "ttft", "decoding"
PART_NAMES = {
    PREPROCESSING: "image preprocessing",
    VISION: "vision encoder",
    TTFT: "time to first token",
    DECODING: "decoding",
}


@dataclass(frozen=True)
class Row:
    """One part of one model at one size.

    Attributes:
        model: the model's label.
        part: a key of `PART_NAMES`.
        image_side: pixels.
        image_tokens: tokens that the image becomes, as the model counts them.
        query_tokens, output_tokens: None where the part has none.
        batch: prompts at once.
        median_ms, low_ms, high_ms, repeats: see `measure.Timing`.
    """

    model: str
    part: str
    image_side: int
    image_tokens: int
    query_tokens: int | None
    output_tokens: int | None
    batch: int
    median_ms: float
    low_ms: float
    high_ms: float
    repeats: int


@dataclass(frozen=True)
class Model:
    """A model that was measured.

    Attributes:
        label: what its rows are filed under; it says what was cut.
        name: as it was named.
        weights: `checkpoint` or `random`.
        parameters: those that were there.
        layers, all_layers: of the language model, kept and whole.
        vision_layers, all_vision_layers: of the vision encoder.
    """

    label: str
    name: str
    weights: str
    parameters: int
    layers: int
    all_layers: int
    vision_layers: int
    all_vision_layers: int

    @property
    def vision_is_cut(self) -> bool:
        """Whether its encoder is less deep than the real one."""
        return self.vision_layers < self.all_vision_layers

    @property
    def is_cut(self) -> bool:
        """Whether anything of it is less deep than in the real one."""
        return self.vision_is_cut or self.layers < self.all_layers


@dataclass(frozen=True)
class Fit:
    """Decode time of a model at one shape, `fixed_ms + per_token_ms * output tokens`."""

    model: str
    image_side: int
    query_tokens: int
    batch: int
    fixed_ms: float
    per_token_ms: float
    r2: float
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class BreakEven:
    """How many tokens a small model may write before a large model's short answer is cheaper.

    Attributes:
        small, large: models.
        short_tokens: tokens of the large model's short answer.
        tokens: of the small model, as a real number; below 1 where the large model is cheaper at once.
        source: where the times come from.
    """

    small: str
    large: str
    short_tokens: int
    tokens: float
    source: str


@dataclass
class Profile:
    """Everything that one `mai profile` found.

    Attributes:
        environment: device, versions, dtype, threads.
        models: those of which something was measured, in order.
        rows: what was measured.
        skipped: sizes that were not, a line each.
        failed: models that could not be loaded, or why it stopped early, a line each.
    """

    environment: dict[str, Any]
    models: list[Model] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def of(self, part: str, model: str | None = None) -> list[Row]:
        """Rows of a part, of all models or one."""
        return [row for row in self.rows if row.part == part and model in (None, row.model)]

    def as_json(self, short_tokens: int = 4) -> dict[str, Any]:
        """As documented in docs/profile.md; `fits` and `break_even` are worked out from the rows."""
        return {
            "environment": self.environment,
            "models": [asdict(model) for model in self.models],
            "rows": [asdict(row) for row in self.rows],
            "fits": [asdict(found) for found in fits(self)],
            "break_even": [asdict(found) for found in break_evens(self, short_tokens)],
            "skipped": self.skipped,
            "failed": self.failed,
        }


def fits(profile: Profile) -> list[Fit]:
    """A line through the decode times of each model and shape.

    Where only one length was measured, the time to first token is the other point: a generation of one token.  A shape
    has no line where it lacks that too, or where its times do not grow with the tokens.
    """
    firsts = {_shape(row): replace(row, output_tokens=1) for row in profile.of(TTFT)}
    shapes: dict[tuple[str, int, int, int], list[Row]] = {}
    for row in profile.of(DECODING):
        shapes.setdefault(_shape(row), []).append(row)
    found = []
    for shape, rows in shapes.items():
        if len(rows) == 1 and shape in firsts:
            rows = [firsts[shape], *rows]
        lengths = [row.output_tokens or 0 for row in rows]
        try:
            line = fit(lengths, [row.median_ms for row in rows], shape[0])
        except ValueError:
            continue
        found.append(Fit(*shape, line.fixed_s, line.per_token_s, line.r2, tuple(lengths)))
    return found


def break_evens(profile: Profile, short_tokens: int) -> list[BreakEven]:
    """For each pair of measured models, the smaller one first, at the smallest shape that both have; then the paper's.

    Args:
        profile: what was measured.
        short_tokens: output tokens of the large model's short answer.
    """
    lines = {(one.model, (one.image_side, one.query_tokens)): one for one in fits(profile) if one.batch == 1}
    shapes = sorted({shape for _, shape in lines})
    result = []
    for small, large in combinations(sorted(profile.models, key=lambda model: model.parameters), 2):
        both = (shape for shape in shapes if all((model.label, shape) in lines for model in (small, large)))
        if shape := next(both, None):
            pair = [lines[model.label, shape] for model in (small, large)]
            ours, theirs = (Latency(line.fixed_ms, line.per_token_ms, "", line.r2) for line in pair)
            source = f"measured, {shape[0]} px, {shape[1]} query tokens"
            tokens = break_even(ours, theirs, short_tokens)
            result.append(BreakEven(small.label, large.label, short_tokens, tokens, source))
    return result + paper_break_evens(short_tokens)


def break_even(small: Latency, large: Latency, short_tokens: int) -> float:
    """Tokens n of the small model that take as long as the large model's short answer of m tokens.

    `a_small + b_small n = a_large + b_large m`, times of decoding as the paper's table 4 has them.
    """
    return (large.seconds(short_tokens) - small.fixed_s) / small.per_token_s


def paper_break_evens(short_tokens: int) -> list[BreakEven]:
    """The same from the paper's table 4; the paper itself does not print them."""
    lines = {
        size: fit(list(columns[PAPER_COLUMN]), list(columns[PAPER_COLUMN].values()), size)
        for size, columns in paper()["table4_decode_ms"].items()
    }
    return [
        BreakEven(
            f"Qwen3-VL-{small}", f"Qwen3-VL-{large}", short_tokens,
            break_even(lines[small], lines[large], short_tokens),
            f"worked out from {SOURCE}, table 4 ({PAPER_COLUMN})",
        )
        for small, large in combinations(lines, 2)
    ]  # fmt: skip


def _shape(row: Row) -> tuple[str, int, int, int]:
    return row.model, row.image_side, row.query_tokens or 0, row.batch
