"""Runs as they are in a call store, as records: what every table, plot and replay is made from."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mai_plugin.core.records import Call, Completion, Usage, total
from mai_plugin.run.store import COMPLETION, any_text, checksum, schema_trouble, unpack

_NO_DETAILS: Mapping[str, int] = MappingProxyType({})
_SHORT = 64
"""Texts up to this length are often equal, and equal ones become one object."""


@dataclass(frozen=True, slots=True)
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
        finished: whether it finished.
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

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Its tasks, in order of appearance."""
        return tuple(dict.fromkeys(sample.task for sample in self.samples.values()))

    @cached_property
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
        ValueError: no store, no such run, an ambiguous beginning, or a call of a run is damaged.
    """
    with _reading(path) as (file, connection), collector_paused():
        rows = connection.execute("SELECT * FROM runs ORDER BY started_at, rowid")
        names = [column[0] for column in rows.description]
        runs = [dict(zip(names, row, strict=True)) for row in rows]
        chosen = _choose(runs, wanted, file)
        try:
            return [_run(connection, file, runs, row) for row in chosen]
        except sqlite3.OperationalError:
            # A text that is no valid UTF-8, perhaps: read with whatever it holds, its call is named.
            connection.text_factory = any_text
            for row in chosen:
                _run(connection, file, runs, row)
            raise


def filed_runs(path: Path, folder: Path) -> list[str]:
    """Ids of the runs that finished and whose harness wrote its results below a folder, oldest first.

    Raises:
        ValueError: no store, or it cannot be read.
    """
    with _reading(path) as (_, connection):
        rows = connection.execute(
            "SELECT id, environment FROM runs WHERE part_of = id AND finished_at NOTNULL ORDER BY started_at, rowid"
        ).fetchall()
    remembered = {id: json.loads(environment).get("results") for id, environment in rows}
    return [id for id, results in remembered.items() if results and folder.absolute() in Path(results).parents]


def read_requests(path: Path, call_ids: Sequence[int]) -> dict[int, str]:
    """What was asked in some calls: id to the request's description (JSON, see `store.describe`).

    Raises:
        ValueError: no store, or it cannot be read.
    """
    wanted = set(call_ids)
    with _reading(path) as (_, connection):
        return {id: request for id, request in connection.execute("SELECT id, request FROM calls") if id in wanted}


@dataclass(frozen=True)
class Checked:
    """What `check_store` found.

    Attributes:
        file: the store's file.
        calls, runs, outcomes: how many there are.
        damaged: id, question and stage of each call that is not what was written.
        pages: what SQLite says is wrong with the file, one line each.
    """

    file: Path
    calls: int
    runs: int
    outcomes: int
    damaged: tuple[tuple[int, str, str], ...]
    pages: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged and not self.pages


def check_store(path: Path) -> Checked:
    """Look at everything in a store: SQLite's own check of the file, and the checksum of every call.

    Args:
        path: the store's file or folder.

    Raises:
        ValueError: no store, or one that cannot be opened.
    """
    calls, runs, outcomes = 0, 0, 0
    damaged: list[tuple[int, str, str]] = []
    pages: list[str] = []
    with _reading(path) as (file, connection):
        connection.text_factory = any_text
        try:
            for (text,) in connection.execute("PRAGMA quick_check"):
                pages.extend(line for line in text.splitlines() if line != "ok")
            runs, outcomes = connection.execute(
                "SELECT (SELECT COUNT(*) FROM runs), (SELECT COUNT(*) FROM outcomes)"
            ).fetchone()
            for id, question_id, stage, stored, *columns in connection.execute(
                f"SELECT id, question_id, stage, checksum, {COMPLETION} FROM calls ORDER BY id"
            ):
                calls += 1
                if checksum(columns) != stored:
                    damaged.append((int(id), str(question_id), str(stage)))
        except sqlite3.DatabaseError as error:
            pages.append(f"it cannot be read beyond {calls:,} calls: {error}")
    return Checked(file, calls, runs, outcomes, tuple(damaged), tuple(pages))


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """A store's file, opened read-only: a report can be made during a run, and in a folder that is read-only."""
    file = store_file(path)
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=60)
        try:
            connection.execute("BEGIN")  # all as of one moment
            trouble = schema_trouble(connection)
            if trouble:
                raise ValueError(f"call store {file} {trouble}")
            yield file, connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"call store {file} cannot be read: {error}") from error


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: with millions of records, none in a cycle, it only takes time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _choose(rows: Sequence[dict[str, Any]], wanted: Sequence[str], file: Path) -> list[dict[str, Any]]:
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


def _run(connection: sqlite3.Connection, file: Path, rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Run:
    parts = [part for part in rows if part["part_of"] == row["part_of"]]
    samples = {sample.question_id: sample for part in parts for sample in _samples(connection, file, part["id"])}
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


def _samples(connection: sqlite3.Connection, file: Path, run: str) -> Iterator[Sample]:
    calls: dict[str, list[Call]] = {}
    shared: dict[Any, Any] = {}
    share = shared.setdefault
    for question_id, role, stage, answer, reused, id, stored, *columns in connection.execute(
        f"SELECT used.question_id, role, used.stage, answer, reused, id, checksum, {COMPLETION} "
        "FROM outcome_calls AS used JOIN calls ON call = id WHERE run = ? ORDER BY used.question_id, position",
        (run,),
    ):
        if checksum(columns) != stored:
            raise ValueError(
                f"call store {file}: call {id} of {question_id} is damaged (checksum); "
                "`mai store check` looks at everything"
            )
        text, prompt_tokens, cached_tokens, output_tokens, ttft_s, e2e_s, finish_reason, logprob, details = columns
        if type(text) is bytes:
            text = unpack(text)
        if type(answer) is bytes:
            answer = unpack(answer)
        done = Completion(
            share(text, text) if len(text) <= _SHORT else text,
            share(prompt_tokens, prompt_tokens),
            cached_tokens,
            share(output_tokens, output_tokens),
            ttft_s,
            e2e_s,
            share(finish_reason, finish_reason),
            logprob,
            reused == 1,
            id,
            json.loads(details) if details else _NO_DETAILS,
        )
        call = Call(share(role, role), share(stage, stage), done, share(answer, answer))
        if question_id in calls:
            calls[question_id].append(call)
        else:
            calls[question_id] = [call]
    for question_id, route, answer, returned, error in connection.execute(
        "SELECT question_id, route, answer, returned, error FROM outcomes WHERE run = ?", (run,)
    ):
        answer, returned = _text(answer), _text(returned)
        yield Sample(
            question_id,
            share(route, route),
            share(answer, answer),
            share(returned, returned),
            tuple(calls.pop(question_id, ())),
            _text(error),
        )


def _text(value: str | bytes | None) -> str | None:
    return None if value is None else unpack(value)


def _document_order(question_id: str) -> tuple[str, int, str]:
    task, _, doc_id = question_id.rpartition("/")
    return task, int(doc_id) if doc_id.isdecimal() else 0, doc_id
