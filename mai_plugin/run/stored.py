"""Runs as they are in a call store, as records: what every table, plot and replay is made from."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mai_plugin.core.records import Call, Usage, total
from mai_plugin.run.store import VERSION, checksum, completion, completion_columns, unpack


@dataclass(frozen=True)
class Sample:
    """One question of a run.

    Attributes:
        question_id: `task/doc_id`.
        route: how it was answered; None where it could not be.
        answer: the answer found in the final text, None if it states none.
        returned: what the harness got.
        calls: the calls that it used, in the order of their stages; `call.completion.reused` marks those that were
            taken from the store.
        error: why it could not be answered.
        score: what the harness's scorer gave it, 0 to 1, once joined (`harness.scores`).
    """

    question_id: str
    route: str | None
    answer: str | None
    returned: str | None
    calls: tuple[Call, ...] = ()
    error: str | None = None
    score: float | None = None

    @property
    def task(self) -> str:
        """The harness's task."""
        return self.question_id.rpartition("/")[0]

    @property
    def doc_id(self) -> str:
        """The document's id in its task."""
        return self.question_id.rpartition("/")[2]

    def usage(self, role: str | None = None) -> Usage:
        """Token counts of all calls, or of one model's."""
        return total(call.usage for call in self.calls if role in (None, call.role))


@dataclass(frozen=True)
class Run:
    """One run of one strategy over the tasks of a harness; ranks that worked together are one run.

    Attributes:
        id: its id in the store.
        name: the preset, or models and strategy.
        strategy, engine: as in `Settings`.
        settings: models (role to name, identity and arguments), prompts, limits.
        environment: harness, versions, machine.
        started_at: UTC, ISO 8601.
        finished: whether it came to its end.
        wall_s: seconds from the first question to the last answer (the slowest rank's), None if it did not finish.
        samples: by question id, sorted as they are in the tasks.
    """

    id: str
    name: str
    strategy: str
    engine: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    started_at: str
    finished: bool
    wall_s: float | None
    samples: Mapping[str, Sample] = field(repr=False)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Its tasks, in order of appearance."""
        return tuple(dict.fromkeys(sample.task for sample in self.samples.values()))

    @property
    def reused_calls(self) -> int:
        """How many of its calls were taken from the store: if any, its wall time says nothing about speed."""
        return sum(call.completion.reused for sample in self.samples.values() for call in sample.calls)


def store_file(path: Path) -> Path:
    """The store in a folder, or the file itself.

    Raises:
        ValueError: there is none.
    """
    file = path / "calls.sqlite" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no call store at {file}; give the file, or the folder that holds calls.sqlite")
    return file


def load_runs(path: Path, wanted: Sequence[str] = ()) -> list[Run]:
    """Runs of a store, oldest first.

    Args:
        path: the store's file or folder.
        wanted: run ids, the beginnings of ids, or names (a name means its latest run); all runs if empty.

    Raises:
        ValueError: no store, no such run, or an ambiguous beginning.
    """
    file = store_file(path)
    try:
        # Read-only, so that a report can be drawn while a run goes on, and from a folder that cannot be written.
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")  # all as of one moment
            version = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
            if version is None or int(version[0]) not in (1, VERSION):
                raise ValueError(f"call store {file} has schema version {version and version[0]}, expected {VERSION}")
            rows = connection.execute("SELECT * FROM runs ORDER BY started_at, rowid").fetchall()
            chosen = _choose(rows, wanted, file)
            columns = completion_columns(int(version[0]))
            return [_run(connection, rows, row, columns) for row in chosen]
    except sqlite3.DatabaseError as error:
        raise ValueError(f"call store {file} cannot be read: {error}") from error


def filed_runs(path: Path, folder: Path) -> list[str]:
    """Ids of the runs that came to their end and whose harness wrote its results below a folder, oldest first.

    Raises:
        ValueError: no store, or it cannot be read.
    """
    file = store_file(path)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
            rows = connection.execute(
                "SELECT id, environment FROM runs WHERE part_of = id AND finished_at NOTNULL ORDER BY started_at, rowid"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"call store {file} cannot be read: {error}") from error
    remembered = {id: json.loads(environment).get("results") for id, environment in rows}
    return [id for id, results in remembered.items() if results and folder.absolute() in Path(results).parents]


def _choose(rows: Sequence[sqlite3.Row], wanted: Sequence[str], file: Path) -> list[sqlite3.Row]:
    # One row per run: rank 0's, or another's where that was lost before it wrote anything.
    leading = list({row["part_of"]: row for row in sorted(rows, key=lambda row: row["part_of"] == row["id"])}.values())
    leading.sort(key=lambda row: row["started_at"])  # of those begun in the same millisecond the first written is first
    if not wanted:
        return leading
    chosen = []
    for name in wanted:
        named = [row for row in leading if row["name"] == name]
        begun = [row for row in leading if row["part_of"].startswith(name)]
        if named:
            chosen.append(named[-1])
        elif len(begun) == 1:
            chosen.append(begun[0])
        else:
            known = ", ".join(dict.fromkeys(row["name"] for row in leading)) or "none yet"
            what = f"{len(begun)} runs begin with" if begun else "no run is called"
            raise ValueError(f"{what} {name!r} in {file}; it holds runs of: {known}")
    return chosen


def _run(connection: sqlite3.Connection, rows: Sequence[sqlite3.Row], row: sqlite3.Row, columns: str) -> Run:
    parts = [part for part in rows if part["part_of"] == row["part_of"]]
    samples = {sample.question_id: sample for part in parts for sample in _samples(connection, part["id"], columns)}
    environment = json.loads(row["environment"])
    # A rank that was lost before it wrote anything has no row.
    finished = len(parts) >= environment.get("world_size", 1) and all(part["finished_at"] for part in parts)
    return Run(
        id=row["part_of"],
        name=row["name"],
        strategy=row["strategy"],
        engine=row["engine"],
        settings=json.loads(row["settings"]),
        environment=environment,
        started_at=row["started_at"],
        finished=finished,
        wall_s=max(part["wall_s"] for part in parts) if finished else None,
        samples={key: samples[key] for key in sorted(samples, key=_document_order)},
    )


def _samples(connection: sqlite3.Connection, run: str, columns: str) -> Iterator[Sample]:
    calls: dict[str, list[Call]] = {}
    for row in connection.execute(
        f"SELECT outcome_calls.question_id, role, outcome_calls.stage, answer, reused, id, {columns}, "
        "checksum FROM outcome_calls JOIN calls ON call = id WHERE run = ? "
        "ORDER BY outcome_calls.question_id, position",
        (run,),
    ):
        question_id, role, stage, answer, reused, call_id = tuple(row)[:6]
        *values, kept = tuple(row)[6:]
        if checksum(values) != kept:
            raise sqlite3.DatabaseError(f"it is damaged, call {call_id} is not what was written")
        done = completion((*values, bool(reused), call_id))
        calls.setdefault(question_id, []).append(Call(role, stage, done, _text(answer)))
    for row in connection.execute("SELECT * FROM outcomes WHERE run = ?", (run,)):
        yield Sample(
            row["question_id"],
            row["route"],
            _text(row["answer"]),
            _text(row["returned"]),
            tuple(calls.get(row["question_id"], ())),
            _text(row["error"]),
        )


def _text(value: str | bytes | None) -> str | None:
    return None if value is None else unpack(value)


def _document_order(question_id: str) -> tuple[str, int, str]:
    task, _, doc_id = question_id.rpartition("/")
    return task, int(doc_id) if doc_id.isdecimal() else 0, doc_id
