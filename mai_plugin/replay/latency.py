"""Modelled time of a call: linear in the tokens that it writes, `a + b * n`, one fit per model.

Decoding takes nearly all of a call's time, and a step takes the same time whatever it writes, so that two figures per
model are enough (arXiv 2604.04929, table 4).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mai_plugin.core.records import Completion, in_order
from mai_plugin.paper.figures import model_size, paper

PAPER_COLUMN = "256/128"
"""Table 4's first column (image side / input tokens): what `paper_latency` is fitted to."""
PAPER_SIZES = {"small": "2B", "large": "8B"}
"""The paper's main pair: used for a model whose name states no size of table 4."""


@dataclass(frozen=True)
class Latency:
    """Seconds of one call of a model, `fixed_s + per_token_s * output tokens`.

    Attributes:
        fixed_s: seconds of a call that writes nothing: reading the prompt, and waiting where that was measured.
        per_token_s: seconds per output token.
        source: where the two figures come from.
        r2: share of the times' variance that the line explains: near 0 where other factors dominate.
    """

    fixed_s: float
    per_token_s: float
    source: str
    r2: float

    def seconds(self, output_tokens: int) -> float:
        """Modelled end-to-end time of a call."""
        return self.fixed_s + self.per_token_s * output_tokens


def fit(output_tokens: Sequence[float], seconds: Sequence[float], source: str) -> Latency:
    """Least squares.  A negative constant would make short calls free: then it is 0 and only the slope is fitted.

    Raises:
        ValueError: fewer than two different token counts, or times that do not grow with them.
    """
    if len(set(output_tokens)) < 2:
        raise ValueError(f"no latency fit for {source}: it needs calls of at least two different lengths")
    slope, intercept = statistics.linear_regression(output_tokens, seconds)
    if intercept < 0:
        slope = sum(n * s for n, s in zip(output_tokens, seconds, strict=True)) / sum(n * n for n in output_tokens)
        intercept = 0.0
    if slope <= 0:
        raise ValueError(f"no latency fit for {source}: the measured times do not grow with the output tokens")
    misses = sum((s - intercept - slope * n) ** 2 for n, s in zip(output_tokens, seconds, strict=True))
    spread = statistics.pvariance(seconds) * len(seconds)
    return Latency(intercept, slope, source, 1 - misses / spread)


def measured_latency(calls: Iterable[tuple[str, Completion]]) -> dict[str, Latency]:
    """A fit per role from calls as they were measured, each stored call counted once.

    The end-to-end time of a call that waited in a batch counts its waiting: the fit is that of the load it ran under.

    Args:
        calls: role and what came of it.

    Raises:
        ValueError: a role's calls allow no fit.
    """
    by_role: dict[str, dict[int | None, Completion]] = {}
    for number, (role, done) in enumerate(calls):
        by_role.setdefault(role, {})[-number if done.call_id is None else done.call_id] = done
    fits = {}
    for role in in_order(by_role):
        made = by_role[role].values()
        tokens, seconds = [done.output_tokens for done in made], [done.e2e_s for done in made]
        try:
            fits[role] = fit(tokens, seconds, f"{len(made):,} measured calls")
        except ValueError as error:
            raise ValueError(f"{role} model: {error}; use the paper's with --latency paper") from None
    return fits


def paper_latency(names: Mapping[str, str], overhead_s: float = 0.0) -> dict[str, Latency]:
    """The paper's table 4, per role, by the size that a model's name states (2B and 8B where it states none).

    Args:
        names: role to model name.
        overhead_s: added to every call; table 4 has none of what a harness does around one.
    """
    fits = {}
    for role, name in names.items():
        found = model_size(name)
        stated = found is not None and found[0] == "Qwen3-VL" and found[1] in paper()["table4_decode_ms"]
        size = found[1] if found and stated else PAPER_SIZES.get(role, "2B")
        column = paper()["table4_decode_ms"][size][PAPER_COLUMN]
        stand_in = "" if stated else f", in place of {name.rstrip('/').rpartition('/')[2]}"
        line = fit(list(column), [ms / 1000 for ms in column.values()], f"the paper's table 4, {size}{stand_in}")
        fits[role] = replace(line, fixed_s=line.fixed_s + overhead_s)
    return fits
