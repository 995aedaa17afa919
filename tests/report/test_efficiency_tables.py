"""Tables of sparse transfer and speculative decoding, from runs of the package itself on scripted engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.report_stores import Asked, write_results

from mai_plugin.core.records import Message
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.report.command import make_report
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings

SMALL = {"*": {"S": "8", "R": "Two and five.\nAnswer: 7"}}
LARGE = {
    "t/0": {"select": {"text": "five 7", "details": {"full_tokens": 10, "kept_tokens": 4}}},
    "t/1": {"select": {"text": "7", "details": {"full_tokens": 20, "kept_tokens": 5}}},
}
for _stages in LARGE.values():
    _stages.update(
        {
            "S": "9",
            "final": "7",
            "R": {"text": "So.\nAnswer: 7", "details": {"drafted_tokens": 8, "accepted_tokens": 6}},
        }
    )
PAIR = {"small": "s", "large": "l"}


def run(folder: Path, strategy: str, scores: tuple[float, float], **args: Any) -> str:
    given = {
        "engine": "scripted",
        "store": str(folder),
        "reuse": False,
        **({"model": "l"} if strategy == "single" else PAIR),
    }
    settings = Settings.from_args(strategy, {**given, **args})  # type: ignore[arg-type]
    engines = {role: ScriptedEngine(SMALL if role == "small" else LARGE) for role in settings.models}
    with Session(settings, engines) as session:  # type: ignore[arg-type]
        prompt = Message("user", ("How many?\nAnswer the question with a single word.",))
        items = [Item(id, lambda id=id: session.question(id, [prompt], 16)) for id in ("t/0", "t/1")]
        harness = {"harness": "lmms-eval", "results": str((folder / settings.name).absolute())}
        session.run(items, progress=False, harness=harness)
    write_results(folder, settings.name, {"t": [Asked(returned="7", score=score) for score in scores]})
    return settings.name


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        table.key: [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
        for table in make_report(folder, [], [], None).tables
    }


def test_sparse_transfer(tmp_path: Path) -> None:
    run(tmp_path, "transfer", (1.0, 1.0))
    sparse = run(tmp_path, "sparse_transfer", (1.0, 0.0), layer=16)
    run(tmp_path, "mutual_verification", (1.0, 1.0))
    cascade = run(tmp_path, "mutual_verification", (0.0, 0.0), transfer="sparse", keep=0.9)
    found = {row["run"]: row for row in tables(tmp_path)["sparse"]}
    assert found[sparse] == {
        "run": sparse, "benchmark": "t", "layer": "16", "by": "attention", "keep": 0.8, "selections": 2, "full tokens": 15.0,
        "kept tokens": 4.5, "kept share": 0.3, "score": 50.0, "full transfer's score": 100.0,
    }  # fmt: skip
    assert (found[cascade]["layer"], found[cascade]["keep"]) == ("0.444 of the depth", 0.9)
    assert (found[cascade]["score"], found[cascade]["full transfer's score"]) == (0.0, 100.0)
    routes = {row["cascade"]: row for row in tables(tmp_path)["cascade"]}
    assert routes[cascade]["transfer"] == 2


def test_speculative_decoding(tmp_path: Path) -> None:
    run(tmp_path, "single", (1.0, 1.0), prompt="R")
    name = run(tmp_path, "speculative", (1.0, 0.0))
    (row,) = tables(tmp_path)["speculative"]
    assert row.pop("speed-up") > 0
    assert row.pop("s per question") == row.pop("total s") / 2
    assert row == {
        "run": name, "benchmark": "t", "n": 2, "drafts accepted": 0.75, "score": 50.0, "without assistant": 100.0,
    }  # fmt: skip


def test_the_same_model_in_another_dtype_is_not_the_same(tmp_path: Path) -> None:
    run(tmp_path, "single", (1.0, 1.0), prompt="R")
    run(tmp_path, "speculative", (1.0, 0.0), engine_args={"dtype": "float16"}, small_args={"dtype": "float32"})
    (row,) = tables(tmp_path)["speculative"]
    assert (row["speed-up"], row["without assistant"]) == (None, None)
    run(tmp_path, "single", (0.0, 0.0), prompt="R", engine_args={"dtype": "float16"})
    (row,) = tables(tmp_path)["speculative"]
    assert row["without assistant"] == 0.0


def test_no_such_runs_no_such_tables(tmp_path: Path) -> None:
    run(tmp_path, "transfer", (1.0, 1.0))
    assert not {"sparse", "speculative"} & tables(tmp_path).keys()
