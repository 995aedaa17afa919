"""A study of attention as tables (the paper's table 16), as JSON, and beside the figures that the paper prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from mai_plugin.output.files import Outputs
from mai_plugin.output.render import to_terminal
from mai_plugin.output.table import COUNT, FACTOR, POINTS, TOKENS, Cell, Column, Table
from mai_plugin.paper.figures import SOURCE, paper
from mai_plugin.study.attention.measures import ANSWER, BEFORE, GROUPS, NUMBER, Layer, Lift, Look, lifts
from mai_plugin.study.attention.study import READINGS, TOY, Study

if TYPE_CHECKING:
    from mai_plugin.output.plots import Picture

_BY_TASK = (ANSWER, BEFORE, NUMBER)
_PAPER = {"small": "8B+2B-R", "large": "8B+8B-R"}


def write(study: Study, outputs: Outputs) -> list[Path]:
    """Write what is asked for, then print the study: a terminal that is gone loses no file.

    Returns:
        The files.

    Raises:
        ValueError: one cannot be written.
    """

    def drawn() -> list[Picture]:
        from mai_plugin.study.attention.plots import pictures

        return pictures(study)

    found = tables(study)
    try:
        return outputs.write(lambda: as_json(study), lambda: found, drawn)
    finally:
        to_terminal(found)


def tables(study: Study) -> list[Table]:
    """Table 16, what the weight is on, the groups of tokens, and tasks."""
    layers = {role: reading.layers() for role, reading in study.readings.items()}
    found = [_shares(study, layers), _top_tokens(study, layers), _groups(study, layers), _tasks(study)]
    toy = (TOY,) if study.toy else ()
    return [replace(table, notes=(*table.notes, *toy)) for table in found if table.rows]


def notes(study: Study) -> tuple[str, ...]:
    """What a reader must know: the models, the questions, and which of them are not in the figures."""
    names = ", ".join(f"{role} is {name}" for role, name in study.models.items())
    lengths = "; ".join(
        f"{READINGS[role]}: {reading.mean_tokens:.1f} tokens of reasoning on average"
        + (f", {cut:,} cut by the limit" if (cut := sum(look.cut for look in reading.looks)) else "")
        for role, reading in study.readings.items()
    )
    same = f"both models reason in the same words on {study.same:,} of {study.n:,} questions"
    lines = [f"{names}; {study.questions}, {study.n:,} measured", f"{lengths}; {same}"]
    if study.left_out:
        reasons = Counter(study.left_out.values())
        first = "; ".join(f"{count:,}: {why}" for why, count in reasons.most_common(3))
        lines.append(f"{len(study.left_out):,} of {study.asked:,} questions are left out, for both readings: {first}")
    return tuple(lines)


def _shares(study: Study, layers: Mapping[str, list[Layer]]) -> Table:
    columns = [Column("layer")]
    for role in layers:
        name = f"{role}-R"
        columns += [
            Column(f"{name}: share, %", POINTS), Column("tokens", TOKENS), Column("single heads, %"),
            Column("on it, %", POINTS),
        ]  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for number, pair in enumerate(zip(*layers.values(), strict=True)):
        row: list[Cell] = [str(number)]
        for layer in pair:
            heads = [100 * share for share in layer.head_shares]
            spread = f"{median(heads):.1f} ({min(heads):.1f} to {max(heads):.1f})"
            row += [100 * layer.share, layer.tokens, spread, 100 * layer.on_reasoning]
        rows.append(tuple(row))
    printed = paper()["table16_reasoning_attention"]
    for number in sorted({number for key in _PAPER.values() for number in printed[key]}):
        row = [f"paper, 8B, layer {number}"]
        for role in layers:
            cell = printed[_PAPER[role]].get(number, {})
            row += [cell.get("share"), cell.get("tokens"), None, None]
        rows.append(tuple(row))
    return Table(
        "attention-shares",
        f"Share of the reasoning's tokens that hold {study.keep:.0%} of its weight, by layer of the large model",
        tuple(columns),
        tuple(rows),
        (
            "small-R, large-R: whose reasoning the large model reads. Share and tokens: of the weights averaged over "
            "the heads; single heads: median (range) of the shares of each by itself. Means over questions. On it: how "
            "much of all attention of the prompt's last token, from which the answer is written, is on the reasoning. "
            "Layers count from 0",
            f"paper: as printed in table 16 of {SOURCE} (8B with 2B, other questions; both readings are single figures "
            "that fit one reasoning of 120 and one of 256 tokens)",
            *notes(study),
        ),
    )


def _top_tokens(study: Study, layers: Mapping[str, list[Layer]]) -> Table:
    columns = (Column("layer"), *(Column(f"{READINGS[role]}: % of weight / % of tokens") for role in layers))
    rows = []
    for number, pair in enumerate(zip(*layers.values(), strict=True)):
        texts = [
            [f"{top.text} {100 * top.weight:.1f}/{100 * top.tokens:.1f}" for top in one.top_tokens] for one in pair
        ]
        rows.append((str(number), *map("  ".join, texts)))
    return Table(
        "attention-tokens",
        "Tokens with the most weight, by layer",
        columns,
        tuple(rows),
        ("all questions together; ordered by how far a token's share of the weight exceeds its share of the tokens",),
    )


def _groups(study: Study, layers: Mapping[str, list[Layer]]) -> Table:
    rows = []
    for role, found in layers.items():
        for layer in found:
            answer = layer.groups.get(ANSWER)
            if answer is None:
                continue
            rows.append(
                (
                    READINGS[role], str(layer.layer), 100 * answer.weight, 100 * answer.tokens, answer.rank,
                    answer.chance_rank, 100 * answer.first,
                    *(lift.lift if (lift := layer.groups.get(name)) else None for name in GROUPS),
                )
            )  # fmt: skip
    columns = (
        Column("reading"), Column("layer"), Column("answer: % of weight", POINTS), Column("% of tokens", POINTS),
        Column("rank", POINTS), Column("by chance", POINTS), Column("first, %", POINTS),
        *(Column(f"lift: {name}" if name == ANSWER else name, FACTOR) for name in GROUPS),
    )  # fmt: skip
    answered = ", ".join(f"{READINGS[role]} {reading.answered:,}" for role, reading in study.readings.items())
    return Table(
        "attention-groups",
        "What the weight is on: the answer that the reasoning states, against all else",
        columns,
        tuple(rows),
        (
            "lift: share of the weight over share of the tokens; 1 if the model did not tell these tokens from others. "
            "Earlier answer: all mentions but the last; just before: the token in front of each mention, where a "
            "causal model has the answer in mind without having read it; signs: punctuation and spaces",
            "rank: that of the answer's best token among the reasoning's, median; by chance: its mean if ranks were "
            "drawn at random; first: questions where it is the token with the most weight",
            f"questions whose reasoning states an answer: {answered}; the gold answer plays no part",
        ),
    )


def _tasks(study: Study) -> Table:
    rows = []
    for role, reading in study.readings.items():
        for task, looks in reading.tasks().items():
            cells: list[Cell] = [READINGS[role], task, len(looks)]
            for name in _BY_TASK:
                cells += _range(looks, name)
            rows.append(tuple(cells))
    columns = [Column("reading"), Column("task"), Column("n", COUNT)]
    for name in _BY_TASK:
        columns += [Column(f"lift: {name}"), Column("rank / by chance")]
    return Table(
        "attention-tasks",
        "The same by task: lowest and highest lift of all layers, and the rank at the highest",
        tuple(columns),
        tuple(rows),
        ("the layer with the highest lift is picked after the fact, from as many layers as there are",),
    )


def _range(looks: list[Look], name: str) -> list[Cell]:
    by_layer = [lift for layer in range(len(looks[0].set_size)) if (lift := lifts(looks, layer).get(name))]
    if not by_layer:
        return [None, None]
    high = max(range(len(by_layer)), key=lambda layer: by_layer[layer].lift)
    best, low = by_layer[high], min(lift.lift for lift in by_layer)
    return [f"{low:.2f} to {best.lift:.2f} (layer {high})", f"{best.rank:.1f} / {best.chance_rank:.1f}"]


def as_json(study: Study) -> dict[str, Any]:
    """Everything, numbers unrounded; shares are 0 to 1."""
    return {
        "models": dict(study.models),
        "questions": study.questions,
        "asked": study.asked,
        "n": study.n,
        "same_reasoning": study.same,
        "keep": study.keep,
        "toy": study.toy,
        "left_out": dict(study.left_out),
        "notes": list(notes(study)),
        "readings": {
            READINGS[role]: {
                "reasoning_tokens_mean": reading.mean_tokens,
                "cut": sum(look.cut for look in reading.looks),
                "answered": reading.answered,
                "layers": [_layer(layer) for layer in reading.layers()],
                "tasks": {
                    task: {
                        "n": len(looks),
                        "layers": [
                            {"layer": layer, "groups": _lifts(lifts(looks, layer))}
                            for layer in range(len(looks[0].set_size))
                        ],
                    }
                    for task, looks in reading.tasks().items()
                },
            }
            for role, reading in study.readings.items()
        },
        "example": {
            "question_id": study.example.question_id,
            "question": study.example.question,
            "readings": {
                READINGS[role]: {"tokens": reading.tokens, "weights": reading.weights.tolist()}
                for role, reading in study.example.readings.items()
            },
        },
        "paper": {"source": SOURCE, **paper()["table16_reasoning_attention"]},
    }


def _layer(layer: Layer) -> dict[str, Any]:
    answer = layer.groups.get(ANSWER)
    return {
        "layer": layer.layer,
        "share_mean": layer.share,
        "tokens_mean": layer.tokens,
        "per_head": list(layer.head_shares),
        "on_reasoning": layer.on_reasoning,
        "top_tokens": [asdict(token) for token in layer.top_tokens],
        "answer_lift": answer.lift if answer else None,
        "groups": _lifts(layer.groups),
    }


def _lifts(groups: Mapping[str, Lift]) -> dict[str, Any]:
    return {name: {**asdict(lift), "lift": lift.lift} for name, lift in groups.items()}
