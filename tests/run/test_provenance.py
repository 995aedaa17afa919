"""What is written down with a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mai_plugin.harness.vlmevalkit.model import described
from mai_plugin.run.provenance import describe_environment, describe_settings, new_run_id
from mai_plugin.settings import Settings
from mai_plugin.study.reproduce.runner import _described as planned


def test_ids_are_readable_and_never_the_same() -> None:
    first, second = new_run_id("org/MAI tiny"), new_run_id("org/MAI tiny")
    assert first.startswith("org_MAI_tiny-2")
    assert first != second


def test_settings_are_kept_whole_and_without_secrets() -> None:
    settings = Settings.from_args(
        "mutual_verification",
        {"small": "a", "large": "b", "agreement": "relaxed", "engine_args": {"token": "hush", "x": 1}, "reuse": False,
         "batch_size": 4, "large_args": {"default_headers": {"Authorization": "Bearer hush"}}},
    )  # fmt: skip
    kept = describe_settings(settings, {"small": "a@1", "large": "b@2"})
    assert "hush" not in json.dumps(kept)
    assert kept["models"]["small"] == {
        "name": "a",
        "identity": "a@1",
        "args": {"token": "***", "x": 1, "batch_size": 4},
    }
    assert (kept["agreement"], kept["reuse"], kept["concurrency"]) == ("relaxed", False, 64)
    assert kept["prompts"]["reason"] == dict(settings.prompts.reason)


def test_a_sparse_transfer_is_kept_with_its_selector_and_other_runs_stay_as_they_were() -> None:
    """Everywhere where a run is described: in the store, beside VLMEvalKit's predictions, and in a plan."""
    args = {"preset": "MAI-tiny", "engine": "vllm", "transfer": "sparse", "selector": "mai-tiny-large", "layer": 2}
    settings = Settings.from_args("mutual_verification", args)
    kept = describe_settings(settings, {"small": "a", "large": "b", "selector": "c"})
    assert set(kept["models"]) == {"small", "large"}
    assert kept["sparse"] == {
        "layer": 2,
        "keep": 0.8,
        "by": "attention",
        "selector": {"name": "mai-tiny-large", "identity": "c", "args": {}},
    }
    assert described(settings, 16)["sparse"]["layer"] == 2
    assert described(settings, 16)["selector model"].startswith("checkpoint:")
    assert planned(settings)["sparse"]["selector"]["identity"].startswith("checkpoint:")  # type: ignore[index]
    assert "sparse" not in describe_settings(Settings.from_args("transfer", {}), {"small": "a", "large": "b"})


@pytest.mark.parametrize(
    ("given", "name"), [("exact", "exact"), ("difflib:get_close_matches", "difflib:get_close_matches")]
)
def test_agreement_is_named(given: str, name: str) -> None:
    settings = Settings.from_args("mutual_verification", {"agreement": given})
    assert describe_settings(settings, {"small": "", "large": ""})["agreement"] == name


def test_environment() -> None:
    kept = describe_environment(["chartqa"], {"harness": "lmms-eval", "results": "/x"})
    assert json.loads(json.dumps(kept)) == kept
    assert (kept["tasks"], kept["harness"], kept["results"]) == (["chartqa"], "lmms-eval", "/x")
    assert "torch" in kept["packages"]
    assert kept["cpus"] >= 1


def test_an_edited_strategy_of_ones_own_is_another_one(tmp_path: Path) -> None:
    """VLMEvalKit would take the predictions of the earlier version for those of this one."""
    found = []
    for version in ("S", "R"):
        file = tmp_path / version / "mine.py"
        file.parent.mkdir()
        file.write_text(
            "from mai_plugin import Agent, Outcome\n"
            f"async def f(question, small: Agent):\n    c = await small.ask(question, {version!r})\n"
            "    return Outcome(question.id, 'r', c, (c,))\n"
        )
        settings = Settings.from_args("mutual_verification", {"strategy": f"{file}:f", "small": "org/m"})
        found.append(describe_settings(settings, {"small": "id"})["strategy_file"])
    assert found[0] != found[1]
    built_in = Settings.from_args("single", {"model": "org/m"})
    assert "strategy_file" not in describe_settings(built_in, {"model": "id"})
