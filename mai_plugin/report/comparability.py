"""Own scores beside others': a difference only where the two measure the same thing, else the reason why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mai_plugin.report.leaderboard import about, best
from mai_plugin.report.published import Figure


@dataclass(frozen=True)
class SideBySide:
    """Two figures side by side.

    Attributes:
        own, other: the figures, in this order.
        refused: why they cannot be compared; if empty, `difference` says what is between them.
        flags: what to keep in mind.
    """

    own: Figure
    other: Figure
    refused: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def difference(self) -> float | None:
        """Own less other, in points; None if they cannot be compared."""
        return None if self.refused else self.own.value - self.other.value


def compare(own: Figure, other: Figure) -> SideBySide:
    """Whether two figures may be compared, and how far.

    Refused: a toy model; another split, metric, harness or number of questions in the whole split.  Flagged: part of
    the questions, a harness or metric that the source does not name, another scorer, another way to ask, other
    settings.
    """
    refused: list[str] = []
    flags: list[str] = []
    if own.system.toy:
        refused.append("toy model on toy data")
    if own.split != other.split:
        same = other.split == "EN" and own.split.startswith("EN")
        (flags if same else refused).append(f"{own.benchmark} {own.split} against {other.split}")
    if own.metric != other.metric:
        unsaid = other.metric == "not said" or {own.metric, other.metric} == {"accuracy", "circular accuracy"}
        if unsaid and other.harness is None:
            flags.append(f"{own.metric} here; the source does not say whether its figure is")
        else:
            refused.append(f"{own.metric} against {other.metric}")
    if other.harness is None:
        flags.append("the source names no harness")
        if own.harness == "VLMEvalKit" and other.full_n is not None:
            refused.append("VLMEvalKit against figures whose n and metrics are lmms-eval's")
    elif own.harness != other.harness:
        refused.append(f"{own.harness} against {other.harness}: they score the same answers differently")
    if own.full_n and other.full_n and own.full_n != other.full_n:
        refused.append(f"{own.full_n:,} questions in the one, {other.full_n:,} in the other")
    if own.n and own.full_n and own.n != own.full_n:
        flags.append(f"{own.n:,} of {own.full_n:,} questions")
    if own.scorer and other.scorer and own.scorer != other.scorer:
        flags.append(f"scored by {own.scorer} here, by {other.scorer} there")
    elif "judge" in own.scorer or "judge" in other.scorer:
        flags.append("a judge may have scored")
    if other.system.way is None:
        if len(own.system.sizes) > 1:
            flags.append("one model alone there")
        flags.append("how it was asked there is not known")
    elif own.system.way != other.system.way:
        flags.append(f"{own.system.way} here, {other.system.way} there")
    return SideBySide(own, other, tuple(refused), (*flags, *other.remarks))


def beside_paper(own: Figure, figures: Iterable[Figure]) -> list[SideBySide]:
    """The paper's figures of the same models asked in the same way on the same benchmark.

    A toy has no counterpart: it is put beside the 2B, the 8B or both, in the paper's main pair.
    """
    sizes, family = own.system.sizes, own.system.family
    if own.system.toy:
        family = "Qwen3-VL"
        sizes = ("2B", "8B") if len(sizes) > 1 else ("2B",) if "small" in sizes[0] else ("8B",)
    return [
        compare(own, figure)
        for figure in figures
        if (figure.benchmark, figure.system.family, figure.system.sizes) == (own.benchmark, family, sizes)
        and figure.system.way == own.system.way
    ]


def beside_reported(own: Figure, figures: Iterable[Figure]) -> list[SideBySide]:
    """Reported figures of each of the models."""
    return [
        compare(own, figure)
        for figure in figures
        if figure.benchmark == own.benchmark
        and figure.system.family == own.system.family
        and figure.system.sizes[0] in own.system.sizes
    ]


def beside_leaderboard(own: Figure, figures: Sequence[Figure], names: Sequence[str]) -> list[SideBySide]:
    """A leaderboard's figures of each of the models; where it has none of them, its three best for orientation."""
    mine = [found for name in names for found in about(figures, name) if found.benchmark == own.benchmark]
    return [compare(own, figure) for figure in mine or best(figures, own.benchmark, 3)]
