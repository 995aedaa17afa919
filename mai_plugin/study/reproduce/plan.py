"""Which runs of lmms-eval the paper's tables take: each run once, in an order in which later ones reuse calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mai_plugin.harness.benchmarks import BENCHMARKS
from mai_plugin.harness.lmms_eval.command import Evaluation
from mai_plugin.paper.printed import SPARSE_TABLE, TABLES, Need, Printed, printed_figures, table_figures
from mai_plugin.settings import STORE_FILE, Settings
from mai_plugin.settings.presets import family_models

TASK_NAMES = {
    "POPE": "pope",
    "MMMU": "mmmu_val",
    "MMBench": "mmbench_en_dev_static",
    "ChartQA": "chartqa",
    "InfoVQA": "infovqa_val",
    "RealWorldQA": "realworldqa",
}
"""Benchmark to task of lmms-eval.  MMBench with its rules: the other task asks a judge, which needs a key."""
MAX_REASONING_TOKENS = 8192
"""Default limit on E and R.  The paper names none; its mean for the 2B's R on MMMU, 2,019, rules 2,048 out."""

_PRESETS = {"Qwen3-VL": "Qwen3VL", "InternVL3.5": "InternVL3_5"}
_STRATEGIES = ("single", "transfer", "sparse_transfer", "mutual_verification")
"""In the order in which they are run."""
SPARSE_DEPTH = 36
"""Decoder layers of the paper's 8B: in another model, a layer of table 9 is the one at the same share of the depth."""


@dataclass(frozen=True)
class Request:
    """What is to be reproduced, and how.

    Attributes:
        family: `Qwen3-VL` or `InternVL3.5`.
        tables: numbers of the paper's tables.
        benchmarks: as in `harness.benchmarks.BENCHMARKS`.
        models: size in the paper to the model that is run for it; sizes without one are left out.
        out: folder for the call store, results and logs.
        limit: questions per benchmark; None for all.
        engine, engine_args, batch_size, max_reasoning_tokens: as in `Settings`, for all runs.
        base_urls: size to its server's URL, for engine `openai`.
    """

    family: str
    tables: tuple[int, ...]
    benchmarks: tuple[str, ...]
    models: Mapping[str, str]
    out: Path
    limit: int | None = None
    engine: str = Settings.engine
    engine_args: str | None = None
    batch_size: int = 16
    max_reasoning_tokens: int = MAX_REASONING_TOKENS
    base_urls: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """The call store that all runs share."""
        return self.out / "mai_runs" / STORE_FILE

    @property
    def replaced(self) -> dict[str, str]:
        """Size to model, where it is not the paper's."""
        own = paper_models(self.family)
        return {size: name for size, name in self.models.items() if own[size] != name}


@dataclass(frozen=True)
class Planned:
    """One run of lmms-eval.

    Attributes:
        need: what it is for.
        benchmarks: in the paper's order.
        tables: those that it serves.
        timed: it reuses no call, because its seconds count.
    """

    need: Need
    benchmarks: tuple[str, ...]
    tables: tuple[int, ...]
    timed: bool = False

    @property
    def key(self) -> str:
        """Its name: of its folder and its log."""
        sizes, way = self.need
        timed = [f"timed-{TASK_NAMES[benchmark]}" for benchmark in self.benchmarks if self.timed]
        return "-".join(["+".join(sizes), str(way), *timed])

    @property
    def tasks(self) -> list[str]:
        """lmms-eval's tasks."""
        return [TASK_NAMES[benchmark] for benchmark in self.benchmarks]


@dataclass(frozen=True)
class Plan:
    """The runs that a request takes, in their order, and the figures that they measure.

    Attributes:
        request: what it is a plan of.
        figures: the paper's, those for which there are models.
        runs: each needs nothing of a later one.
        left_out: what there is no model for, one line each.
    """

    request: Request
    figures: tuple[Printed, ...]
    runs: tuple[Planned, ...]
    left_out: tuple[str, ...]

    def run_for(self, need: Need, benchmark: str) -> Planned:
        """The run that measures something on a benchmark."""
        return next(run for run in self.runs if run.need == need and benchmark in run.benchmarks)


