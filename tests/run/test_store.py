"""The file: what is stored is found again, opening reads no call, damage is found when it is read, processes share it."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.core.records import Call, Completion, Image, Message, Outcome, Request, Sparse
from mai_plugin.run.store import Store, request_key
from mai_plugin.run.stored import check_store, load_runs

REQUEST = Request((Message("user", (Image(PILImage.new("RGB", (2, 2), "red")), "How many?")),), 16, "chartqa/0", "S")
DONE = Completion("three \ud83d", 30, 4, 2, 0.1, 0.2, "stop", -0.5)
SELECTED = replace(DONE, details={"full_tokens": 7, "kept_tokens": 3})


def test_a_call_is_found_again_as_it_was_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs" / "calls.sqlite")
    key = request_key("model@1", REQUEST)
    assert store.find(key) is None
    id = store.add_call(key, "model@1", "scripted", REQUEST, DONE)
    store.add_call(key, "model@1", "scripted", REQUEST, replace(DONE, text="later"))
    assert Store(store.path).find(key) == (id, DONE)
    id = store.add_call("select", "model@1", "scripted", REQUEST, SELECTED)
    assert Store(store.path).find("select") == (id, SELECTED)


def test_odd_numbers_are_kept_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    store.add_call("k", "m", "e", REQUEST, Completion("", ttft_s=1, e2e_s=0.1 + 0.2, logprob=float("nan")))
    found = Store(store.path).find("k")
    assert found is not None
    assert found[1] == Completion("", ttft_s=1.0, e2e_s=0.1 + 0.2, logprob=None)


def test_the_key_is_what_the_answer_depends_on() -> None:
    key = request_key("m", REQUEST)
    picture = Image(PILImage.new("RGB", (2, 2), "red"))
    same = replace(REQUEST, messages=(Message("user", (picture, "How many?")),), question_id="x/1", stage="final")
    assert request_key("m", same) == key
    others = {
        request_key("n", REQUEST),
        request_key("m", replace(REQUEST, max_tokens=17)),
        request_key("m", replace(REQUEST, sparse=Sparse())),
        request_key("m", replace(REQUEST, sparse=Sparse(keep=0.5))),
        request_key("m", replace(REQUEST, messages=(Message("user", ("How many?", picture)),))),
        request_key("m", replace(REQUEST, messages=(Message("user", (picture, "How many? ")),))),
        request_key("m", replace(REQUEST, messages=(Message("system", (picture, "How many?")),))),
        request_key("m", replace(REQUEST, messages=(Message("user", (picture, "How ", "many?")),))),
        request_key(
            "m",
            replace(REQUEST, messages=(Message("user", (Image(PILImage.new("RGB", (2, 2), "blue")), "How many?")),)),
        ),
    }
    assert len(others | {key}) == 10


def fill(store: Store, calls: int = 2) -> None:
    ids = [store.add_call(f"k{number}", "m", "scripted", REQUEST, DONE) for number in range(calls)]
    call = Call("model", "S", replace(DONE, reused=True, call_id=ids[0]), "three")
    store.begin_run("r1", "tiny-S", "single", "scripted", {"models": {}}, {"harness": "none"})
    store.add_outcome("r1", Outcome("chartqa/0", "S", call, (call,)), "three")
    store.add_failure("r1", "chartqa/1", "no image")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    fill(store)
    (unfinished,) = load_runs(tmp_path)
    assert (unfinished.finished, unfinished.wall_s) == (False, None)
    store.end_run("r1", 1.5)
    (run,) = load_runs(tmp_path, ["tiny-S"])
    assert (run.finished, run.wall_s, run.tasks, run.reused_calls) == (True, 1.5, ("chartqa",), 1)
    (call,) = run.samples["chartqa/0"].calls
    assert call == Call("model", "S", replace(DONE, reused=True, call_id=1), "three")
    assert run.samples["chartqa/0"].returned == "three"
    assert run.samples["chartqa/1"].error == "no image"


def test_ranks_are_one_run_that_is_finished_when_all_are(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")

    def begin(rank: int) -> None:
        store.begin_run(f"r{rank}", "S", "single", "e", {}, {"rank": rank, "world_size": 2}, "r0")
        store.add_failure(f"r{rank}", f"t/{rank}", "no")

    begin(1)
    store.end_run("r1", 2.0)
    assert [(run.id, run.finished) for run in load_runs(tmp_path)] == [("r0", False)]  # rank 0 was lost at its start
    begin(0)
    assert [(run.id, run.finished) for run in load_runs(tmp_path)] == [("r0", False)]
    store.end_run("r0", 1.0)
    (run,) = load_runs(tmp_path)
    assert (run.id, run.finished, run.wall_s, list(run.samples)) == ("r0", True, 2.0, ["t/0", "t/1"])


def test_a_rank_without_a_row_leaves_the_run_unfinished(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    store.begin_run("r0", "S", "single", "e", {}, {"world_size": 2}, "r0")
    store.end_run("r0", 1.0)
    assert not load_runs(tmp_path)[0].finished


def refused(path: Path) -> str:
    """What is said of a store that is not opened.  It is one line, and the file stays as it was."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ValueError, match="call store") as error:
        Store(path)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("; give another file (store=PATH), or store=off")
    assert (path.read_bytes() if path.is_file() else None) == before
    return str(error.value)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A store with some hundred calls, closed."""
    store = Store(tmp_path / "calls.sqlite")
    fill(store, calls=300)
    store.close()
    return store.path


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def damage(path: Path, columns: str, where: str = "id = 1") -> None:
    """Change columns of calls behind the store's back."""
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE calls SET {columns} WHERE {where}")
    connection.commit()
    connection.close()


