"""The figures of the paper's tables, each with what has to be run to measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, TRANSFER
from mai_plugin.core.ways import MAI, Way
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
SCORE, TOKENS, KEPT, SECONDS = "score", "output tokens", "tokens transferred", "total s"
SHARES = {"agree_s": AGREE_SIMPLE, "agree_r": AGREE_REASON, "transfer": TRANSFER}
"""The paper's name of a count to the route whose questions it counts."""
SPARSE_TABLE = 9

S, R, FULL_TRANSFER, CASCADE = Way("single", "S"), Way("single", "R"), Way("transfer"), Way(MAI)
TWO_STAGE_CASCADE = Way(MAI, two_stage=True)
"""MAI with R(S2) in its second step (table 15): not a run of its own, but a replay of other runs' calls."""
PAIR = ("2B", "8B")

Need = tuple[tuple[str, ...], Way]
"""What a run is for: sizes of the models, small before large, and how they are asked."""


@dataclass(frozen=True)
class Printed:
    """One figure of the paper.

    Attributes:
        table: its number.
        sizes: of the models that answer, small before large.
        way: how they are asked.
        benchmark: as in `harness.benchmarks.BENCHMARKS`.
        what: `SCORE` (points), `TOKENS` and `KEPT` (per question), a route (per cent of the questions), `SECONDS`, or a
            speed-up.
        value: as printed, or, for a route, the printed count as a share; None where the paper prints none, but a reader
            has to see it.
        remarks: what to keep in mind.
        against: for a speed-up: the run whose seconds are divided by this one's.
    """

    table: int
    sizes: tuple[str, ...]
    way: Way
    benchmark: str
    what: str
    value: float | None
    remarks: tuple[str, ...] = ()
    against: Need | None = None

    @property
    def timed(self) -> bool:
        """Whether it is a time, which reused calls would falsify."""
        return self.what == SECONDS or self.against is not None

    @property
    def needs(self) -> tuple[Need, ...]:
        """The runs that it is worked out from, the one that is measured first."""
        if self.way == TWO_STAGE_CASCADE:
            small, large = self.sizes
            return (self.sizes, FULL_TRANSFER), ((large,), S), ((small,), S), ((small,), replace(R, two_stage=True))
        own = (self.sizes, self.way)
        return (own, self.against) if self.against else (own,)


def printed_figures(family: str, tables: Sequence[int], benchmarks: Sequence[str]) -> list[Printed]:
    """The figures of some tables on some benchmarks, in the tables' order.

    Raises:
        ValueError: a table cannot be reproduced for the family, or has no figure for the benchmarks.
    """
    found: list[Printed] = []
    for table in tables:
        if table not in TABLES[family]:
            known = ",".join(map(str, TABLES[family]))
            raise ValueError(f"--tables {table}: not a table of {family} that can be reproduced; those are {known}")
        figures = [figure for figure in table_figures(table) if figure.benchmark in benchmarks]
        if not figures:
            raise ValueError(f"--tables {table}: prints nothing for --benchmarks {','.join(benchmarks)}")
        found += figures
    return found


def table_figures(table: int) -> Iterator[Printed]:
    """All figures of a table: one of `TABLES`, or 12, of which only the scores on ChartQA are given."""
    return _READERS[table](table)


def _cells(key: str) -> Iterator[tuple[str, str, Way, float]]:
    """Size, benchmark, way and figure, from a table that is ordered so."""
    for size, benchmarks in paper()[key].items():
        for benchmark, ways in benchmarks.items():
            for way, value in ways.items():
                yield size, benchmark, Way.parse(way), value


def _tokens(table: int) -> Iterator[Printed]:
    key = {5: "table5_output_tokens_qwen3vl", 13: "table13_output_tokens_internvl35"}[table]
    for size, benchmark, way, value in _cells(key):
        yield Printed(table, (size,), way, benchmark, TOKENS, value)


def _pope(table: int) -> Iterator[Printed]:
    for size, ways in paper()["table6_pope_f1"].items():
        for way, value in ways.items():
            yield Printed(table, (size,), Way.parse(way.replace("(S2)", "-S2")), "POPE", SCORE, value)


def _scores(table: int) -> Iterator[Printed]:
    for size, benchmark, way, value in _cells("table7_scores_qwen3vl"):
        yield Printed(table, (size,), _two_stage(way, benchmark), benchmark, SCORE, value)


def _scores_internvl(table: int) -> Iterator[Printed]:
    unsaid = ("table 14 does not say whether with the two-stage strategy",)
    for size, benchmark, way, value in _cells("table14_scores_internvl35"):
        if way == S:
            yield Printed(table, (size,), way, benchmark, SCORE, value)
        else:
            yield Printed(table, (size,), way, benchmark, SCORE, value, unsaid)
            yield Printed(table, (size,), replace(way, two_stage=True), benchmark, SCORE, value, unsaid)


