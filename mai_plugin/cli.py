"""The `mai` command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Multi-agent inference for vision-language models. Evaluations run in lmms-eval: "
    "lmms-eval --model mai_cascade --tasks chartqa",
)
stores = typer.Typer(no_args_is_help=True, help="Look after call stores.")
app.add_typer(stores, name="store")


@app.command()
def demo(
    n: Annotated[int, typer.Option("-n", min=1, help="Number of charts.")] = 300,
    out: Annotated[Path, typer.Option(help="Folder for data, logs and results.")] = Path("out/demo"),
    engine: Annotated[str, typer.Option(help="transformers, vllm or openai.")] = "transformers",
    small_base_url: Annotated[str | None, typer.Option(help="For openai: server of mai-tiny-small.")] = None,
    large_base_url: Annotated[str | None, typer.Option(help="For openai: server of mai-tiny-large.")] = None,
) -> None:
    """Run the tiny pair that ships with the package through the real lmms-eval, with baselines, on toy bar charts."""
    from mai_plugin.demo import main
    from mai_plugin.harness.lmms_eval.command import EvaluationFailed

    urls = {"small": small_base_url, "large": large_base_url}
    try:
        main(out, n, engine, {role: url for role, url in urls.items() if url})
    except (EvaluationFailed, ValueError, OSError) as error:
        typer.echo(f"mai: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def presets() -> None:
    """List the presets: name, the lmms-eval model that takes it, and the checkpoints that it loads."""
    from mai_plugin.core.ways import Way
    from mai_plugin.settings import preset_names, read_preset

    for name in preset_names():
        preset = read_preset(name)
        models = " + ".join(str(preset[role]) for role in ("small", "large", "model") if role in preset)
        typer.echo(f"{name:<22} {Way(preset['strategy']).lmms_eval_model:<13} {models}")


@app.command()
def args(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
) -> None:
    """List the arguments of --model_args: default, meaning, and the strategies that take it if not all do."""
    from mai_plugin.output.render import markdown_table, to_terminal
    from mai_plugin.output.table import Column, Table
    from mai_plugin.settings.arguments import argument_table

    columns = (Column("argument"), Column("default"), Column("meaning"))
    table = Table("args", "Arguments of --model_args", columns, tuple(argument_table(markdown)))
    if markdown:
        typer.echo(markdown_table(table))
    else:
        to_terminal([table], width=100)


@app.command()
def report(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Names or ids of runs; the latest of every name if none are given.")
    ] = None,
    store: Annotated[Path, typer.Option(help="Call store: its file or folder.")] = Path("mai_runs"),
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Folder that the harness wrote to, if it has moved; may be given several times."),
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Run to compare the others with, question by question.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write everything as JSON to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file per table to this folder, or one X.csv.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables as Markdown to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page with tables and pictures to this folder.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write pictures (PNG and SVG) to this folder.")] = None,
) -> None:
    """Scores, output tokens, routes, latency and speed-up of stored runs, in tables of the paper's shape."""
    with _one_line():
        from mai_plugin.output.files import Outputs
        from mai_plugin.report.command import make_report, write_report

        outputs = Outputs(json, csv, markdown, html, plots)
        outputs.prepare()
        for path in write_report(make_report(store, runs or [], results or [], baseline), outputs):
            typer.echo(path)


def _fail(reason: str) -> NoReturn:
    typer.echo(f"mai: {reason}", err=True)
    raise typer.Exit(1)


_JSON = Annotated[Path | None, typer.Option(help="Write everything as JSON to this file.")]
_RESULTS = Annotated[
    list[Path] | None,
    typer.Option(help="Folder that the harness wrote to, if it has moved; may be given several times."),
]


