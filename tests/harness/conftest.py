"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from helpers.offline import Offline
from helpers.offline import offline as offline

if TYPE_CHECKING:
    from lmms_eval.tasks import TaskManager


@pytest.fixture(scope="session")
def tasks() -> TaskManager:
    """The harness's index of tasks, made once: it reads some thousand files."""
    from lmms_eval.tasks import TaskManager

    return TaskManager(model_name="mai_single")


@pytest.fixture
def here(offline: Offline, monkeypatch: pytest.MonkeyPatch) -> Offline:
    """Work in the folder of the generated data."""
    monkeypatch.chdir(offline.folder)
    monkeypatch.setenv("HF_HOME", str(offline.folder / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", offline.folder / "cache" / "datasets")
    return offline


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the harness's logger was told."""
    from loguru import logger as eval_logger

    lines: list[str] = []
    sink = eval_logger.add(lambda message: lines.append(str(message)), level="INFO", format="{message}")
    yield lines
    eval_logger.remove(sink)
