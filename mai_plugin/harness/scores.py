"""The harness's scores joined to stored runs, question by question.  A mismatch is an error, never a score.

lmms-eval writes `<date>_results.json` (aggregates) and, with `--log_samples`, `<date>_samples_<task>.jsonl` (what it
scored, and how, per document) into a folder named after the run.  What VLMEvalKit writes is read in `kit_scores`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mai_plugin.harness.lmms_eval.results import Marks, NotScored, Ratio, marks, metrics
from mai_plugin.run.stored import Run, Sample

KIT = "VLMEvalKit"


@dataclass(frozen=True)
class TaskScore:
    """The score of a run on one task.

    Attributes:
        metric: the harness's metric that counts, such as `relaxed_overall`.
        value: its aggregate by the harness, in points (0 to 100).
        scores: document id to its score, 0 to 1.
        units: what the aggregate is over, as numerator and denominator (`harness.lmms_eval.results`).
        targets: document id to its right answer, as the harness wrote it.
        file: the samples file that it was read from.
        n: documents that the aggregate is over, where it is not over all: of MMMU_DEV_VAL the validation part only.
    """

    metric: str
    value: float
    scores: Mapping[str, float]
    units: Mapping[str, Ratio]
    targets: Mapping[str, str]
    file: Path
    n: int | None = None

    @property
    def counted(self) -> int:
        """Documents that the aggregate is over."""
        return len(self.scores) if self.n is None else self.n


@dataclass(frozen=True)
class ScoredRun:
    """A run, its samples with their scores, and the scores of its tasks.

    Attributes:
        run: with `Sample.score` set where there is one.
        scores: task to score.
        unscored: task to why it has none.
    """

    run: Run
    scores: Mapping[str, TaskScore]
    unscored: Mapping[str, str]


def score(run: Run, folders: Sequence[Path] = ()) -> ScoredRun:
    """Join the harness's scores to a run.

    Of several results the newest that was written after the run's start under the run's name, and has the same
    documents and texts, is taken.

    Args:
        run: as it is in the store.
        folders: where the harness wrote (lmms-eval's `--output_path`, VLMEvalKit's `--work-dir`); by default the folder
            that the run remembers.

    Raises:
        ValueError: a given folder does not exist; or the harness has other documents, or another text for a document,
            than the run (the first one is named); or its samples do not make up its aggregate.
    """
    why, places = _places(run, folders)
    found: dict[str, TaskScore] = {}
    unscored: dict[str, str] = {}
    for task in run.tasks:
        reason = why or _trouble(run, task)
        if reason is None:
            try:
                found[task] = _task_score(run, task, places)
                continue
            except NotScored as error:
                reason = str(error)
        unscored[task] = reason
    return ScoredRun(replace(run, samples=dict(_with_scores(run, found))), found, unscored)


def _with_scores(run: Run, found: Mapping[str, TaskScore]) -> Iterator[tuple[str, Sample]]:
    for id, sample in run.samples.items():
        task, _, doc_id = id.rpartition("/")
        if task in found:
            sample = Sample(
                id, sample.route, sample.answer, sample.returned, sample.calls, sample.error, found[task].scores[doc_id]
            )
        yield id, sample


def _places(run: Run, given: Sequence[Path]) -> tuple[str | None, list[Path]]:
    for folder in given:
        if not folder.is_dir():
            raise ValueError(
                f"--results {folder}: no such folder; give lmms-eval's --output_path, or VLMEvalKit's --work-dir"
            )
    harness = str(run.environment.get("harness"))
    if harness not in ("lmms-eval", KIT):
        return f"its harness is {harness}, and only results of lmms-eval and {KIT} are read", []
    if given:
        return None, list(given)
    remembered = run.environment.get("results")
    if not remembered:
        return "lmms-eval was run without --output_path" if harness == "lmms-eval" else "it was no evaluation", []
    if not Path(remembered).is_dir():
        return f"the folder {remembered} is gone: name it with --results", []
    return None, [Path(remembered)]


def _trouble(run: Run, task: str) -> str | None:
    failed = sum(sample.error is not None for sample in run.samples.values())
    if failed:
        return f"{failed} of {len(run.samples)} questions could not be answered, so that the harness scored none"
    return None if run.finished else "the run did not finish"


def _task_score(run: Run, task: str, places: Sequence[Path]) -> TaskScore:
    if run.environment.get("harness") == KIT:
        from mai_plugin.harness.vlmevalkit.results import kit_score  # which brings the kit's whole part of the package

        found, targets, file, n = kit_score(run, task, places)
        return TaskScore(found.metric, found.value, found.scores, found.units, targets, file, n)
    candidates = _results(run, task, places)
    if not candidates:
        where = ", ".join(map(str, places))
        raise NotScored(f"no results of {run.name} on {task} in {where} that are younger than the run")
    mismatches = []
    for file, aggregates in candidates:
        samples = file.with_name(f"{file.name.removesuffix('_results.json')}_samples_{task}.jsonl")
        if not samples.is_file():
            mismatches.append("lmms-eval was run without --log_samples")
            continue
        records, difference = _records(run, task, samples, metrics(aggregates))
        if difference is None:
            return _as_score(marks(task, records, aggregates), records, samples)
        mismatches.append(f"{samples} is not what run {run.id} ({run.name}) returned: {difference}")
    wrong = [mismatch for mismatch in mismatches if " is not what run " in mismatch]
    if wrong:
        raise ValueError(wrong[0])
    raise NotScored(mismatches[0])


def _results(run: Run, task: str, places: Sequence[Path]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Results files of this run's name that hold the task and were written after its start, newest first."""
    started = datetime.fromisoformat(run.started_at).timestamp()
    # The harness keeps files of benchmarks' own, also called *_results.json, in submissions/.
    files = {file.resolve() for place in places for file in place.rglob("[0-9]*_results.json")}
    found = []
    for file in sorted(files, key=lambda path: (path.stat().st_mtime, path.name), reverse=True):
        if file.stat().st_mtime < started:
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"results file {file} is damaged: {error}") from error
        if content.get("model_name") == run.name and task in content.get("results", {}):
            found.append((file, content["results"][task]))
    return found