def _transfer(table: int) -> Iterator[Printed]:
    for row, benchmarks in paper()["table8_transfer"].items():
        size, _, style = row.partition("-")
        for benchmark, value in benchmarks.items():
            if size == "4B+2B":
                yield Printed(table, ("2B", "4B"), FULL_TRANSFER, benchmark, SCORE, value)
                continue
            way = Way.parse(style) if size == "2B" else _two_stage(Way.parse(style), benchmark)
            yield Printed(table, (size,), way, benchmark, SCORE, value)


def _sparse(table: int) -> Iterator[Printed]:
    rows = paper()["table9_sparse_transfer_pope"]
    yield Printed(table, ("8B",), S, "POPE", SCORE, rows["8B-S"]["f1"])
    for layer, row in rows["layers"].items():
        way = Way("sparse_transfer", layer=layer)
        yield Printed(table, PAIR, way, "POPE", KEPT, row["tokens"])
        yield Printed(table, PAIR, way, "POPE", SCORE, row["f1"])
    yield Printed(table, ("2B",), R, "POPE", TOKENS, rows["full"]["tokens"])
    yield Printed(table, PAIR, FULL_TRANSFER, "POPE", SCORE, rows["full"]["f1"])


def _cascade(table: int) -> Iterator[Printed]:
    alone = {"2B-S": (("2B",), S), "2B-R": (("2B",), R), "8B-S": (("8B",), S), "full_transfer": (PAIR, FULL_TRANSFER)}
    for benchmark, row in paper()["table10_mai_2b_8b"].items():
        yield from _routes_and_score(table, CASCADE, benchmark, row, row["n"])
        for name, (sizes, way) in alone.items():
            yield Printed(table, sizes, way, benchmark, SCORE, row[name])


def _time(table: int) -> Iterator[Printed]:
    against: dict[str, Need] = {
        "full transfer": (PAIR, FULL_TRANSFER),
        # What the paper leaves out: a cascade is worth its while only beside the large model alone.
        "large-R": (("8B",), R),
        "large-S": (("8B",), S),
    }
    for benchmark, row in paper()["table11_total_s"].items():
        yield Printed(table, PAIR, FULL_TRANSFER, benchmark, SECONDS, row["full_transfer"])
        yield Printed(table, PAIR, CASCADE, benchmark, SECONDS, row["mai"])
        for name, need in against.items():
            value = row["speedup"] if name == "full transfer" else None
            yield Printed(table, PAIR, CASCADE, benchmark, f"speed-up against {name}", value, against=need)


def _decoding(table: int) -> Iterator[Printed]:
    for name, row in paper()["table12_chartqa_decoding"].items():
        if name.startswith("8B-R"):
            yield Printed(table, ("8B",), R, "ChartQA", SCORE, row["acc_without_s2"], (name,))
            yield Printed(table, ("8B",), replace(R, two_stage=True), "ChartQA", SCORE, row["acc_with_s2"], (name,))
        elif name.startswith("MAI"):
            yield Printed(table, PAIR, CASCADE, "ChartQA", SCORE, row["acc_without_s2"], (name,))


def _second_step(table: int) -> Iterator[Printed]:
    for benchmark, rows in paper()["table15_r_vs_r_s2"].items():
        for name, way in (("r", CASCADE), ("r_s2", TWO_STAGE_CASCADE)):
            yield from _routes_and_score(table, way, benchmark, rows[name], rows["n"])


def _routes_and_score(table: int, way: Way, benchmark: str, row: dict[str, Any], n: int) -> Iterator[Printed]:
    for name, what in {**SHARES, "final": SCORE}.items():
        if name in row:
            value = row[name] if name == "final" else 100 * row[name] / n
            remarks = _conflict(table, benchmark, name) if way == CASCADE else ()
            yield Printed(table, PAIR, way, benchmark, what, value, remarks)


def _conflict(table: int, benchmark: str, what: str) -> tuple[str, ...]:
    """That another table prints another figure."""
    return tuple(
        f"table {number} has {entry[f'table{number}']:,}"
        for entry in paper()["conflicts"]
        if (entry["benchmark"], entry["what"]) == (benchmark, what) and f"table{table}" in entry
        for number in _READERS
        if number != table and f"table{number}" in entry
    )


def _two_stage(way: Way, benchmark: str) -> Way:
    """Tables 7 and 8: E and R of the models are two-stage, but for MMMU."""
    return way if way == S or benchmark == "MMMU" else replace(way, two_stage=True)


_READERS = {
    5: _tokens, 6: _pope, 7: _scores, 8: _transfer, 9: _sparse, 10: _cascade, 11: _time, 12: _decoding, 13: _tokens,
    14: _scores_internvl, 15: _second_step,
}  # fmt: skip