def make_plan(request: Request) -> Plan:
    """Work out the runs, each once, whatever number of figures it serves.

    Timed runs are of one benchmark each, and come first: they leave their calls to all others.

    Raises:
        ValueError: an unknown table, no figure left, or an argument that the package does not take.
    """
    figures = printed_figures(request.family, request.tables, request.benchmarks)
    missing = {size for figure in figures for need in figure.needs for size in need[0] if size not in request.models}
    kept = [figure for figure in figures if not missing & {size for need in figure.needs for size in need[0]}]
    if not kept:
        raise ValueError(f"nothing is left of tables {_join(request.tables)} without a model for {_join(missing)}")
    tables: dict[tuple[Need, str], set[int]] = {}
    for figure in kept:
        for need in figure.needs:
            tables.setdefault((need, figure.benchmark), set()).add(figure.table)
    timed = {(need, figure.benchmark) for figure in kept if figure.timed for need in figure.needs}
    runs = [Planned(need, (benchmark,), tuple(sorted(tables[need, benchmark])), True) for need, benchmark in timed]
    for need in {need for need, _ in tables}:
        served = tuple(name for name in BENCHMARKS if (need, name) in tables and (need, name) not in timed)
        if served:
            numbers = set().union(*(tables[need, name] for name in served))
            runs.append(Planned(need, served, tuple(sorted(numbers))))
    plan = Plan(request, tuple(kept), tuple(sorted(runs, key=_order)), _left_out(figures, missing))
    for run in plan.runs:
        settings(request, run)
    return plan


def paper_models(family: str) -> dict[str, str]:
    """Size to checkpoint, as the package's presets name them."""
    return family_models(_PRESETS[family])


def evaluation(request: Request, run: Planned) -> Evaluation:
    """The lmms-eval command of a run.

    Raises:
        ValueError: a value that `--model_args` cannot carry.
    """
    given = {**_arguments(request, run), "store": str(request.store)}
    for key, value in given.items():
        if key != "engine_args" and "," in value:
            raise ValueError(f"{key} {value!r} holds a comma, at which lmms-eval splits its --model_args")
    model_args = ",".join(f"{key}={value}" for key, value in given.items())
    folder = request.out / "results" / (f"limit-{request.limit}" if request.limit else "all") / run.key
    return Evaluation(run.need[1].lmms_eval_model, model_args, run.tasks, request.batch_size, folder, request.limit)


def settings(request: Request, run: Planned) -> Settings:
    """What the package makes of a run's arguments.

    Raises:
        ValueError: it does not take one of them.
    """
    given = {**_arguments(request, run), "store": str(request.store), "batch_size": str(request.batch_size)}
    return Settings.from_args(run.need[1].strategy, given)


def _arguments(request: Request, run: Planned) -> dict[str, str]:
    """A run's `--model_args`, without the store."""
    sizes, way = run.need
    roles = dict(zip(("model",) if len(sizes) == 1 else ("small", "large"), sizes, strict=True))
    given = {role: request.models[size] for role, size in roles.items()}
    if way.layer is not None and sizes[-1] in request.replaced:
        way = replace(way, layer=round(way.layer / SPARSE_DEPTH, 3))
    given |= way.arguments
    if way.strategy == "sparse_transfer" and request.engine == "vllm":
        given["selector"] = given["large"]
    for role, size in roles.items():
        if size in request.base_urls:
            given["base_url" if role == "model" else f"{role}_base_url"] = request.base_urls[size]
    if request.engine != Settings.engine:
        given["engine"] = request.engine
    if request.engine_args:
        given["engine_args"] = request.engine_args
    given["max_reasoning_tokens"] = str(request.max_reasoning_tokens)
    return {**given, "reuse": "false"} if run.timed else given


def _order(run: Planned) -> tuple[Any, ...]:
    """Timed runs first; a two-stage run before the plain one whose call it makes."""
    sizes, way = run.need
    benchmark = BENCHMARKS.index(run.benchmarks[0]) if run.timed else -1
    asked = _STRATEGIES.index(way.strategy), "SER".index(way.style), not way.two_stage, way.layer or 0
    return not run.timed, benchmark, len(sizes), [_billions(size) for size in sizes], asked


