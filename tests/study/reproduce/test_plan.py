"""From tables to runs: what is needed, once each, in a good order, as commands that the package takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.pretended import plan_of

from mai_plugin.core.records import Sparse
from mai_plugin.harness.lmms_eval.registration import MODELS
from mai_plugin.paper.figures import paper
from mai_plugin.paper.printed import CASCADE, TABLES, R, printed_figures
from mai_plugin.settings import Settings
from mai_plugin.study.reproduce.plan import TASK_NAMES, Plan, evaluation, paper_models, settings
from mai_plugin.tiny.datasets import BENCHMARKS as TINY_BENCHMARKS

OUT = Path("out")


def keys(plan: Plan) -> list[str]:
    return [run.key for run in plan.runs]


@pytest.fixture(scope="module")
def qwen() -> Plan:
    return plan_of(OUT)


def test_table_7_takes_the_two_stage_runs_but_for_mmmu() -> None:
    plan = plan_of(OUT, tables="7", models="2B=a/b")
    assert {run.key: run.benchmarks for run in plan.runs} == {
        "2B-S": ("MMMU", "MMBench", "ChartQA", "InfoVQA", "RealWorldQA"),
        "2B-E-S2": ("MMBench", "ChartQA", "InfoVQA", "RealWorldQA"),
        "2B-E": ("MMMU",),
        "2B-R-S2": ("MMBench", "ChartQA", "InfoVQA", "RealWorldQA"),
        "2B-R": ("MMMU",),
    }


def test_table_8_is_reasoning_of_the_2b_read_by_the_4b() -> None:
    assert keys(plan_of(OUT, tables="8", benchmarks="chartqa")) == [
        "2B-R", "4B-S", "4B-R-S2", "8B-S", "8B-R-S2", "2B+4B-transfer-R",
    ]  # fmt: skip


def test_table_15_needs_what_its_replay_needs() -> None:
    plan = plan_of(OUT, tables="15", benchmarks="POPE,ChartQA")
    assert keys(plan) == ["2B-S", "2B-R-S2", "8B-S", "2B+8B-transfer-R", "2B+8B-MAI"]
    assert not any(run.timed for run in plan.runs)


def test_a_run_serves_all_tables_and_is_there_once(qwen: Plan) -> None:
    pairs = [(run.need, benchmark) for run in qwen.runs for benchmark in run.benchmarks]
    assert len(pairs) == len(set(pairs))
    assert len(set(keys(qwen))) == len(qwen.runs)
    assert qwen.run_for((("2B",), R), "ChartQA").tables == (5, 6, 7, 8, 9, 10)
    # What table 11 times serves the tables of scores too.
    assert qwen.run_for((("2B", "8B"), CASCADE), "ChartQA").tables == (10, 11, 15)
    for figure in qwen.figures:
        for need in figure.needs:
            assert figure.table in qwen.run_for(need, figure.benchmark).tables


def test_timed_runs_come_first_one_benchmark_each_and_reuse_nothing(qwen: Plan) -> None:
    timed = [run.timed for run in qwen.runs]
    assert timed == sorted(timed, reverse=True)
    for run in qwen.runs:
        assert settings(qwen.request, run).reuse is not run.timed
        assert len(run.benchmarks) == 1 or not run.timed
    # Table 11, and what the paper leaves out: the large model alone.
    assert {str(run.need[1]) for run in qwen.runs if run.timed} == {"S", "R", "transfer-R", "MAI"}
    assert sum(timed) == 4 * 6


def test_without_table_11_there_are_none() -> None:
    plan = plan_of(OUT, tables="5,6,7,8,10,15")
    assert not any(run.timed for run in plan.runs)
    assert len(plan.runs) == 15 + 3


def test_a_two_stage_run_precedes_the_plain_one_whose_calls_it_makes(qwen: Plan) -> None:
    order = keys(qwen)
    for size in ("2B", "4B"):
        assert order.index(f"{size}-R-S2") < order.index(f"{size}-R")
        assert order.index(f"{size}-E-S2") < order.index(f"{size}-E")


@pytest.mark.parametrize("family", ["qwen3-vl", "internvl3.5"])
def test_every_command_is_one_that_the_package_takes(family: str) -> None:
    plan = plan_of(OUT, family=family, limit=50, engine="vllm", engine_args='{"max_model_len": 16384, "seed": 1}')
    for run in plan.runs:
        command = evaluation(plan.request, run)
        assert command.model in MODELS
        made = settings(plan.request, run)
        assert made.engine == "vllm"
        assert made.store == OUT / "mai_runs" / "calls.sqlite"
        assert made.max_reasoning_tokens == 8192
        sizes, way = run.need
        models = [spec for role, spec in made.models.items() if role != "selector"]
        assert [spec.name for spec in models] == [plan.request.models[size] for size in sizes]
        assert all(spec.args == {"max_model_len": 16384, "seed": 1} for spec in models)
        if way.strategy == "sparse_transfer":
            expected = ("sparse_transfer", "R", None)
            assert made.arguments["layer"] == way.layer
            assert made.models["selector"].name == plan.request.models["8B"]
            assert asked(made) == expected
            continue
        expected = {
            "MAI": ("mutual_verification", None, None), "transfer-R": ("transfer", "R", None),
            "R-S2": ("single", "R", True), "E-S2": ("single", "E", True),
        }.get(str(way), ("single", str(way), False))  # fmt: skip
        assert asked(made) == expected
        assert set(command.tasks) <= set(TINY_BENCHMARKS)
        words = command.command()
        assert words[words.index("--limit") + 1] == "50"
        assert words[words.index("--output_path") + 1] == f"out/results/limit-50/{run.key}"
        assert "--log_samples" in words


def asked(made: Settings) -> tuple[str, str | None, bool | None]:
    return made.strategy, made.arguments.get("prompt"), made.arguments.get("two_stage")


def test_what_lmms_eval_makes_of_the_arguments_is_what_was_meant() -> None:
    """Through its own parser, JSON with commas and all."""
    from lmms_eval.utils import simple_parse_args_string

    from mai_plugin.harness.lmms_eval.model import settings_for

    plan = plan_of(
        OUT, tables="10,11", benchmarks="chartqa", engine="vllm", engine_args='{"a": [1, 2], "b": {"c": "d"}}'
    )
    for run in plan.runs:
        command = evaluation(plan.request, run)
        given = simple_parse_args_string(command.model_args)
        parsed = settings_for(command.model, {**given, "batch_size": "16", "device": None, "max_batch_size": None})
        assert parsed == settings(plan.request, run)


def test_tasks_are_the_harness_own(tasks_of_lmms_eval: set[str]) -> None:
    assert set(TASK_NAMES.values()) <= tasks_of_lmms_eval


@pytest.fixture(scope="module")
def tasks_of_lmms_eval() -> set[str]:
    from lmms_eval.tasks import TaskManager

    return set(TaskManager(model_name="mai_single").all_tasks)


def test_the_papers_models_are_those_of_the_presets() -> None:
    assert paper_models("Qwen3-VL") == {size: f"Qwen/Qwen3-VL-{size}-Instruct" for size in ("2B", "4B", "8B")}
    assert list(paper_models("InternVL3.5")) == ["1B", "2B", "4B", "8B", "14B"]


def test_sizes_without_a_model_are_left_out_and_named() -> None:
    plan = plan_of(OUT, tables="7,8", benchmarks="chartqa", models="2B=mai-tiny-small,8B=mai-tiny-large")
    assert plan.left_out == ("4B: no model given for it: 6 figures of the tables (7, 8) are left out.",)
    assert not any("4B" in run.key for run in plan.runs)
    assert plan.request.replaced == {"2B": "mai-tiny-small", "8B": "mai-tiny-large"}


def test_base_urls_go_to_the_roles() -> None:
    plan = plan_of(
        OUT, tables="10", benchmarks="chartqa", engine="openai", models="2B=small,8B=large",
        base_urls="2B=http://a:1/v1,8B=http://b:1/v1",
    )  # fmt: skip
    urls = {
        role: spec.args["base_url"] for run in plan.runs for role, spec in settings(plan.request, run).models.items()
        if str(run.need[1]) == "MAI"
    }  # fmt: skip
    assert urls == {"small": "http://a:1/v1", "large": "http://b:1/v1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": "12"}, "--tables 12: not a table of Qwen3-VL that can be reproduced; those are 5,6,7,8,9,10,11,15"),
        ({"tables": "9", "engine": "openai", "base_urls": "2B=http://a,8B=http://b"}, "--tables 9: sparse transfer needs attention, which servers do not give: choose --engine"),
        ({"tables": "seven"}, "--tables 'seven': numbers"),
        ({"family": "llava"}, "--family llava: expected qwen3-vl or internvl3.5"),
        ({"family": "internvl3.5", "tables": "5"}, "not a table of InternVL3.5 that can be reproduced; those are 13,14"),
        ({"benchmarks": "docvqa"}, "--benchmarks docvqa: expected POPE, MMMU"),
        ({"tables": "6", "benchmarks": "chartqa"}, "--tables 6: prints nothing for --benchmarks ChartQA"),
        ({"models": "3B=x"}, "--models '3B=x': SIZE=VALUE is wanted, with SIZE one of 2B, 4B, 8B"),
        ({"models": "2B"}, "--models '2B': SIZE=VALUE"),
        ({"models": ""}, "--models: name at least one"),
        ({"tables": "10", "models": "2B=x"}, ""),
        ({"tables": "15", "models": "4B=x"}, "nothing is left of tables 15 without a model for"),
        ({"engine": "vlm"}, "argument engine='vlm'"),
        ({"engine": "openai"}, "needs base_url=URL"),
        ({"engine_args": "{"}, "argument engine_args='{' is not JSON"),
        ({"engine_args": "[1]"}, "argument engine_args=[1] must be a JSON object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(options: dict[str, str], message: str) -> None:
    if not message:  # the 2B alone still has rows in table 10
        assert keys(plan_of(OUT, **options)) == ["2B-S", "2B-R"]
        return
    with pytest.raises(ValueError, match=re.escape(message)) as found:
        plan_of(OUT, **options)
    assert "\n" not in str(found.value)


def test_a_comma_that_lmms_eval_would_split_at_is_refused() -> None:
    plan = plan_of(Path("a,b"), tables="7", benchmarks="chartqa")
    with pytest.raises(ValueError, match=r"store 'a,b/mai_runs/calls\.sqlite' holds a comma"):
        evaluation(plan.request, plan.runs[0])


def test_table_9_takes_a_run_per_layer_and_another_model_the_same_share_of_its_depth() -> None:
    plan = plan_of(OUT, tables="9")
    layers = [4, 8, 10, 12, 14, 16, 22, 24]
    assert keys(plan) == [
        "2B-R",
        "8B-S",
        "2B+8B-transfer-R",
        *(f"2B+8B-sparse-transfer-R-L{layer}" for layer in layers),
    ]
    assert [settings(plan.request, run).arguments["layer"] for run in plan.runs[3:]] == layers
    tiny = plan_of(OUT, tables="9", models="2B=mai-tiny-small,8B=mai-tiny-large")
    layer = settings(tiny.request, tiny.runs[-1]).arguments["layer"]
    assert (layer, Sparse(layer).layer_of(3)) == (0.667, 2)


def test_without_tables_those_that_there_is_something_of() -> None:
    assert plan_of(OUT, benchmarks="ChartQA").request.tables == (5, 7, 8, 10, 11, 15)
    assert plan_of(OUT, benchmarks="pope").request.tables == (5, 6, 8, 9, 10, 11, 15)
    urls = {"engine": "openai", "base_urls": "2B=http://a,4B=http://b,8B=http://c"}
    assert plan_of(OUT, benchmarks="pope", **urls).request.tables == (5, 6, 8, 10, 11, 15)


def test_figures_cover_the_tables() -> None:
    """Every figure that the paper prints in the tables, none twice."""
    everything = printed_figures("Qwen3-VL", TABLES["Qwen3-VL"], list(TASK_NAMES))
    count = {
        table: sum(figure.table == table and figure.value is not None for figure in everything)
        for table in TABLES["Qwen3-VL"]
    }
    assert count == {5: 3 * 6 * 3, 6: 15, 7: 45, 8: 36, 9: 2 * 8 + 3, 10: 5 * 8, 11: 18, 15: 5 * 6}
    keys = [(figure.table, figure.sizes, figure.way, figure.benchmark, figure.what) for figure in everything]
    assert len(keys) == len(set(keys))


def test_figures_say_where_tables_conflict() -> None:
    figures = printed_figures("Qwen3-VL", (10, 15), ["MMMU"])
    told = {(figure.table, figure.what): figure.remarks for figure in figures if str(figure.way) == "MAI"}
    assert told[10, "score"] == ("table 15 has 61.22",)
    assert told[15, "score"] == ("table 10 has 62.0",)
    assert told[10, "agree-simple"] == ("table 15 has 475",)
    share = next(figure for figure in figures if figure.what == "agree-simple")
    assert share.value == pytest.approx(100 * 498 / paper()["benchmarks"]["MMMU"]["n"])
