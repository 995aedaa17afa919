"""Questions to look at attention on: generated bar charts, or a benchmark's from lmms-eval's own tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mai_plugin.core.records import Image, Message
from mai_plugin.core.text import did_you_mean, one_line


@dataclass(frozen=True)
class Asked:
    """A question that is not built yet; the gold answer is no part of it.

    Attributes:
        id: as in the harness, such as `chartqa/17`.
        task: the benchmark, or what is asked of a chart.
        messages: makes its messages, anew each time, so that images do not stay in memory.
        max_new_tokens: limit on a short answer.
    """

    id: str
    task: str
    messages: Callable[[], Sequence[Message]]
    max_new_tokens: int


@dataclass(frozen=True)
class Questions:
    """Some questions, and what they are, in words."""

    what: str
    asked: tuple[Asked, ...]


def choose(tasks: str | None, limit: int | None, charts: int, seed: int) -> Questions:
    """A benchmark's questions if tasks are named, else charts.

    Raises:
        ValueError: as `task_set` and `chart_set`, or there is a limit but no task.
    """
    if tasks is not None:
        return task_set(tasks, limit)
    if limit is not None:
        raise ValueError(f"--limit {limit} goes with --tasks; the number of charts is --charts")
    return chart_set(charts, seed)


def chart_set(n: int, seed: int) -> Questions:
    """Generated bar charts, such as the tiny pair was made for.

    Raises:
        ValueError: `n` is below 1, or the seed below 0.
    """
    from mai_plugin.tiny.charts import REQUEST, chart_questions

    if n < 1:
        raise ValueError(f"--charts {n}: must be at least 1")
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be at least 0")

    def messages(image: Any, question: str) -> list[Message]:
        return [Message("user", (Image(image), f"{question}\n{REQUEST}"))]

    asked = [
        Asked(chart.id, chart.task, partial(messages, chart.image, chart.question), 16)
        for chart in chart_questions(n, seed)
    ]
    return Questions(f"{n:,} generated bar charts of seed {seed}", tuple(asked))


def task_set(names: str, limit: int | None) -> Questions:
    """The first questions of tasks of lmms-eval, from its own loaders.

    Args:
        names: tasks or groups, with commas between them, as in lmms-eval's `--tasks`.
        limit: questions of each task; None for all.

    Raises:
        ValueError: lmms-eval is missing, has no such task or cannot load it, or a task is none that generates text.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"--limit {limit}: must be at least 1")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ValueError(f"--tasks {names!r} names no task")
    try:
        from lmms_eval.tasks import TaskManager, get_task_dict

        from mai_plugin.harness.lmms_eval.registration import manifests
    except ModuleNotFoundError as error:
        raise ValueError(f"--tasks needs {error.name}: pip install 'mai-plugin[lmms-eval]'") from error
    manifests()  # the package's own tasks are found too
    manager = TaskManager(model_name="mai_transfer")
    for name in wanted:
        if not manager.match_tasks([name]):
            hint = did_you_mean(name, manager.all_tasks)
            raise ValueError(f"--tasks {name}: lmms-eval has no such task{hint}; `lmms-eval tasks list` lists them")
    try:
        tasks = _flat(get_task_dict(manager.match_tasks(wanted), manager, "chat"))
        for task in tasks.values():
            task.build_all_requests(limit=limit)
    except Exception as error:  # loaders raise whatever they like on data that they cannot get
        last = getattr(error, "last_attempt", None)  # lmms-eval tries again, and says no more than that it did
        error = (last and last.exception()) or error
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(f"--tasks {names}: lmms-eval could not load them: {reason}") from error
    asked = [_asked(task, instance) for task in tasks.values() for instance in task.instances]
    return Questions(f"{len(asked):,} questions of {', '.join(tasks)} (lmms-eval)", tuple(asked))


def _flat(tasks: dict[Any, Any]) -> dict[str, Any]:
    """Name to task, groups opened."""
    found: dict[str, Any] = {}
    for name, task in tasks.items():
        found.update(_flat(task) if isinstance(task, dict) else {str(name): task})
    return found


def _asked(task: Any, instance: Any) -> Asked:
    from mai_plugin.harness.lmms_eval.model import DEFAULT_MAX_NEW_TOKENS, to_messages

    name = instance.metadata["task"]
    if instance.request_type != "generate_until":
        raise ValueError(f"--tasks {name}: asks for {instance.request_type}; choose a generate_until task")
    _, doc_to_messages, gen_kwargs, doc_id, _, split = instance.args

    def messages() -> list[Message]:
        # The document holds the gold answer too: it goes into the task's own function and nowhere else.
        return to_messages(doc_to_messages(task.dataset[split][doc_id]))

    limit = int((gen_kwargs or {}).get("max_new_tokens") or DEFAULT_MAX_NEW_TOKENS)
    return Asked(f"{name}/{doc_id}", name, messages, limit)