def _left_out(figures: Iterable[Printed], missing: Iterable[str]) -> tuple[str, ...]:
    lines = []
    for size in sorted(missing, key=_billions):
        dropped = [figure for figure in figures if any(size in sizes for sizes, _ in figure.needs)]
        tables = _join(sorted({figure.table for figure in dropped}))
        lines.append(f"{size}: no model given for it: {len(dropped):,} figures of the tables ({tables}) are left out.")
    return tuple(lines)


def _billions(size: str) -> float:
    return float(size.rstrip("B"))


def _join(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def parse_request(
    *,
    tables: str | None,
    family: str,
    benchmarks: str | None,
    models: str | None,
    base_urls: str | None,
    **more: Any,
) -> Request:
    """A request from the command line.

    Args:
        tables: with commas between; None for all that print something for the benchmarks.  Table 9 only if it is asked
            for where the engine is `openai`.
        benchmarks: with commas between, by their names or their tasks'; None for all.
        family: `qwen3-vl` or `internvl3.5`.
        models, base_urls: `SIZE=VALUE` with commas between; models of None for the paper's.
        **more: other attributes of `Request`.

    Raises:
        ValueError: one line that names the option and what it accepts.
    """
    families = {name.lower(): name for name in TABLES}
    if family.lower() not in families:
        raise ValueError(f"--family {family}: expected {' or '.join(families)}")
    chosen = families[family.lower()]
    own = paper_models(chosen)
    asked = BENCHMARKS if benchmarks is None else _benchmarks(benchmarks)
    if tables is None:
        left_out = SPARSE_TABLE if more.get("engine") == "openai" else None  # servers give no attention
        printed = {n: {figure.benchmark for figure in table_figures(n)} for n in TABLES[chosen]}
        numbers = tuple(n for n in TABLES[chosen] if n != left_out and printed[n] & set(asked))
    else:
        numbers = tuple(_number(table) for table in _split(tables))
        if SPARSE_TABLE in numbers and more.get("engine") == "openai":
            raise ValueError(
                f"--tables {SPARSE_TABLE}: sparse transfer needs attention, which servers do not give: "
                "choose --engine transformers or vllm"
            )
    request = Request(
        family=chosen,
        tables=tuple(dict.fromkeys(numbers)),
        benchmarks=asked,
        models=own if models is None else _by_size("--models", models, own),
        base_urls={} if base_urls is None else _by_size("--base-urls", base_urls, own),
        **more,
    )
    if not request.benchmarks:
        raise ValueError(f"--benchmarks names none; expected some of {', '.join(BENCHMARKS)}")
    if not request.tables:
        raise ValueError(f"--tables names no table; expected some of {','.join(map(str, TABLES[chosen]))}")
    if not request.models:
        raise ValueError(f"--models: name at least one, as SIZE=MODEL; sizes are {', '.join(own)}")
    return replace(request, base_urls={size: url for size, url in request.base_urls.items() if size in request.models})


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(table: str) -> int:
    if not table.isdecimal():
        raise ValueError(f"--tables {table!r}: numbers of the paper's tables are wanted, such as 5,7,10")
    return int(table)


def _benchmarks(text: str) -> tuple[str, ...]:
    names = {name.lower(): name for name in BENCHMARKS} | {task: name for name, task in TASK_NAMES.items()}
    for name in _split(text):
        if name.lower() not in names:
            raise ValueError(f"--benchmarks {name}: expected {', '.join(BENCHMARKS)}")
    chosen = {names[name.lower()] for name in _split(text)}
    return tuple(name for name in BENCHMARKS if name in chosen)


def _by_size(option: str, text: str, sizes: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for part in _split(text):
        size, _, value = part.partition("=")
        if size.upper() not in sizes or not value:
            raise ValueError(f"{option} {part!r}: SIZE=VALUE is wanted, with SIZE one of {', '.join(sizes)}")
        found[size.upper()] = value
    return {size: found[size] for size in sizes if size in found}
