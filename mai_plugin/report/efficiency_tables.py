"""Tables of sparse transfer (paper: table 9) and of speculative decoding (table 12)."""

from __future__ import annotations

import json
from dataclasses import replace

from mai_plugin.core.ways import MAI
from mai_plugin.output.table import COUNT, FACTOR, POINTS, SECONDS, TOKENS, Cell, Column, Table
from mai_plugin.report.measures import TaskResult, identities, score_cell, way
from mai_plugin.report.related_runs import Pair, Results, pairs, speedup, time_cell
from mai_plugin.run.stored import Run


def sparse_transfer(results: Results) -> Table:
    """How much of the reasoning each sparse transfer transferred, and its score beside the full one's."""
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs(results, "sparse_transfer", MAI):
        sparse = pair.run.settings.get("sparse")
        if not sparse:
            continue
        for result in results.of_run(pair.run):
            selections = sum(call.stage == "select" for sample in result.samples for call in sample.calls)
            full, kept = (result.details.get(key, 0) for key in ("full_tokens", "kept_tokens"))
            means = [count / selections if selections else None for count in (full, kept)]
            layer = sparse["layer"]
            rows.append(
                (result.label, result.task, f"{layer:.3g} of the depth" if isinstance(layer, float) else str(layer),
                 sparse["by"], sparse["keep"], selections, *means, kept / full if full else None, score_cell(result),
                 _full_score(results, pair, result))
            )  # fmt: skip
    columns = (
        Column("run"), Column("benchmark"), Column("layer"), Column("by"), Column("keep", ".2g"),
        Column("selections", COUNT), Column("full tokens", TOKENS), Column("kept tokens", TOKENS),
        Column("kept share", ".1%"), Column("score", POINTS), Column("full transfer's score", POINTS),
    )  # fmt: skip
    notes = (
        "Tokens of the large model's tokenizer, per selection. Layers count from 0. By random, last: as many tokens as "
        "attention would keep, but others. Beside a sparse cascade stands the "
        "cascade with full transfer.",
    )
    return Table("sparse", "Sparse transfer (paper: table 9)", columns, tuple(rows), notes)


def speculative(results: Results) -> Table:
    """Speculative decoding beside the same model without an assistant."""
    rows: list[tuple[Cell, ...]] = []
    for label, run in results.runs:
        if run.strategy != "speculative":
            continue
        model, wanted = _unassisted(run), replace(way(run), strategy="single")
        for result in results.of_run(run):
            alone = next(
                (other for other in reversed(list(results))
                 if other.task == result.task and way(other.run) == wanted and _unassisted(other.run) == model
                 and other.run.engine == run.engine),
                None,
            )  # fmt: skip
            drafted, accepted = (result.details.get(key, 0) for key in ("drafted_tokens", "accepted_tokens"))
            seconds = time_cell(run)
            rows.append(
                (label, result.task, result.n, accepted / drafted if drafted else None, seconds,
                 seconds / len(run.samples) if isinstance(seconds, float) else None,
                 speedup(run, alone.run) if alone else None, score_cell(result), score_cell(alone) if alone else None)
            )  # fmt: skip
    columns = (
        Column("run"), Column("benchmark"), Column("n", COUNT), Column("drafts accepted", ".1%"),
        Column("total s", ",.1f"), Column("s per question", SECONDS), Column("speed-up", FACTOR),
        Column("score", POINTS), Column("without assistant", POINTS),
    )  # fmt: skip
    notes = (
        "Speed-up: against the same model without an assistant, as it was run; this decodes one prompt at a time.",
    )
    return Table("speculative", "Speculative decoding (paper: table 12)", columns, tuple(rows), notes)


def _unassisted(run: Run) -> str:
    """Identity of a single model, what tells of its assistant left out."""
    who, brace, changing = identities(run).get("model", "").partition(" {")
    args = json.loads(brace + changing) if brace else {}
    args = {key: value for key, value in args.items() if key not in ("assistant_model", "assistant_args")}
    return f"{who} {json.dumps(args, sort_keys=True)}"


def _full_score(results: Results, pair: Pair, result: TaskResult) -> Cell:
    own = way(pair.run)
    full = replace(own, sparse=False) if own.strategy == MAI else replace(own, strategy="transfer")
    other = pair.like(results, full, result.task)
    if other is None:
        return None
    return score_cell(other) if other.documents == result.documents else "other questions"
