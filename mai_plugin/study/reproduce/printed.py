"""The figures of the paper's tables, each with what has to be run to measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, TRANSFER
from mai_plugin.paper.figures import paper

TABLES = {"Qwen3-VL": (5, 6, 7, 8, 9, 10, 11, 15), "InternVL3.5": (13, 14)}
"""Family to the tables of it that can be reproduced."""
TITLES = {
    5: "output tokens per question",
    6: "POPE, F1",
    7: "scores",
    8: "reasoning transfer",
    9: "sparse transfer",
    10: "MAI: routes and scores",
    11: "total time",
    13: "output tokens per question",
    14: "scores",
    15: "R or R(S2) in MAI's second step",
}
SCORE, TOKENS, KEPT, SECONDS = "score", "output tokens", "tokens handed on", "total s"
SHARES = {"agree_s": AGREE_SIMPLE, "agree_r": AGREE_REASON, "transfer": TRANSFER}
"""The paper's name of a count to the route whose questions it counts."""
SPARSE_TABLE = 9
SPARSE_WAY = "sparse-R-L"
"""Sparse transfer at the layer of the large model whose number follows."""
MAI_TWO_STAGE = "MAI, R(S2)"
"""MAI with R(S2) in its second step (table 15): no run of its own, but a replay of other runs' calls."""

Need = tuple[tuple[str, ...], str]
"""Sizes of the models, small before large, and the way that they are asked: `S`, `E`, `R`, `E-S2`, `R-S2`,
`transfer-R`, `sparse-R-L16` (or another layer) or `MAI`.  That is what a run is for."""


