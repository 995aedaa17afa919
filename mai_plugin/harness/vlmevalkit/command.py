"""VLMEvalKit's side: every preset as a model of its own, and `mai vlmevalkit`, which runs the kit's command with them.

In a script of one's own: `import mai_plugin.harness.vlmevalkit as m; m.register()`, before `vlmeval.run` is imported.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

from mai_plugin.core.text import did_you_mean
from mai_plugin.harness.vlmevalkit.files import Predictions, not_scored
from mai_plugin.harness.vlmevalkit.model import MaiVLM, close_all, described, settings_for
from mai_plugin.settings import Settings, preset_names, preset_strategy

INSTALL = "pip install 'mai-plugin[vlmevalkit]', or name a git checkout with VLMEVALKIT=DIR"
DATA = "LMUData"
"""The environment's name for the kit's folder of data; it is spelt like that."""


def register(**args: Any) -> dict[str, partial[MaiVLM]]:
    """Make the presets models of the kit, and `MaiVLM` a class for its `--config` files.

    A pair's preset is there three times: `NAME` (the cascade), `NAME-transfer-R` and `NAME-transfer-E`.

    Args:
        args: arguments of `MaiVLM` for all of them, such as `engine="vllm"`.

    Returns:
        The names and what builds their models.

    Raises:
        ValueError: the kit is not there or does not import.
    """
    _find_kit()
    try:
        api, config, inference = map(import_module, ("vlmeval.api", "vlmeval.config", "vlmeval.inference"))
    except ImportError as error:
        raise ValueError(f"VLMEvalKit does not import: {error}") from error
    models = {}
    for name in preset_names():
        models[name] = partial(MaiVLM, preset=name, **args)
        if preset_strategy(name) != "single":
            for style in ("R", "E"):
                given = {"preset": name, "strategy": "transfer", "prompt": style, **args}
                models[f"{name}-transfer-{style}"] = partial(MaiVLM, **given)
    config.supported_VLM.update(models)
    api.MaiVLM = MaiVLM  # type: ignore[attr-defined]
    _follow(inference)
    atexit.unregister(close_all)
    atexit.register(close_all)
    return models


def _find_kit() -> None:
    folder = os.environ.get("VLMEVALKIT")
    if folder:
        path = Path(folder).expanduser().absolute()
        if not (path / "vlmeval" / "__init__.py").is_file():
            raise ValueError(f"VLMEVALKIT={folder}: no checkout of VLMEvalKit is there (it would hold vlmeval/)")
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
        loaded = sys.modules.get("vlmeval")
        if loaded and path not in Path(str(loaded.__file__)).parents:
            raise ValueError(f"VLMEVALKIT={folder}, but vlmeval is loaded from {loaded.__file__} already")
    elif find_spec("vlmeval") is None:
        raise ValueError(f"VLMEvalKit is not installed: {INSTALL}")


def _follow(inference: Any) -> None:
    """Put `MaiVLM.evaluating` around the kit's inference on a data set, for models of ours."""
    original = inference.infer_data_job
    if getattr(original, "knows_mai", False):
        return
    parameters = signature(original)

    @wraps(original)
    def infer_data_job(model: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, str):
            build = inference.supported_VLM.get(model)
            model = build() if _is_ours(build) else model
        if not isinstance(model, MaiVLM):
            return original(model, *args, **kwargs)
        given = parameters.bind(model, *args, **kwargs).arguments
        with model.evaluating(Path(given["work_dir"]), given["model_name"], given["dataset"], given.get("limit")):
            return original(model, *args, **kwargs)

    infer_data_job.knows_mai = True  # type: ignore[attr-defined]
    inference.infer_data_job = infer_data_job