def read_records(file: Path) -> Iterator[Mapping[str, Any]]:
    """The harness's per-sample records of a task, one by one: together they may be large.

    Raises:
        ValueError: the file is damaged; names the line.
    """
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                record["doc_id"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"samples file {file} is damaged in line {number}: {error}") from error
            yield record


def _records(run: Run, task: str, file: Path, wanted: Sequence[str]) -> tuple[list[Mapping[str, Any]], str | None]:
    """Id, target and wanted metrics of the harness's records (their texts would fill the memory), and the first thing
    in which the records differ from the run."""
    ours: dict[str, str | None] = {}
    for sample in run.samples.values():
        of, _, doc_id = sample.question_id.rpartition("/")
        if of == task:
            ours[doc_id] = sample.returned
    targets: dict[str, str] = {}
    records: dict[str, Mapping[str, Any]] = {}
    others: dict[str, Any] = {}
    for record in read_records(file):
        doc_id = str(record["doc_id"])
        if doc_id in records:
            return [], f"document {doc_id} of {task} is in it twice"
        recorded = _recorded(record)
        if doc_id in ours and recorded != ours[doc_id]:
            others[doc_id] = recorded
        slim = {key: record[key] for key in wanted if key in record}
        target = str(record.get("target"))
        slim["doc_id"], slim["target"] = doc_id, targets.setdefault(target, target)
        records[doc_id] = slim
    counts = f"the harness has {len(records)} documents of {task}, the run {len(ours)}"
    for doc_id in ours:
        if doc_id not in records:
            return [], f"{counts}; the first that only the run has is {doc_id}"
    for doc_id in records:
        if doc_id not in ours:
            return [], f"{counts}; the first that only the harness has is {doc_id}"
    for doc_id in ours:
        if doc_id in others:
            shown = f"the harness has {others[doc_id]!r}, the run returned {ours[doc_id]!r}"
            return [], f"document {doc_id} of {task}: {shown}"
    return list(records.values()), None


def _recorded(record: Mapping[str, Any]) -> Any:
    """The text as it came from the model: `resps`, which is left out where the filters changed nothing."""
    value = record.get("resps", record.get("filtered_resps"))
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def _as_score(found: Marks, records: Sequence[Mapping[str, Any]], file: Path) -> TaskScore:
    targets = {str(record["doc_id"]): str(record.get("target")) for record in records}
    return TaskScore(found.metric, found.value, found.scores, found.units, targets, file)
