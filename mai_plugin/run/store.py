"""The call store: one SQLite file in which every finished call is stored at once, so that none is made twice.

Tables: `calls` (a request's key and its completion), `runs` (settings and environment), `outcomes` (a row per question
of a run: route, answer, what went back to the harness) and `outcome_calls` (the calls that an outcome used, in order).
Readers use `mai_plugin.run.stored`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mai_plugin.core.records import Completion, Outcome, Request
from mai_plugin.engines.images import pixel_digest

log = logging.getLogger("mai_plugin")

VERSION = 2
TABLES = frozenset(("meta", "calls", "runs", "outcomes", "outcome_calls"))
WAIT_S = 60.0
"""How long a process waits for another one that is writing."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,              -- digest of model identity, limit, messages and pixels; see `request_key`
    model TEXT NOT NULL,            -- model identity
    engine TEXT NOT NULL,
    question_id TEXT NOT NULL,      -- the question that it was first made for
    stage TEXT NOT NULL,
    request TEXT NOT NULL,          -- JSON: max_tokens, and messages with images as digests
    text NOT NULL,                  -- TEXT; a BLOB (UTF-8 with surrogates) where it is no valid Unicode
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    ttft_s REAL NOT NULL,
    e2e_s REAL NOT NULL,
    finish_reason TEXT NOT NULL,
    logprob REAL,
    checksum INTEGER NOT NULL,      -- of the columns from text to logprob, and details; see `checksum`
    made_at TEXT NOT NULL,          -- UTC, ISO 8601
    details TEXT                    -- JSON: counts that only some calls have, see `Completion`
);
CREATE INDEX calls_by_key ON calls (key);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    part_of TEXT NOT NULL,          -- id of rank 0's run where several ranks made one run together, else its own
    name TEXT NOT NULL,             -- the preset, or models and strategy
    strategy TEXT NOT NULL,
    engine TEXT NOT NULL,
    settings TEXT NOT NULL,         -- JSON: models (role to name, identity, args), prompts, limits, concurrency
    environment TEXT NOT NULL,      -- JSON: harness, where it writes results, versions, machine
    started_at TEXT NOT NULL,
    finished_at TEXT,               -- NULL: it did not finish
    wall_s REAL                     -- first question to last answer
);
CREATE TABLE outcomes (
    run TEXT NOT NULL REFERENCES runs (id),
    question_id TEXT NOT NULL,      -- task/doc_id
    route TEXT,                     -- NULL: it could not be answered
    answer TEXT,                    -- NULL: the final text states none
    returned,                       -- what went back to the harness; TEXT or BLOB as above
    error TEXT,
    PRIMARY KEY (run, question_id)
);
CREATE TABLE outcome_calls (
    run TEXT NOT NULL,
    question_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    stage TEXT NOT NULL,
    answer TEXT,
    call INTEGER NOT NULL REFERENCES calls (id),
    reused INTEGER NOT NULL,        -- 1: taken from the store, its times are those it was made with
    PRIMARY KEY (run, question_id, position)
);
"""
_FORGET_CALLS = "DELETE FROM outcome_calls WHERE run = ? AND question_id = ?"
COMPLETION = "text, prompt_tokens, cached_tokens, output_tokens, ttft_s, e2e_s, finish_reason, logprob, details"
"""The columns of `checksum` and `completion`."""
_CALL = f"key, model, engine, question_id, stage, request, {COMPLETION}, checksum, made_at"
ADD_CALL = f"INSERT INTO calls ({_CALL}) VALUES ({', '.join('?' * len(_CALL.split(', ')))})"
"""Takes what `call_row` returns."""


class Store:
    """An open call store.  Several threads and processes may use one file at the same time.

    Opening looks at the header, the names of the tables and the schema version only, so that it takes as long for a
    large file as for a small one.  A row is checked when it is read.

    Args:
        path: the SQLite file; made, with its folder, if it does not exist.

    Raises:
        ValueError: the file cannot be made or opened, is no call store, is truncated, or has another schema version.
            It is not touched.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._damaged: set[int] = set()
        advice = "give another file (store=PATH), or store=off"
        if path.is_dir():
            raise ValueError(f"call store {path} is a folder; {advice}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not _may_be_sqlite(path):
                raise ValueError(f"call store {path} is damaged or no call store; {advice}")
            self._connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            # A damaged text may be no valid UTF-8: it has to be read to be found damaged.
            self._connection.text_factory = any_text
        except (OSError, sqlite3.Error) as error:
            raise ValueError(f"call store {path}: {error}; {advice}") from error
        try:
            trouble = schema_trouble(self._connection) or self._prepare()
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise ValueError(f"call store {path}: {error}; {advice}") from error
        except sqlite3.DatabaseError as error:
            trouble = f"is damaged or no call store ({error})"
        if trouble:
            self._connection.close()
            raise ValueError(f"call store {path} {trouble}; {advice}")

    def _prepare(self) -> str | None:
        """Make the tables, unless another process did so just now.  Returns what is wrong, as `schema_trouble` does."""
        self._use_wal()
        # A killed process loses nothing; a power cut may take the last calls, but leaves the file sound.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as connection:
            if connection.execute("SELECT name FROM sqlite_master").fetchone():
                return schema_trouble(connection)
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))
        return None

    def _use_wal(self) -> None:
        """With WAL a call is a short append, and readers do not wait for writers.

        SQLite waits for a process that writes, but not for one that changes this mode: so that is done here.
        """
        until = time.monotonic() + WAIT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk ends it by itself
                    self._connection.execute("ROLLBACK")
                raise

    def find(self, key: str, engine: str | None = None) -> tuple[int, Completion] | None:
        """The first undamaged call made under a key, with its row id.  A damaged one is logged and skipped.

        Args:
            key: see `request_key`.
            engine: take only calls that this engine made.
        """
        of_engine, values = (" AND engine = ?", (key, engine)) if engine else ("", (key,))
        with self._lock:
            rows = self._connection.execute(
                f"SELECT id, checksum, {COMPLETION} FROM calls WHERE key = ?{of_engine} ORDER BY id", values
            ).fetchall()
        for id, stored, *columns in rows:
            if checksum(columns) == stored:
                return id, completion(columns)
            if id not in self._damaged:
                self._damaged.add(id)
                log.warning("mai: call store %s: call %d is damaged (checksum); it is skipped", self.path, id)
        return None

    def add_call(self, key: str, model: str, engine: str, request: Request, done: Completion) -> int:
        """Keep a finished call.  It is on disk when this returns.

        Returns:
            Its row id.
        """
        values = call_row(key, model, engine, request, done)
        with self._lock:
            cursor = self._connection.execute(ADD_CALL, values)
        return int(cursor.lastrowid or 0)

    def begin_run(
        self,
        id: str,
        name: str,
        strategy: str,
        engine: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, Any],
        part_of: str | None = None,
    ) -> None:
        """Open a run.  Its outcomes follow one by one.  `part_of` names rank 0's run where there are several ranks."""
        values = (id, part_of or id, name, strategy, engine, json.dumps(settings), json.dumps(environment), now())
        with self._lock:
            self._connection.execute(
                "INSERT INTO runs (id, part_of, name, strategy, engine, settings, environment, started_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    def add_outcome(self, run: str, outcome: Outcome, returned: str) -> None:
        """Keep an answered question and the calls that it used, each of which is in the store already."""
        answer = None if outcome.final.answer is None else pack(outcome.final.answer)
        calls = [
            (run, outcome.question_id, position, call.role, call.stage, call.answer and pack(call.answer),
             call.completion.call_id, call.completion.reused)
            for position, call in enumerate(outcome.calls)
        ]  # fmt: skip
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, NULL)",
                (run, outcome.question_id, outcome.route, answer, pack(returned)),
            )
            connection.execute(_FORGET_CALLS, (run, outcome.question_id))
            connection.executemany("INSERT OR REPLACE INTO outcome_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)", calls)

    def add_failure(self, run: str, question_id: str, error: str) -> None:
        """Keep a question that could not be answered."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO outcomes VALUES (?, ?, NULL, NULL, NULL, ?)", (run, question_id, pack(error))
            )
            connection.execute(_FORGET_CALLS, (run, question_id))

    def take_over(self, run: str, earlier: str, question_ids: Sequence[str]) -> None:
        """Count answered questions of an earlier run to a later one that resumes it, their calls as reused."""
        keys = [(run, earlier, question_id) for question_id in question_ids]
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO outcomes SELECT ?, question_id, route, answer, returned, error "
                "FROM outcomes WHERE run = ? AND question_id = ? AND route IS NOT NULL",
                keys,
            )
            connection.executemany(
                "INSERT OR IGNORE INTO outcome_calls SELECT ?, question_id, position, role, stage, answer, call, 1 "
                "FROM outcome_calls WHERE run = ? AND question_id = ?",
                keys,
            )

    def end_run(self, id: str, wall_s: float) -> None:
        """Close a run that finished, all its outcomes being written."""
        with self._lock:
            self._connection.execute("UPDATE runs SET finished_at = ?, wall_s = ? WHERE id = ?", (now(), wall_s, id))

    def close(self) -> None:
        """Close the file.  May be called twice."""
        with self._lock:
            self._connection.close()


def _may_be_sqlite(path: Path) -> bool:
    """Whether a file has SQLite's header, or nothing in it yet.  SQLite takes a few bytes of anything for nothing."""
    if not path.is_file():
        return True
    with path.open("rb") as file:
        return file.read(16) in (b"", b"SQLite format 3\0")