def _is_ours(build: Any) -> bool:
    return isinstance(build, partial) and build.func is MaiVLM


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kit's own command with our models in it.

    Args:
        argv: arguments of the kit's `run.py`, and `--model-args key=value,...` for all models of ours that `--model`
            names.

    Returns:
        The exit code: 0 only if every model was evaluated on every data set.
    """
    given, kit_args = _model_args(list(sys.argv[1:] if argv is None else argv))
    sys.argv = ["mai vlmevalkit", *kit_args]
    # A spreadsheet makes 0 of an answer "=45", and loses one that begins like a URL.
    os.environ.setdefault("PRED_FORMAT", "tsv")
    started = time.time()
    try:
        register(**given)
        kit = _command()
        parsed = kit["parse_args"]()
        work_dir, models, datasets = _prepare(parsed)
        kit.get("load_env", lambda: None)()
        kit["main"]()
        failed = not_scored(work_dir, models, datasets, started) if int(os.environ.get("RANK", 0)) == 0 else []
    except ValueError as error:
        failed = [str(error)]
    except KeyboardInterrupt:
        print("mai: stopped; the same command resumes", file=sys.stderr)
        return 130
    except SystemExit as stop:
        if not isinstance(stop.code, str):  # argparse's
            raise
        failed = [stop.code.removeprefix("mai: ")]
    finally:
        close_all()
    for line in failed:
        print(f"mai: {line}", file=sys.stderr)
    return 1 if failed else 0


def _model_args(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Take `--model-args` out of the arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model-args", default="")
    found, rest = parser.parse_known_args(argv)
    pairs = [pair.partition("=") for pair in re.split(r",(?=\w+=)", found.model_args) if pair]
    return {key.strip(): value for key, _, value in pairs}, rest


def _command() -> Mapping[str, Any]:
    """The kit's `run.py`, as a table of names."""
    folder = os.environ.get("VLMEVALKIT")
    if folder:
        # Under this name the kit's logger shows what it says.
        return runpy.run_path(str(Path(folder).expanduser() / "run.py"), run_name="vlmeval.run")
    return vars(import_module("vlmeval.run"))


def _prepare(parsed: Any) -> tuple[Path, list[str], list[str]]:
    """Check what the kit is told to do, and complete it.

    Returns:
        Its `--work-dir`, models and data sets.

    Raises:
        ValueError: the kit could not do it, or would silently do something else.
    """
    supported = import_module("vlmeval.config").supported_VLM
    data = os.environ.get(DATA)
    if data is not None and not Path(data).is_dir():
        raise ValueError(f"{DATA}={data}: no such folder; VLMEvalKit would take ~/{DATA} for it")
    config = _read_config(parsed.config) if parsed.config else None
    models = list(config["model"]) if config else list(parsed.model or [])
    datasets = list(config["data"]) if config else list(parsed.data or [])
    if not models or not datasets:
        raise ValueError("give --data and --model, or --config FILE; --help lists the rest")
    work_dir = Path(os.environ.get("MMEVAL_ROOT", parsed.work_dir))
    ours: dict[str, tuple[Settings, int]] = {}
    for name in models:
        entry = config["model"][name] if config else {}
        if entry.get("class") == "MaiVLM":
            ours[name] = settings_for({key: value for key, value in entry.items() if key != "class"})
        elif "class" not in entry and _is_ours(supported.get(name)):
            ours[name] = settings_for({**supported[name].keywords, **entry})
        elif "class" not in entry and name not in supported and not parsed.base_url:
            raise ValueError(f"unknown model {name!r}{did_you_mean(name, supported)}")
    if ours:
        _check_ours(ours, datasets, work_dir, parsed)
    if ours and len(ours) == len(models):
        _widen(parsed, max(settings.concurrency for settings, _ in ours.values()))
    return work_dir, models, datasets


def _check_ours(ours: Mapping[str, tuple[Settings, int]], datasets: Sequence[str], work_dir: Path, parsed: Any) -> None:
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "VLMEvalKit runs models that answer many questions at once in one process only: start it without torchrun, "
            "and give the engine several GPUs (engine_args of vllm, or several servers for openai)"
        )
    if parsed.api_mode:
        raise ValueError("--api-mode is for the kit's own models; mai models answer many questions at once without it")
    judged = parsed.judge or parsed.judge_base_url or "OPENAI_API_KEY" in os.environ
    if parsed.mode != "infer" and not judged:
        print(
            "mai: no --judge, and no OPENAI_API_KEY: where a data set has a judge, the kit will fail to reach it and "
            "fall back to exact matching; pass --judge exact_matching to skip the attempt",
            file=sys.stderr,
        )
    for name, (settings, limit) in ours.items():
        made_with = described(settings, limit)
        for dataset in datasets:
            # Not by its questions: the kit has to load them first.  They are checked when their turn comes.
            Predictions(work_dir / name, name, dataset).check(made_with)


def _widen(parsed: Any, concurrency: int) -> None:
    """Let the kit have as many threads as questions are to be in flight, and its judge no more than by its default."""
    if not any(re.match(r"--(api-)?nproc(=|$)", arg) for arg in sys.argv):
        sys.argv += ["--api-nproc", str(concurrency)]
        if parsed.judge_api_nproc is None:
            sys.argv += ["--judge-api-nproc", str(parsed.api_nproc)]


def _read_config(path: str) -> dict[str, Any]:
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {path}: {error}") from error
    for part in ("model", "data"):
        entries = config.get(part) if isinstance(config, dict) else None
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise ValueError(f"--config {path}: {part!r} must map names to objects")
    return config  # type: ignore[no-any-return]
