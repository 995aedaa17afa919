"""What is kept beside the kit's predictions, what of its files is put away, and how its status is read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mai_plugin.harness.vlmevalkit.files import Predictions, not_scored

SETTINGS = {"prompt": "S", "raw": False}


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("x")


def write_status(folder: Path, **datasets: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat()
    entries = {
        name: {"status": "done", "updated_at": now, "metrics": {"Overall": 1}, **entry}
        for name, entry in datasets.items()
    }
    (folder / "status.json").write_text(json.dumps({"datasets": entries}))


def test_no_predictions_no_objection(tmp_path: Path) -> None:
    predictions = Predictions(tmp_path / "m", "m", "POPE")
    assert predictions.check(SETTINGS) is None
    # Files of another data set whose name begins alike are none of this one's.
    touch(tmp_path / "m", "m_POPE_mini.tsv", "m_POPE_mini_checkpoint.pkl")
    assert predictions.check(SETTINGS) is None


@pytest.mark.parametrize(
    "name", ["m_POPE.tsv", "m_POPE.xlsx", "m_POPE.json", "m_POPE_checkpoint.pkl", "m_POPE_PREV.pkl"]
)
def test_predictions_complete_or_not_are_checked(tmp_path: Path, name: str) -> None:
    predictions = Predictions(tmp_path / "m", "m", "POPE")
    touch(tmp_path / "m", name)
    with pytest.raises(ValueError, match=r"m holds predictions on POPE of which mai.json does not say"):
        predictions.check(SETTINGS)
    predictions.note({**SETTINGS, "questions": "1a"}, "run-1")
    assert predictions.check(SETTINGS) == "run-1"
    with pytest.raises(ValueError, match=r"made with prompt S \(now R\), raw False \(now True\); VLMEvalKit would"):
        predictions.check({"prompt": "R", "raw": True})
    with pytest.raises(ValueError, match=r"made with questions 1a \(now 2b\)"):
        predictions.check({**SETTINGS, "questions": "2b"})


def test_in_the_layout_of_newer_versions_the_note_is_kept_for_the_model(tmp_path: Path) -> None:
    first, second = (
        Predictions(tmp_path / "m" / time, "m", "POPE") for time in ("T20260101-000000", "T20260102-000000")
    )
    touch(first.folder, "m_POPE.tsv")
    first.note(SETTINGS, "run-1")
    assert (tmp_path / "m" / "mai.json").is_file()
    assert second.check({"prompt": "R", "raw": False}) is None  # a fresh folder
    (tmp_path / "m" / "m_POPE.tsv").symlink_to(first.folder / "m_POPE.tsv")
    assert Predictions(tmp_path / "m", "m", "POPE").check({"prompt": "R", "raw": False}) is None
    touch(second.folder, "m_POPE.tsv")  # --reuse has copied them there
    assert second.check(SETTINGS) == "run-1"
    with pytest.raises(ValueError, match="made with prompt S"):
        second.check({"prompt": "R", "raw": False})


def test_what_was_derived_from_older_predictions_is_put_away_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_status(folder, POPE={}, POPE_mini={})
    derived = {"m_POPE_auxmatch.tsv", "m_POPE_score.csv", "m_POPE_gpt-4o_result.pkl"}
    others = {
        "m_POPE.tsv",
        "m_POPE_checkpoint.pkl",
        "m_POPE_PREV.pkl",
        "m_POPE_mini.tsv",
        "m_POPE_mini_auxmatch.tsv",
        "m_MME.tsv",
    }
    touch(folder, *derived, *others)
    Predictions(folder, "m", "POPE").note(SETTINGS, None)
    assert {file.name for file in folder.iterdir()} == {*others, "mai.json", "status.json", "superseded"}
    assert {file.name for file in (folder / "superseded").iterdir()} == derived
    Predictions(folder, "m", "MME").note(SETTINGS, "run-2")
    known = json.loads((folder / "mai.json").read_text())
    assert {dataset: entry["run"] for dataset, entry in known.items()} == {"POPE": None, "MME": "run-2"}


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    touch(tmp_path / "m", "mai.json", "m_POPE.tsv")
    with pytest.raises(ValueError, match=r"mai.json cannot be read: .*; delete it, and the predictions beside it"):
        Predictions(tmp_path / "m", "m", "POPE").check(SETTINGS)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, None),
        ({"skip_reason": "mode_infer"}, None),
        ({"skip_reason": "test_split_without_ground_truth"}, None),
        ({"skip_reason": "invalid_dataset"}, "no score: invalid_dataset"),
        ({"skip_reason": "No infer result found"}, "no score: No infer result found"),
        ({"error_message": "out of\nmemory"}, "out of memory"),
        ({"error_message": ""}, "it failed; the kit's log says where"),
        ({"metrics": {}}, "no score, and the kit does not say why"),
        ({"metrics": {}, "skip_reason": "mode_infer"}, None),
        ({"status": "infer"}, "it did not finish"),
        ({"updated_at": "2020-01-01T00:00:00+00:00"}, "it did not finish"),
    ],
)
def test_status(tmp_path: Path, entry: dict[str, Any], why: str | None) -> None:
    since = datetime.now(UTC).timestamp()
    for folder in (tmp_path / "old" / "m", tmp_path / "new" / "m" / "T20260101-000000"):
        write_status(folder, POPE=entry)
        found = not_scored(tmp_path / folder.relative_to(tmp_path).parts[0], ["m"], ["POPE"], since)
        assert found == ([f"m x POPE: {why}"] if why else [])


def test_what_was_never_begun_is_not_scored(tmp_path: Path) -> None:
    since = datetime.now(UTC).timestamp()
    write_status(tmp_path / "m", POPE={})
    assert not_scored(tmp_path, ["m", "n"], ["POPE", "MME"], since) == [
        "m x MME: it did not finish",
        "n x POPE: it did not finish",
        "n x MME: it did not finish",
    ]
