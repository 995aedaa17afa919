"""How many calls a plan makes, and how long they would take one after the other, from the paper's own figures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from mai_plugin.core.ways import MAI, Way
from mai_plugin.paper.figures import paper
from mai_plugin.replay.latency import PAPER_COLUMN, Latency, fit
from mai_plugin.study.reproduce.plan import Plan, Planned


@dataclass(frozen=True)
class Step:
    """A call, as far as its cost goes: `stage` as in `Request`, `after` whose reasoning it reads and of which run."""

    benchmark: str
    size: str
    stage: str
    after: tuple[str, Way] | None = None


_TOKENS = {"Qwen3-VL": "table5_output_tokens_qwen3vl", "InternVL3.5": "table13_output_tokens_internvl35"}
STAND_INS = {"1B": "2B", "14B": "8B"}
"""Sizes that table 4 does not have, and the nearest that it has."""


@dataclass(frozen=True)
class Estimate:
    """What a run costs.

    Attributes:
        calls: that it makes; those which an earlier run of the plan has made are not among them.
        gpu_s: seconds of these calls, one after the other.
    """

    calls: int
    gpu_s: float


def estimate(plan: Plan, finished: Collection[str] = ()) -> dict[str, Estimate]:
    """Estimate every run of a plan.

    A call of a model takes `a + b n` with n output tokens, by table 4 of the paper (batch 1, its machine); n are the
    means of table 5 (InternVL3.5: table 13), a final answer is as long as one in S, and a selection writes nothing.
    MAI's routes are table 10's; on RealWorldQA, which it leaves out, those of the other five together.

    Args:
        plan: the plan.
        finished: keys of the runs that are there: they cost nothing, and their calls are reused.

    Returns:
        Run's key to its estimate.
    """
    made: dict[Step, float] = {}
    found = {}
    for run in plan.runs:
        calls = seconds = 0.0
        for step, wanted in steps(plan, run).items():
            new = wanted if run.timed else max(0.0, wanted - made.get(step, 0.0))
            made[step] = max(wanted, made.get(step, 0.0))
            calls += new
            seconds += new * seconds_of(plan.request.family, step)
        found[run.key] = Estimate(0, 0.0) if run.key in finished else Estimate(round(calls), seconds)
    return found


def steps(plan: Plan, run: Planned) -> dict[Step, float]:
    """The calls that a run takes, made or reused."""
    found: dict[Step, float] = {}
    sizes, way = run.need
    small, large = sizes[0], sizes[-1]
    for benchmark in run.benchmarks:
        full = int(paper()["benchmarks"][benchmark]["n"])
        n = full if plan.request.limit is None else min(plan.request.limit, full)
        reasoning, after = Step(benchmark, small, way.style), (small, way.reasoning)
        final = Step(benchmark, large, "final", after)
        if way.strategy == MAI:
            escalated, transferred = shares(benchmark)
            found |= {Step(benchmark, size, "S"): n for size in sizes}
            found |= {reasoning: n * escalated, final: n * transferred}
        elif way.strategy == "sparse_transfer":
            found |= {reasoning: n, Step(benchmark, large, "select", (small, way)): n}
            found[Step(benchmark, large, "final", (small, way))] = n
        elif way.strategy == "transfer" or way.two_stage:  # one model reasons, the same or another answers
            found |= {reasoning: n, final: n}
        else:
            found[reasoning] = n
    return found


def seconds_of(family: str, step: Step) -> float:
    """Modelled seconds of one call."""
    lengths = paper()[_TOKENS[family]][step.size][step.benchmark]
    length = 0.0 if step.stage == "select" else lengths["S" if step.stage == "final" else step.stage]
    line = _latency(STAND_INS.get(step.size, step.size))
    return line.fixed_s + line.per_token_s * float(length)


def shares(benchmark: str) -> tuple[float, float]:
    """Shares of the questions that MAI lets the small model reason on, and that it transfers (table 10)."""
    rows = paper()["table10_mai_2b_8b"]
    of = [rows[benchmark]] if benchmark in rows else list(rows.values())
    n = sum(row["n"] for row in of)
    transferred = sum(row["transfer"] for row in of)
    return (sum(row["agree_r"] for row in of) + transferred) / n, transferred / n


@cache
def _latency(size: str) -> Latency:
    column = paper()["table4_decode_ms"][size][PAPER_COLUMN]
    return fit(list(column), [ms / 1000 for ms in column.values()], f"the paper's table 4, {size}")
