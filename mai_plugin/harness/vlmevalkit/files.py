"""VLMEvalKit's files: predictions that it would take for a run's own, and what its `status.json` says of a run.

The kit keeps predictions by the model's name alone: another prompt or checkpoint under the same name would be scored
by the answers of the first.  So a file `mai.json` beside them keeps what they were made with.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

MADE_WITH = "mai.json"
SUPERSEDED = "superseded"
"""Folder for what the kit derived from older predictions: it would take it for that of the newer ones."""

_FORMATS = ("tsv", "xlsx", "json", "pkl")
_NO_SCORE = ("invalid_dataset", "Incomplete infer result", "No infer result found", "evaluate_returned_none")
"""Reasons to skip that the kit gives where something went wrong; others (a split without answers) are as intended."""


class Predictions:
    """The predictions of a model on a data set, in the folder where the kit keeps them.

    Args:
        work_dir: the folder: `outputs/MODEL`, or in newer versions of the kit `outputs/MODEL/TIME`.
        model: the model's name in the kit.
        dataset: the data set's.
    """

    def __init__(self, work_dir: Path, model: str, dataset: str) -> None:
        self.folder, self.model, self.dataset = work_dir, model, dataset
        self._made_with = (work_dir if work_dir.name == model else work_dir.parent) / MADE_WITH

    def check(self, settings: Mapping[str, Any]) -> str | None:
        """See that predictions which are there, complete or not, were made with these settings.

        Returns:
            The id of the run in the call store that made them; None if there are no predictions, or no run was kept.

        Raises:
            ValueError: they were made with other settings, or nobody knows with which.
        """
        stem = f"{self.model}_{self.dataset}"
        names = [*(f"{stem}.{ending}" for ending in _FORMATS), f"{stem}_checkpoint.pkl", f"{stem}_PREV.pkl"]
        # Newer versions of the kit link to a run's files, which the next run does not read.
        if not any((self.folder / name).is_file() and not (self.folder / name).is_symlink() for name in names):
            return None
        known = self._read().get(self.dataset)
        if known is None:
            why = f"of which {MADE_WITH} does not say what they were made with"
        else:
            before = known["settings"]
            changed = [key for key in settings if settings[key] != before.get(key)]
            if not changed:
                run: str | None = known["run"]
                return run
            why = f"made with {', '.join(_change(key, before.get(key), settings[key]) for key in changed[:3])}"
        raise ValueError(
            f"{self.folder} holds predictions on {self.dataset} {why}; VLMEvalKit would take them for this run's: give "
            "another --work-dir, or delete that folder"
        )

    def note(self, settings: Mapping[str, Any], run: str | None) -> None:
        """New predictions are being made: note with what, and put away what the kit derived from older ones."""
        self._put_away()
        known = {**self._read(), self.dataset: {"settings": settings, "run": run}}
        temporary = self._made_with.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self._made_with)

    def _put_away(self) -> None:
        stem = f"{self.model}_{self.dataset}_"
        longer = [name for name in self._others() if name.startswith(f"{self.dataset}_")]
        for file in list(self.folder.glob(f"{stem}*")):
            others = any(file.name.startswith(f"{self.model}_{name}") for name in longer)
            if file.name.endswith(("_checkpoint.pkl", "_PREV.pkl")) or others or not file.is_file():
                continue
            (self.folder / SUPERSEDED).mkdir(exist_ok=True)
            file.replace(self.folder / SUPERSEDED / file.name)

    def _others(self) -> Iterable[str]:
        """Data sets that have files in the folder: `POPE_mini`'s begin like `POPE`'s."""
        return {*self._read(), *_load(self.folder / "status.json").get("datasets", {})}

    def _read(self) -> dict[str, Any]:
        return _load(self._made_with)


def data_digest(data: Any) -> str:
    """What tells a data set's questions from others: a digest of its table (pandas) without images and answers."""
    columns = [name for name in data.columns if name != "answer" and not str(name).startswith("image")]
    return hashlib.sha256(data[columns].to_csv(index=False).encode()).hexdigest()[:16]


def not_scored(work_dir: Path, models: Sequence[str], datasets: Sequence[str], since: float) -> list[str]:
    """What went wrong in a run of the kit, a line for each model and data set that it did not finish.

    Args:
        work_dir: its `--work-dir`.
        models, datasets: what it was told to evaluate.
        since: when it began (Unix time).
    """
    lines = []
    for model in models:
        root = work_dir / model
        files = [file for file in (root / "status.json", *root.glob("*/status.json")) if file.exists()]
        newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        found = _load(newest).get("datasets", {}) if newest else {}
        lines += [
            f"{model} x {dataset}: {why}" for dataset in datasets if (why := _trouble(found.get(dataset, {}), since))
        ]
    return lines


def _trouble(status: Mapping[str, Any], since: float) -> str | None:
    # The entry of an earlier run stays until this one has finished.
    if not status or datetime.fromisoformat(status["updated_at"]).timestamp() < since or status["status"] != "done":
        return "it did not finish"
    if "error_message" in status:  # which may be empty
        return " ".join(str(status["error_message"]).split()) or "it failed; the kit's log says where"
    reason = status.get("skip_reason")
    if reason is None and not status.get("metrics"):
        return "no score, and the kit does not say why"
    return f"no score: {reason}" if reason in _NO_SCORE else None


def _change(key: str, before: Any, now: Any) -> str:
    if isinstance(now, bool | int | str | None) and len(f"{before}{now}") < 60:
        return f"{key} {before} (now {now})"
    return f"another {key}"


def _load(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; delete it, and the predictions beside it") from error
    return found
