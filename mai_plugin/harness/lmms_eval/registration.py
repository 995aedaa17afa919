"""What lmms-eval's entry point loads: model names, the package's tasks, and how result folders are named.

Light on purpose: every `lmms-eval` command imports this, whichever model it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mai_plugin.resources import task_configs
from mai_plugin.settings import Settings

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

MODELS: dict[str, tuple[str, str]] = {
    "mai_cascade": ("MaiCascade", "mutual_verification"),
    "mai_single": ("MaiSingle", "single"),
    "mai_transfer": ("MaiTransfer", "transfer"),
}
"""Model name to its class in `model`, and its strategy."""


def settings_for(model: str, args: Mapping[str, Any]) -> Settings:
    """The settings of a model of ours, from lmms-eval's arguments.

    Raises:
        ValueError: an argument is unknown or has a value that it may not take.
    """
    given = {key: value for key, value in args.items() if key != "max_batch_size"}
    return Settings.from_args(MODELS[model][1], given)


def manifests() -> list[ModelManifest]:
    """The models, for lmms-eval's registry.  Adds the package's tasks on the way: there is no entry point for tasks."""
    from lmms_eval.models.registry_v2 import ModelManifest

    _add_tasks()
    _name_results()
    return [
        ModelManifest(model_id=name, chat_class_path=f"mai_plugin.harness.lmms_eval.model.{cls}")
        for name, (cls, _) in MODELS.items()
    ]


def _add_tasks() -> None:
    """Let `--tasks` find the package's task files without `--include_path`."""
    from lmms_eval.tasks import TaskManager

    original = TaskManager.initialize_tasks
    if getattr(original, "adds_mai_tasks", False):
        return

    @wraps(original)
    def initialize_tasks(self: Any, include_path: str | list[str] | None = None, include_defaults: bool = True) -> Any:
        paths = [include_path] if isinstance(include_path, str) else list(include_path or [])
        return original(self, [*paths, str(task_configs() / "lmms_eval")], include_defaults)

    initialize_tasks.adds_mai_tasks = True  # type: ignore[attr-defined]
    TaskManager.initialize_tasks = initialize_tasks


_results_folder: Path | None = None


def take_results_folder() -> Path | None:
    """Where lmms-eval will write the results of the evaluation that it has begun, None if nowhere.  Asked once each."""
    global _results_folder
    folder, _results_folder = _results_folder, None
    return folder


def _name_results() -> None:
    """File results under the preset, or the models and the strategy, and note the folder for `take_results_folder`.

    lmms-eval takes the text behind the first `model=`, `path=` or `engine=` that it finds in the arguments: a
    cascade would be filed under its engine.
    """
    from lmms_eval.loggers.evaluation_tracker import EvaluationTracker, GeneralConfigTracker
    from lmms_eval.utils import sanitize_model_name, simple_parse_args_string

    original = GeneralConfigTracker.log_experiment_args
    if getattr(original, "names_mai_results", False):
        return

    @wraps(original)
    def log_experiment_args(self: Any, model_source: Any, model_args: Any, *args: Any, **kwargs: Any) -> None:
        global _results_folder
        original(self, model_source, model_args, *args, **kwargs)
        _results_folder = None
        if model_source in MODELS:
            given = simple_parse_args_string(model_args) if isinstance(model_args, str) else dict(model_args or {})
            self.model_name = settings_for(model_source, given).name
            self.model_name_sanitized = sanitize_model_name(self.model_name)
            if output := getattr(self, "mai_output_path", None):
                _results_folder = (Path(output) / self.model_name_sanitized).absolute()

    log_experiment_args.names_mai_results = True  # type: ignore[attr-defined]
    GeneralConfigTracker.log_experiment_args = log_experiment_args

    make = EvaluationTracker.__init__

    @wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.general_config_tracker.mai_output_path = self.output_path  # which does not know it by itself

    EvaluationTracker.__init__ = __init__