def request_key(model: str, request: Request) -> str:
    """What a greedy call is known by: the model's identity, the token limit, the exact messages and the pixels.

    Neither the engine nor the question's id nor the stage is in it: who asks, and why, does not change the answer.
    Sampling settings are not in it either, because there are none: every `Request` is a greedy one, so that only
    greedy calls are ever kept and reused.
    """
    return hashlib.sha256(f"{model}\n{describe(request)}".encode()).hexdigest()


def describe(request: Request) -> str:
    """A request as JSON: its limit, and its messages with each image as the digest of its pixels."""
    messages = [
        [message.role, [part if isinstance(part, str) else {"image": pixel_digest(part)} for part in message.content]]
        for message in request.messages
    ]
    sparse = {"sparse": asdict(request.sparse)} if request.sparse else {}
    return json.dumps({"max_tokens": request.max_tokens, "messages": messages, **sparse})


def call_row(key: str, model: str, engine: str, request: Request, done: Completion) -> tuple[Any, ...]:
    """A finished call as the row that `ADD_CALL` inserts."""
    # SQLite keeps NaN as NULL and -0.0, the log-probability of a certain answer, as 0.0.
    logprob = None if done.logprob is None or math.isnan(done.logprob) else float(done.logprob) + 0.0
    columns = (
        pack(done.text), int(done.prompt_tokens), int(done.cached_tokens), int(done.output_tokens),
        float(done.ttft_s) + 0.0, float(done.e2e_s) + 0.0, done.finish_reason, logprob,
        json.dumps(dict(done.details)) if done.details else None,
    )  # fmt: skip
    asked = (key, model, engine, request.question_id, request.stage, describe(request))
    return (*asked, *columns, checksum(columns), now())


