"""Scores of VLMEvalKit joined to stored runs, question by question.  A mismatch is an error, never a score.

In the folder of a model the kit writes `MODEL_DATASET.tsv` (predictions; `.xlsx` where `PRED_FORMAT` says so), what its
scorer made of each row (`_auxmatch` for yes or no, `_results` for short answers, `_JUDGE_result` for choices), the
aggregates (`_score.csv`, `_acc.csv`), and `status.json`.
"""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mai_plugin.harness.lmms_eval.results import TOLERANCE, Marks, NotScored, Ratio, ratio
from mai_plugin.run.stored import Run

Row = Mapping[str, str]
METRIC = "Overall"
"""The kit's name for every headline score."""

_FORMATS = ("tsv", "xlsx")
_SPLITS = ("test", "validation", "val", "dev")
"""Of several splits the first of these is the headline, as in the kit's own summary."""

_JUDGE_FILES = {"chatgpt-0125": "openai", "gpt-4-0125": "gpt4"}
_ROTATION = 1_000_000
# Answers that come back empty when the kit reads a file that it wrote: pandas takes them for "not available".
_LOST = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
     "NULL", "NaN", "None", "n/a", "nan", "null")
)  # fmt: skip


def kit_score(run: Run, task: str, places: Sequence[Path]) -> tuple[Marks, dict[str, str], Path, int]:
    """What the kit's scorer gave a run on a data set.

    Args:
        run: as it is in the store.
        task: the data set.
        places: folders, the kit's `--work-dir` or one inside it.

    Returns:
        The marks; index of each row to its right answer; the file of predictions; how many rows the aggregate is over.

    Raises:
        NotScored: there is no score per question.
        ValueError: the kit has other rows, or another text for a row, than the run; or what its scorer wrote does not
            fit its predictions or its aggregate.
    """
    stem = f"{run.environment.get('model', run.name)}_{task}"
    started = datetime.fromisoformat(run.started_at).timestamp()
    files = [file for place in places for ending in _FORMATS for file in place.rglob(f"{stem}.{ending}")]
    files = [file for file in {file.resolve() for file in files} if file.stat().st_mtime >= started]
    if not files:
        where = ", ".join(map(str, places))
        raise NotScored(f"no predictions of {stem} in {where} that are younger than the run")
    file = max(files, key=lambda path: path.stat().st_mtime)
    status = _status(file.parent).get(task, {})
    if "error_message" in status:  # which may be empty
        raise NotScored(f"VLMEvalKit gave no score: {' '.join(str(status['error_message']).split()) or 'it failed'}")
    rows = _by_index(_table(file), file)
    difference = _difference(run, task, rows)
    if difference:
        raise ValueError(f"{file} is not what run {run.id} ({run.name}) returned: {difference}")
    marks = _marks(task, file, rows, str(status.get("judge_model")))
    n = sum(key in marks.units or _main(key) in marks.units for key in rows)
    return marks, {key: row["answer"] for key, row in rows.items()}, file, n


def _marks(task: str, file: Path, rows: Mapping[str, Row], judge: str) -> Marks:
    choice = f"{_JUDGE_FILES.get(judge, judge)}_result"
    for ending, rule in (("auxmatch", _yes_no), ("results", _short), (choice, _choice)):
        scored = file.with_name(f"{file.stem}_{ending}{file.suffix}")
        if scored.is_file():
            table = _by_index(_table(scored), scored)
            for key, row in table.items():
                if key not in rows or not _same(row["prediction"], rows[key]["prediction"]):
                    raise ValueError(f"{scored} is not made of the predictions in {file}: row {key} differs; delete it")
            return rule(task, file, rows, table)
    raise NotScored(f"VLMEvalKit's scorer has left nothing per question beside {file}: not evaluated, or other rules")


def _yes_no(task: str, file: Path, rows: Mapping[str, Row], table: Mapping[str, Row]) -> Marks:
    aggregates = _aggregates(file, "_score.csv")
    overall = [row for row in aggregates if row.get("split") == METRIC]
    if not overall or "precision" not in overall[0]:
        raise NotScored(f"{task}: of yes and no only F1 over all rows, as POPE has it, is read")
    _whole(rows, table, file)
    units: dict[str, Ratio] = {}
    for key, row in table.items():
        # A row counts once in each of its categories.
        weight = len(row.get("category", "").split(","))
        truth, guess = (row[column] == "Yes" for column in ("answer", "extracted"))
        units[key] = (2.0 * weight * (truth and guess), weight * float(truth + guess))
    scores = {key: float(row["answer"] == row["extracted"]) for key, row in table.items()}
    return _checked(task, float(overall[0][METRIC]), scores, units)


def _short(task: str, file: Path, rows: Mapping[str, Row], table: Mapping[str, Row]) -> Marks:
    _whole(rows, table, file)
    scores = {key: _vqa(task, ast.literal_eval(row["eval_match"])) for key, row in table.items()}
    value = float(_aggregates(file, "_acc.csv")[0][METRIC])
    return _checked(task, value, scores, {key: (score, 1.0) for key, score in scores.items()})