@app.command()
def replay(
    store: Annotated[Path, typer.Argument(help="Call store: its file or folder.")],
    run: Annotated[list[str] | None, typer.Option(help="Take this run's calls only; may be repeated.")] = None,
    small: Annotated[str | None, typer.Option(help="The small model, where the store has several pairs.")] = None,
    large: Annotated[str | None, typer.Option(help="The large model.")] = None,
    results: _RESULTS = None,
    latency: Annotated[str, typer.Option(help="Time of a call: measured, or paper (its table 4).")] = "measured",
    overhead: Annotated[float, typer.Option(min=0, help="With the paper's: milliseconds added to each call.")] = 0.0,
    parallel: Annotated[bool, typer.Option(help="Count a cascade's two short answers as made at once.")] = False,
    agreement: Annotated[list[str] | None, typer.Option(help="exact, relaxed, file.py:name; the first leads.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Also this one: file.py:function, or a built-in one.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="ROLE=NAME for its other roles; may be repeated.")] = None,
    strategy_args: Annotated[str, typer.Option(help="Arguments of the strategy: key=value,...")] = "",
    seed: Annotated[int, typer.Option(help="Of the halves that thresholds are chosen and reported on.")] = 0,
    json: _JSON = None,
) -> None:
    """What other policies would have scored and cost, from stored calls; runs no model."""
    with _one_line():
        from mai_plugin.replay.command import as_json, replay_store, show

        replayed = replay_store(
            store, runs=run or [], models=_models(small, large, model or []), results=results or [], latency=latency,
            overhead_s=overhead / 1000, parallel=parallel, agreements=agreement or ["exact", "relaxed"], seed=seed,
            strategy=strategy,
            strategy_args=dict(_pair("--strategy-args", part) for part in strategy_args.split(",") if part),
        )  # fmt: skip
        show(replayed)
        _write_json(json, as_json(replayed))


def _models(small: str | None, large: str | None, others: list[str]) -> dict[str, str]:
    """Role to model, as they are named on the command line."""
    if (small is None) != (large is None):
        raise ValueError("give both --small and --large, or neither")
    named = {"small": small, "large": large, **dict(_pair("--model", part) for part in others)}
    return {role: name for role, name in named.items() if name is not None}


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise ValueError(f"{option} {text!r} must be NAME=VALUE")
    return key.strip(), value.strip()


@app.command()
def compare(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Names or ids of runs; the latest of every name if none are given.")
    ] = None,
    store: Annotated[Path, typer.Option(help="Call store: its file or folder.")] = Path("mai_runs"),
    results: _RESULTS = None,
    paper: Annotated[bool, typer.Option("--paper", help="Beside the paper's tables.")] = False,
    reported: Annotated[bool, typer.Option("--reported", help="Beside reported figures of Qwen3-VL.")] = False,
    leaderboard: Annotated[
        str | None, typer.Option(help="Beside a leaderboard: a file or URL, in OpenVLM's format.")
    ] = None,
    json: _JSON = None,
) -> None:
    """Own scores beside the paper's and reported ones (both unless told), and a leaderboard's, where comparable."""
    with _one_line():
        from mai_plugin.report.compare import as_json, compare_store, show

        all_shipped = not (paper or reported or leaderboard)
        compared = compare_store(
            store, runs or [], results or [], paper or all_shipped, reported or all_shipped, leaderboard
        )
        show(compared)
        _write_json(json, as_json(compared))


@app.command()
def reproduce(
    tables: Annotated[str | None, typer.Option(help="Numbers of the paper's tables; all by default.")] = None,
    family: Annotated[str, typer.Option(help="qwen3-vl (tables 5 to 11, 15) or internvl3.5 (13,14).")] = "qwen3-vl",
    benchmarks: Annotated[str | None, typer.Option(help="Such as POPE,ChartQA; all six by default.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions of each benchmark.")] = None,
    engine: Annotated[str, typer.Option(help="As in --model_args.")] = "transformers",
    engine_args: Annotated[str | None, typer.Option(help="For the engine, as JSON.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="As in lmms-eval.")] = 16,
    max_reasoning_tokens: Annotated[int, typer.Option(min=1, help="Limit on E and R answers.")] = 8192,
    models: Annotated[
        str | None,
        typer.Option(help="Checkpoints in the place of the paper's: 2B=PATH,8B=PATH; other sizes are left out."),
    ] = None,
    base_urls: Annotated[str | None, typer.Option(help="With --engine openai: 2B=URL,8B=URL.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the call store, results and logs.")] = Path("out/reproduce"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, their cost and commands.")] = False,
    json: _JSON = None,
) -> None:
    """The paper's tables as one plan of lmms-eval runs; the same command resumes it."""
    with _one_line():
        from mai_plugin.study.reproduce.command import reproduce as run
        from mai_plugin.study.reproduce.command import show_plan
        from mai_plugin.study.reproduce.plan import make_plan, parse_request

        plan = make_plan(
            parse_request(
                tables=tables, family=family, benchmarks=benchmarks, models=models, base_urls=base_urls,
                engine_args=engine_args, limit=limit, engine=engine, batch_size=batch_size,
                max_reasoning_tokens=max_reasoning_tokens, out=out,
            )
        )  # fmt: skip
        if dry_run:
            _write_json(json, show_plan(plan))
            return
        found, failed = run(plan)
        _write_json(json, found)
    if failed:
        lines = "".join(f"\n  {key}: {why}" for key, why in failed.items())
        _fail(f"{len(failed)} of {len(plan.runs)} runs failed; the same command runs them again:{lines}")


@app.command()
def attention(
    tasks: Annotated[
        str | None, typer.Option(help="Tasks of lmms-eval, such as chartqa,pope; generated bar charts if none.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="With --tasks: questions of each.")] = None,
    charts: Annotated[int, typer.Option(help="Without --tasks: number of charts.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the charts.")] = 4321,
    preset: Annotated[str | None, typer.Option(help="A pair's; MAI-tiny by default. `mai presets` lists them.")] = None,
    small: Annotated[
        str | None, typer.Option(help="The small model: a checkpoint folder or a name on the Hub.")
    ] = None,
    large: Annotated[str | None, typer.Option(help="The large model, whose attention is looked at.")] = None,
    keep: Annotated[float, typer.Option(help="Share of the weight, above 0 and at most 1.")] = 0.8,
    engine: Annotated[str, typer.Option(help="transformers: others do not give attention weights.")] = "transformers",
    engine_args: Annotated[str | None, typer.Option(help="For the engine, as JSON.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cuda:0, cpu or auto.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    batch_size: Annotated[int, typer.Option(help="Reasonings that are written at once.")] = 16,
    max_reasoning_tokens: Annotated[int | None, typer.Option(help="Limit on R.")] = None,
    store: Annotated[str, typer.Option(help="Call store: its file or folder; off to keep nothing.")] = "mai_runs",
    json: _JSON = None,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file per table to this folder.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write pictures (PNG and SVG) to this folder.")] = None,
) -> None:
    """Which tokens of the small and of its own reasoning the large model looks at before it answers (table 16)."""
    with _one_line():
        from mai_plugin.output.files import Outputs
        from mai_plugin.settings import Settings
        from mai_plugin.study.attention.command import write
        from mai_plugin.study.attention.questions import choose
        from mai_plugin.study.attention.study import check, run_study

        pair = {"small": small, "large": large, "preset": preset or (None if small or large else "MAI-tiny")}
        args = {
            **pair, "engine": engine, "engine_args": engine_args, "device": device, "dtype": dtype,
            "batch_size": batch_size, "max_reasoning_tokens": max_reasoning_tokens, "store": store,
        }  # fmt: skip
        settings, outputs = Settings.from_args("transfer", args), Outputs(json, csv, plots=plots)
        check(settings, keep)
        outputs.prepare()
        written = write(run_study(settings, choose(tasks, limit, charts, seed), keep), outputs)
    for path in written:
        typer.echo(path)


@app.command()
def profile(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Presets (a pair's: both models), checkpoint folders, names on the Hub, or with --weights random "
            "Qwen3-VL-2B, -4B, -8B, InternVL3.5-1B, -2B, -4B, -8B, -14B. Default: MAI-tiny."
        ),
    ] = None,
    weights: Annotated[str, typer.Option(help="checkpoint, or random: of the model's shape, no download.")] = (
        "checkpoint"
    ),
    layers: Annotated[int | None, typer.Option(help="Keep only so many layers of the language model.")] = None,
    vision_layers: Annotated[int | None, typer.Option(help="Keep only so many of the vision encoder.")] = None,
    image_sides: Annotated[str | None, typer.Option(help="For preprocessing and vision encoder: 256,...,4096.")] = None,
    ttft_sides: Annotated[str | None, typer.Option(help="Image sides for the time to first token.")] = None,
    query_tokens: Annotated[str | None, typer.Option(help="For the time to first token: 64,256,512.")] = None,
    decode_sides: Annotated[str | None, typer.Option(help="Image sides for decoding: 256,512.")] = None,
    decode_query_tokens: Annotated[str | None, typer.Option(help="Query tokens for decoding: 64,256.")] = None,
    output_tokens: Annotated[str | None, typer.Option(help="For decoding: 8,128,256,512.")] = None,
    batch_sizes: Annotated[str | None, typer.Option(help="Also for the first size of decoding: 1,4,16.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Runs of each size that count.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Runs of each size that do not.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Skip a size of which one run would take longer; end its repeats then.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for everything; what is left is skipped.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda:N; a GPU if there is one.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (on a CPU), bfloat16 (on a GPU) or float16.")] = None,
    seed: Annotated[int, typer.Option(help="Of random weights, images and query tokens.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller sizes: under two minutes.")] = False,
    short_tokens: Annotated[int, typer.Option(min=1, help="Of the large model's short answer, for break-even.")] = 4,
    compare_paper: Annotated[bool, typer.Option("--compare-paper", help="Beside the paper's tables 1 to 4.")] = False,
    json: _JSON = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows as X.csv, or all tables to this folder.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write pictures (PNG and SVG) to this folder.")] = None,
) -> None:
    """Latency of preprocessing, vision encoder, first token and decoding, on simulated data."""
    with _one_line():
        from mai_plugin.output.files import Outputs
        from mai_plugin.study.profile.command import profile as measure
        from mai_plugin.study.profile.command import write

        outputs = Outputs(json, csv, plots=plots)
        sizes = {
            "image_sides": image_sides, "ttft_sides": ttft_sides, "query_tokens": query_tokens,
            "decode_sides": decode_sides, "decode_query_tokens": decode_query_tokens, "output_tokens": output_tokens,
            "batch_sizes": batch_sizes, "repeats": repeats, "warmup": warmup, "max_seconds": max_seconds,
            "time_limit": time_limit,
        }  # fmt: skip
        found = measure(
            models or [], weights=weights, layers=layers, vision_layers=vision_layers, device=device, dtype=dtype,
            seed=seed, quick=quick, sizes=sizes, outputs=outputs,
        )  # fmt: skip
        for path in write(found, outputs, short_tokens, compare_paper):
            typer.echo(path)
    if found.failed:
        _fail("; ".join(found.failed))


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
def vlmevalkit(context: typer.Context) -> None:
    """VLMEvalKit's own command with the presets as models: --data ChartQA_TEST --model MAI-Qwen3VL-2B-8B ..."""
    from mai_plugin.harness.vlmevalkit.command import main

    raise typer.Exit(main(context.args))


@stores.command("check")
def check_store(
    path: Annotated[Path, typer.Argument(help="Call store: its file or folder.")] = Path("mai_runs"),
) -> None:
    """Check everything in a call store: the file itself, and the checksum of every call."""
    with _one_line():
        from mai_plugin.run.stored import check_store as check

        found = check(path)
    typer.echo(f"{found.file}: {found.calls:,} calls, {found.runs:,} runs, {found.outcomes:,} outcomes")
    for line in found.pages:
        typer.echo(f"damaged file: {line}")
    for id, question_id, stage in found.damaged:
        typer.echo(f"damaged call {id}: question {question_id}, stage {stage}")
    if not found.sound:
        _fail(
            f"call store {found.file} is damaged: {len(found.damaged):,} calls, {len(found.pages):,} faults of the file"
        )


def _write_json(path: Path | None, content: object) -> None:
    from mai_plugin.output.files import Outputs

    for written in Outputs(json=path).write(lambda: content):
        typer.echo(written)


_EXTRAS = {
    **dict.fromkeys(("scipy", "numpy", "matplotlib", "jinja2"), "report"),
    **dict.fromkeys(("torch", "torchvision", "transformers", "accelerate", "psutil"), "transformers"),
}
"""Packages that may be missing, and the extra that brings them."""


@contextmanager
def _one_line() -> Iterator[None]:
    """What is wrong, in one line, and exit code 1."""
    from mai_plugin.engines.base import EngineError

    try:
        yield
    except (ValueError, EngineError) as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _fail(f"{error}; pip install 'mai-plugin[{_EXTRAS[package]}]'")


if __name__ == "__main__":
    app()