@dataclass(frozen=True)
class Printed:
    """One figure of the paper.

    Attributes:
        table: its number.
        sizes: of the models that answer, small before large.
        way: how they are asked: as in `Need`, or `MAI_TWO_STAGE`.
        benchmark: as in `harness.benchmarks.BENCHMARKS`.
        what: `SCORE` (points), `TOKENS` and `KEPT` (per question), a route (per cent of the questions), `SECONDS`, or a
            speed-up, `speed-up against` another way.
        value: as printed, or, for a route, the printed count as a share; None where the paper prints none, but a reader
            has to see it.
        remarks: what to keep in mind.
    """

    table: int
    sizes: tuple[str, ...]
    way: str
    benchmark: str
    what: str
    value: float | None
    remarks: tuple[str, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether it is a time, which calls that are reused would falsify."""
        return self.what == SECONDS or self.against is not None

    @property
    def against(self) -> Need | None:
        """For a speed-up: the run whose seconds are divided by this one's."""
        other = self.what.removeprefix("speed-up against ")
        if other == self.what:
            return None
        return (self.sizes, "transfer-R") if other == "full transfer" else ((self.sizes[-1],), other.rpartition("-")[2])

    @property
    def needs(self) -> tuple[Need, ...]:
        """The runs that it is worked out from, the one that is measured first."""
        if self.way == MAI_TWO_STAGE:
            small, large = self.sizes
            return (self.sizes, "transfer-R"), ((large,), "S"), ((small,), "S"), ((small,), "R-S2")
        own = (self.sizes, self.way)
        return (own, self.against) if self.against else (own,)


def printed_figures(family: str, tables: Sequence[int], benchmarks: Sequence[str]) -> list[Printed]:
    """The figures of some tables on some benchmarks, in the tables' order.

    Args:
        family: a key of `TABLES`.
        tables: their numbers.
        benchmarks: as in `harness.benchmarks.BENCHMARKS`.

    Raises:
        ValueError: a table is not to be had for the family, or none of its figures is for the benchmarks.
    """
    found: list[Printed] = []
    for table in tables:
        if table not in TABLES[family]:
            raise ValueError(
                f"--tables {table}: not a table of {family} that can be reproduced; those are "
                f"{','.join(map(str, TABLES[family]))}"
            )
        figures = [figure for figure in _READERS[table](table) if figure.benchmark in benchmarks]
        if not figures:
            raise ValueError(f"--tables {table}: prints nothing for --benchmarks {','.join(benchmarks)}")
        found += figures
    return found


def is_printed(table: int, benchmarks: Sequence[str]) -> bool:
    """Whether a table prints anything for some benchmarks."""
    return any(figure.benchmark in benchmarks for figure in _READERS[table](table))


def _tokens(table: int) -> Iterator[Printed]:
    name = {5: "table5_output_tokens_qwen3vl", 13: "table13_output_tokens_internvl35"}[table]
    for size, benchmarks in paper()[name].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                yield Printed(table, (size,), way, benchmark, TOKENS, value)


def _pope(table: int) -> Iterator[Printed]:
    for size, ways in paper()["table6_pope_f1"].items():
        for way, value in ways.items():
            yield Printed(table, (size,), way.replace("(S2)", "-S2"), "POPE", SCORE, value)


def _scores(table: int) -> Iterator[Printed]:
    for size, benchmarks in paper()["table7_scores_qwen3vl"].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                yield Printed(table, (size,), _two_stage(way, benchmark), benchmark, SCORE, value)


def _scores_internvl(table: int) -> Iterator[Printed]:
    for size, benchmarks in paper()["table14_scores_internvl35"].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                if way == "S":
                    yield Printed(table, (size,), way, benchmark, SCORE, value)
                    continue
                unsaid = ("the paper does not say whether with S2",)
                yield Printed(table, (size,), way, benchmark, SCORE, value, unsaid)
                yield Printed(table, (size,), f"{way}-S2", benchmark, SCORE, value, unsaid)


def _transfer(table: int) -> Iterator[Printed]:
    for row, benchmarks in paper()["table8_transfer"].items():
        for benchmark, value in benchmarks.items():
            if row == "4B+2B-R":
                yield Printed(table, ("2B", "4B"), "transfer-R", benchmark, SCORE, value)
                continue
            size, _, way = row.partition("-")
            asked = way if size == "2B" else _two_stage(way, benchmark)
            yield Printed(table, (size,), asked, benchmark, SCORE, value)


def _sparse(table: int) -> Iterator[Printed]:
    rows, pair = paper()["table9_sparse_transfer_pope"], ("2B", "8B")
    yield Printed(table, ("8B",), "S", "POPE", SCORE, rows["8B-S"]["f1"])
    for layer, row in rows["layers"].items():
        yield Printed(table, pair, f"{SPARSE_WAY}{layer}", "POPE", KEPT, row["tokens"])
        yield Printed(table, pair, f"{SPARSE_WAY}{layer}", "POPE", SCORE, row["f1"])
    yield Printed(table, ("2B",), "R", "POPE", TOKENS, rows["full"]["tokens"])
    yield Printed(table, pair, "transfer-R", "POPE", SCORE, rows["full"]["f1"])


def _cascade(table: int) -> Iterator[Printed]:
    pair = ("2B", "8B")
    for benchmark, row in paper()["table10_mai_2b_8b"].items():
        yield from _routes(table, "MAI", benchmark, row, row["n"])
        remarks = _conflict(table, benchmark, "final")
        yield Printed(table, pair, "MAI", benchmark, SCORE, row["final"], remarks)
        for name in ("2B-S", "2B-R", "8B-S"):
            size, way = name.split("-")
            yield Printed(table, (size,), way, benchmark, SCORE, row[name])
        yield Printed(table, pair, "transfer-R", benchmark, SCORE, row["full_transfer"])


def _time(table: int) -> Iterator[Printed]:
    pair = ("2B", "8B")
    for benchmark, row in paper()["table11_total_s"].items():
        yield Printed(table, pair, "transfer-R", benchmark, SECONDS, row["full_transfer"])
        yield Printed(table, pair, "MAI", benchmark, SECONDS, row["mai"])
        yield Printed(table, pair, "MAI", benchmark, "speed-up against full transfer", row["speedup"])
        # What the paper leaves out: a cascade is worth its while only beside the large model alone.
        yield Printed(table, pair, "MAI", benchmark, "speed-up against large-R", None)
        yield Printed(table, pair, "MAI", benchmark, "speed-up against large-S", None)


def _second_step(table: int) -> Iterator[Printed]:
    for benchmark, rows in paper()["table15_r_vs_r_s2"].items():
        for name, way in (("r", "MAI"), ("r_s2", MAI_TWO_STAGE)):
            row, n = rows[name], rows["n"]
            yield from _routes(table, way, benchmark, row, n)
            remarks = _conflict(table, benchmark, "final") if way == "MAI" else ()
            yield Printed(table, ("2B", "8B"), way, benchmark, SCORE, row["final"], remarks)


def _routes(table: int, way: str, benchmark: str, row: dict[str, Any], n: int) -> Iterator[Printed]:
    for name, route in SHARES.items():
        if name in row:
            remarks = _conflict(table, benchmark, name) if way == "MAI" else ()
            yield Printed(table, ("2B", "8B"), way, benchmark, route, 100 * row[name] / n, remarks)


def _conflict(table: int, benchmark: str, what: str) -> tuple[str, ...]:
    """That another table prints another figure."""
    return tuple(
        f"table {key.removeprefix('table')} has {value:,}"
        for entry in paper()["conflicts"]
        if (entry["benchmark"], entry["what"]) == (benchmark, what) and f"table{table}" in entry
        for key, value in entry.items()
        if key.startswith("table") and key != f"table{table}"
    )


def _two_stage(way: str, benchmark: str) -> str:
    """Tables 7 and 8: E and R of the models are two-stage, but for MMMU."""
    return way if way == "S" or benchmark == "MMMU" else f"{way}-S2"


_READERS = {
    5: _tokens, 6: _pope, 7: _scores, 8: _transfer, 9: _sparse, 10: _cascade, 11: _time, 13: _tokens,
    14: _scores_internvl, 15: _second_step,
}  # fmt: skip