def _vqa(task: str, match: Sequence[float]) -> float:
    """The kit's rules, which go by the data set's name; for ANLS `match` holds edit distances."""
    if "DocVQA" in task or "InfoVQA" in task:
        likeness = 1.0 - min(match)
        return likeness if likeness >= 0.5 else 0.0
    if "ChartQA" in task or "OCRVQA" in task:
        return float(max(match))
    return sum(map(float, match)) / len(match)


def _choice(task: str, file: Path, rows: Mapping[str, Row], table: Mapping[str, Row]) -> Marks:
    aggregates = {row.get("split", "none"): row for row in _aggregates(file, "_acc.csv")}
    split = next((name for name in _SPLITS if name in aggregates), next(iter(aggregates)))
    # Of a question with rotations the kit marks the first row only: 1 if all of them are right.
    hits = {key: float(row["hit"]) for key, row in table.items()}
    mains = {key: key if key in hits else _main(key) for key in rows}
    _whole(mains.values(), table, file)
    turns = Counter(mains.values())
    scores = {
        key: float(hits[main] or (turns[main] > 1 and _letter(row["prediction"]) == _letter(row["answer"])))
        for (key, row), main in zip(rows.items(), mains.values(), strict=True)
    }
    counted = [main for main in turns if len(aggregates) == 1 or table[main].get("split") == split]
    return _checked(task, 100 * float(aggregates[split][METRIC]), scores, {main: (hits[main], 1.0) for main in counted})


def _main(index: str) -> str:
    """The row that an MMBench row is a rotation of."""
    return str(int(index) % _ROTATION) if index.isdecimal() else index


def _letter(text: str) -> str:
    return text.strip().upper()


def _checked(task: str, value: float, scores: Mapping[str, float], units: Mapping[str, Ratio]) -> Marks:
    if not abs(ratio(units) - value) <= TOLERANCE:
        raise ValueError(f"{task}: VLMEvalKit gives {METRIC} {value:.4f}, its rows make {ratio(units):.4f}")
    return Marks(METRIC, value, scores, units)


def _whole(wanted: Iterable[str], table: Mapping[str, Row], file: Path) -> None:
    """All rows have to be scored: the kit silently takes the marks of an earlier, shorter run."""
    missing = next((key for key in wanted if key not in table), None)
    if missing is not None:
        raise ValueError(f"row {missing} of {file} is not in what VLMEvalKit's scorer wrote; evaluate again")


def _difference(run: Run, task: str, rows: Mapping[str, Row]) -> str | None:
    """The first thing in which the kit's predictions differ from what the run returned."""
    ours = {sample.doc_id: sample.returned for sample in run.samples.values() if sample.task == task}
    counts = f"the kit has {len(rows)} rows of {task}, the run {len(ours)}"
    for index in ours:
        if index not in rows:
            return f"{counts}; the first that only the run has is {index}"
    for index, row in rows.items():
        if index not in ours:
            return f"{counts}; the first that only the kit has is {index}"
        if not _same(row["prediction"], ours[index] or ""):
            return f"row {index} of {task}: the kit has {row['prediction']!r}, the run returned {ours[index]!r}"
    return None


def _same(theirs: str, ours: str) -> bool:
    """Whether a cell holds a text, after the kit has read and written it: numbers may have changed their form."""
    if theirs == ours or (theirs in _LOST and ours in _LOST):
        return True
    try:
        return float(theirs) == float(ours)
    except ValueError:
        return False


def _by_index(table: Sequence[Row], file: Path) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in table:
        if not {"index", "prediction", "answer"} <= row.keys():
            raise ValueError(f"{file} lacks the column index, prediction or answer")
        if row["index"] in found:
            raise ValueError(f"{file}: row {row['index']} is in it twice")
        found[row["index"]] = row
    return found


def _aggregates(file: Path, ending: str) -> list[Row]:
    path = file.with_name(f"{file.stem}{ending}")
    rows = _table(path) if path.is_file() else []
    if not rows or METRIC not in rows[0]:
        raise NotScored(f"VLMEvalKit has left no {METRIC} in {path.name}")
    return rows


def _table(path: Path) -> list[Row]:
    """A table's rows, all cells as text."""
    try:
        if path.suffix == ".xlsx":
            from openpyxl import load_workbook

            first, *rest = load_workbook(path, read_only=True).active.iter_rows(values_only=True)
            names = [str(cell) for cell in first]
            return [
                {name: "" if cell is None else str(cell) for name, cell in zip(names, row, strict=True)} for row in rest
            ]
        with path.open(encoding="utf-8", newline="") as stream:
            csv.field_size_limit(2**31 - 1)
            return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: {error}; pip install openpyxl") from error
    except Exception as error:  # whatever a broken spreadsheet makes of the library
        raise ValueError(f"{path} cannot be read: {error}") from error


def _status(folder: Path) -> Mapping[str, Any]:
    path = folder / "status.json"
    try:
        datasets: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["datasets"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return datasets