DAMAGES = (
    "text = 'seven'",
    "text = CAST(x'74ff' AS TEXT)",  # no valid UTF-8
    "output_tokens = 3",
    "ttft_s = 9.0",
    "finish_reason = 'length'",
    "logprob = NULL",
    "details = '{\"kept_tokens\": 1}'",
    "checksum = checksum + 1",
)


def test_opening_reads_no_call(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not take longer for a large file."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = Store(full)
    assert len(statements) < 10
    assert not [text for text in statements if "calls" in text or "outcomes" in text or "check" in text], statements
    store.find("k0")
    assert "FROM calls" in statements[-1]


@pytest.mark.parametrize("columns", DAMAGES)
def test_a_damaged_call_is_skipped_and_named_once(full: Path, columns: str, caplog: pytest.LogCaptureFixture) -> None:
    damage(full, columns)
    store = Store(full)
    with caplog.at_level(logging.WARNING, logger="mai_plugin"):
        assert store.find("k0") is None
        assert store.find("k0") is None
    assert caplog.messages == [f"mai: call store {full}: call 1 is damaged (checksum); it is skipped"]
    assert store.find("k1") == (2, DONE)
    again = store.add_call("k0", "m", "scripted", REQUEST, DONE)
    assert store.find("k0") == (again, DONE)


@pytest.mark.parametrize("columns", DAMAGES)
def test_a_damaged_call_of_a_run_is_an_error_that_names_it(full: Path, columns: str) -> None:
    damage(full, columns)
    with pytest.raises(ValueError, match="call 1 of chartqa/0 is damaged") as error:
        load_runs(full)
    assert str(error.value) == (
        f"call store {full}: call 1 of chartqa/0 is damaged (checksum); `mai store check` looks at everything"
    )


def test_a_damaged_text_of_an_outcome_is_an_error(full: Path) -> None:
    connection = sqlite3.connect(full)
    connection.execute("UPDATE outcomes SET returned = CAST(x'74ff' AS TEXT) WHERE question_id = 'chartqa/0'")
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match="cannot be read: Could not decode"):
        load_runs(full)


def test_a_call_of_another_engine_counts_where_no_engine_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "calls.sqlite")
    first = store.add_call("k", "m", "vllm", REQUEST, DONE)
    second = store.add_call("k", "m", "transformers", REQUEST, replace(DONE, text="four"))
    store.add_call("k", "m", "transformers", REQUEST, replace(DONE, text="five"))
    assert store.find("k") == (first, DONE)
    assert store.find("k", "vllm") == (first, DONE)
    assert store.find("k", "transformers") == (second, replace(DONE, text="four"))
    assert store.find("k", "openai") is None


def test_check_of_a_sound_store(full: Path) -> None:
    found = CliRunner().invoke(app, ["store", "check", str(full.parent)])
    assert found.exit_code == 0, found.output
    assert found.output == f"{full}: 300 calls, 1 runs, 2 outcomes\n"


@pytest.mark.parametrize("columns", DAMAGES)
def test_check_names_every_damaged_call(full: Path, columns: str) -> None:
    damage(full, columns, "id IN (3, 200)")
    checked = check_store(full)
    assert (checked.calls, checked.runs, checked.outcomes, checked.pages) == (300, 1, 2, ())
    assert checked.damaged == ((3, "chartqa/0", "S"), (200, "chartqa/0", "S"))
    found = CliRunner().invoke(app, ["store", "check", str(full)])
    assert found.exit_code == 1
    assert (
        "damaged call 3: question chartqa/0, stage S\ndamaged call 200: question chartqa/0, stage S\n" in found.output
    )