def checksum(columns: Sequence[Any]) -> int:
    """CRC-32 of a call's columns from `text` to `logprob`, and of its `details` if it has any, as in the file.

    It is that of the columns' `repr` as a tuple, put together here because that takes half the time.
    """
    text, prompt, cached, output, ttft_s, e2e_s, reason, logprob, details = columns
    more = "" if details is None else f", {details!r}"
    return zlib.crc32(
        f"({text!r}, {prompt!r}, {cached!r}, {output!r}, {ttft_s!r}, {e2e_s!r}, {reason!r}, {logprob!r}{more})".encode()
    )


def completion(row: Sequence[Any]) -> Completion:
    """A row of the completion's columns, in their order, as a record; `reused` and `call_id` may follow."""
    text, *numbers, details = row[:9]
    done = Completion(unpack(text), *numbers, *row[9:])
    return replace(done, details=json.loads(details)) if details else done


def schema_trouble(connection: sqlite3.Connection) -> str | None:
    """What is wrong with a file, if it holds anything yet.  Only reads, and no row of a call."""
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return None
    if "meta" not in tables:
        return f"is no call store: it holds the tables of something else ({', '.join(tables[:3])})"
    version = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    if version != (str(VERSION),):
        return f"has schema version {version and version[0]}, this package writes {VERSION}"
    missing = sorted(TABLES.difference(tables))
    return f"is damaged: it has no table {', '.join(missing)}" if missing else None


def any_text(value: bytes) -> str:
    """Text from SQLite, whatever bytes there are: a damaged one does not raise, and fails its checksum."""
    return value.decode("utf-8", "surrogateescape")


def pack(text: str) -> str | bytes:
    """Text for SQLite, which takes no lone surrogates (a model can write half a character): then as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack(value: str | bytes) -> str:
    """The inverse of `pack`."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def now() -> str:
    """The time as the store writes it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