def test_check_of_overwritten_pages(full: Path) -> None:
    overwrite(full, full.stat().st_size // 2 // 4096 * 4096, b"\xa5" * 8192)
    Store(full).close()  # the pages that opening reads are in order
    assert check_store(full).pages
    found = CliRunner().invoke(app, ["store", "check", str(full)])
    assert found.exit_code == 1
    assert "damaged file: " in found.output


def test_check_of_no_store(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["store", "check", str(tmp_path)])
    assert found.exit_code == 1
    assert (
        found.output
        == f"mai: no call store at {tmp_path}/calls.sqlite; give the file, or the folder that holds calls.sqlite\n"
    )


@pytest.mark.parametrize("size", [100, 4096, 5000, 40960])
def test_a_truncated_file(full: Path, size: int) -> None:
    os.truncate(full, size)
    assert "is damaged" in refused(full)


@pytest.mark.parametrize("content", [b"x", b"x" * 511, b"This is a text about calls.\n" * 1000, bytes(10000)])
def test_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "calls.sqlite").write_bytes(content)
    assert "is damaged or no call store" in refused(tmp_path / "calls.sqlite")


def test_a_database_of_something_else(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "places.sqlite")
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    assert "is no call store: it holds the tables of something else (bookmarks)" in refused(tmp_path / "places.sqlite")


@pytest.mark.parametrize("version", [1, 3])
def test_another_schema_version(full: Path, version: int) -> None:
    connection = sqlite3.connect(full)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert f"has schema version {version}, this package writes 2" in refused(full)
    with pytest.raises(ValueError, match=f"has schema version {version}"):
        load_runs(full)


def test_a_store_without_one_of_its_tables(full: Path) -> None:
    connection = sqlite3.connect(full)
    connection.executescript("DROP TABLE outcome_calls; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert "is damaged: it has no table outcome_calls" in refused(full)


def test_runs_begun_in_the_same_millisecond_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mai_plugin.run.store.now", lambda: "2026-01-01T00:00:00.000+00:00")
    store = Store(tmp_path / "calls.sqlite")
    for id in ("later-in-the-alphabet", "earlier"):
        store.begin_run(id, "name", "single", "scripted", {"models": {}}, {})
    assert [run.id for run in load_runs(store.path)] == ["later-in-the-alphabet", "earlier"]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "calls.sqlite").touch()
    fill(Store(tmp_path / "calls.sqlite"))
    assert len(load_runs(tmp_path)) == 1


def test_places_where_no_store_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.sqlite").mkdir()
    assert "is a folder" in refused(tmp_path / "folder.sqlite")
    (tmp_path / "file").touch()
    assert "File exists" in refused(tmp_path / "file" / "calls.sqlite")
    assert "No such file or directory" in refused(Path("/proc/nowhere/calls.sqlite"))
    assert "database or disk is full" in refused(Path("/dev/full"))

    def read_only(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert "Permission denied" in refused(tmp_path / "new" / "calls.sqlite")


def test_a_file_that_may_only_be_read(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda path, **options: connect(f"file:{path}?mode=ro", uri=True, **options))
    assert Store(full).find("k0") is not None  # opening writes nothing: what has to be said is said when a run begins
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        Store(full).begin_run("r", "S", "single", "e", {}, {})


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    """With a limit on the size of files, in a process of its own."""
    code = """
import resource, sys
from pathlib import Path
from mai_plugin.run.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    Store(Path(sys.argv[1]))
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "calls.sqlite"], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 1, done.stderr
    assert "disk" in done.stdout
    assert "give another file (store=PATH)" in done.stdout


WRITE_MANY = """
import sys
from pathlib import Path
from mai_plugin.core.records import Call, Completion, Message, Outcome, Request
from mai_plugin.run.store import Store
path, name = sys.argv[1:]
store = Store(Path(path))
store.begin_run(name, "S", "single", "e", {}, {})
for number in range(200):
    request = Request((Message("user", (f"{number}?",)),), 4, f"t/{number}", "S")
    id = store.add_call(f"{name} {number}", "m", "e", request, Completion("7"))
    call = Call("model", "S", Completion("7", call_id=id), "7")
    assert store.find(f"{name} {number}") == (id, Completion("7"))
    store.add_outcome(name, Outcome(f"t/{number}", "S", call, (call,)), "7")
store.end_run(name, 1.0)
"""


def test_processes_share_a_store_from_its_making_on(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(4)]
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITE_MANY, tmp_path / "calls.sqlite", name], stderr=subprocess.PIPE)
        for name in names
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert errors == [""] * 4
    runs = load_runs(tmp_path)
    assert sorted(run.id for run in runs) == names
    assert all(run.finished and len(run.samples) == 200 for run in runs)
    connection = sqlite3.connect(tmp_path / "calls.sqlite")
    keys = Counter(key for (key,) in connection.execute("SELECT key FROM calls"))
    assert (len(keys), set(keys.values())) == (800, {1})


@pytest.mark.parametrize("logprob", [-0.0, 0.0, float("-inf"), float("nan"), -1e-320])
def test_a_store_with_an_odd_log_probability_opens_again(tmp_path: Path, logprob: float):
    store = Store(tmp_path / "calls.sqlite")
    store.add_call("k", "model@1", "scripted", REQUEST, replace(DONE, ttft_s=-0.0, logprob=logprob))
    store.close()
    found = Store(store.path).find("k")
    assert found is not None
    assert found[1].logprob == (None if logprob != logprob else logprob)
