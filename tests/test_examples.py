"""The strategies in examples/: each route by scripts, and through the harnesses."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.kit import make_kit
from helpers.offline import Offline, wrong_answer
from helpers.offline import offline as offline
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

import mai_plugin as mai
from mai_plugin.core.prompts import load_prompts
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.report.command import make_report
from mai_plugin.report.plots import pictures
from mai_plugin.settings import strategy_spec

EXAMPLES = Path(__file__).parent.parent / "examples" / "strategies"
PROMPTS = load_prompts()
QUESTION = mai.Question.from_messages("q/0", [mai.Message("user", ("How many bars?",))], 16, PROMPTS)


def example(name: str) -> Any:
    """The function in the file of that name."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def run(
    name: str, scripts: dict[str, dict[str, Any]], **arguments: Any
) -> tuple[mai.Outcome, dict[str, ScriptedEngine]]:
    engines = {role: ScriptedEngine({"*": script}) for role, script in scripts.items()}
    agents = {role: mai.Agent(role, engine.generate, PROMPTS) for role, engine in engines.items()}
    return asyncio.run(example(name)(QUESTION, **agents, **arguments)), engines


def summary(outcome: mai.Outcome) -> tuple[str, str, str]:
    return outcome.route, outcome.answer, " ".join(f"{call.role}-{call.stage}" for call in outcome.calls)


@pytest.mark.parametrize(
    ("small", "medium", "large", "expected"),
    [
        ({"S": "7"}, {"S": "7."}, {}, ("agree-simple", "7", "small-S medium-S")),
        ({"S": "8"}, {"S": "7", "R": "So.\nAnswer: 7"}, {}, ("agree-reason", "7", "small-S medium-S medium-R")),
        ({"S": "8"}, {"S": "7", "R": "So.\nAnswer: 8"}, {}, ("agree-reason", "8", "small-S medium-S medium-R")),
        (
            {"S": "8"}, {"S": "7", "R": "So.\nAnswer: 9"}, {"final": "6"},
            ("transfer", "6", "small-S medium-S medium-R large-final"),
        ),
    ],
)  # fmt: skip
def test_chain(small: Any, medium: Any, large: Any, expected: Any) -> None:
    outcome, _ = run("chain", {"small": small, "medium": medium, "large": large})
    assert summary(outcome) == expected


def test_chain_with_another_rule_for_agreement() -> None:
    scripts = {"small": {"S": "100"}, "medium": {"S": "98", "R": "So.\nAnswer: 3"}, "large": {"final": "1"}}
    assert run("chain", scripts)[0].route == "transfer"
    assert run("chain", scripts, agreement=lambda a, b, kind: a[:1] == "1" or b[:1] == "9")[0].route == "agree-simple"


def test_panel() -> None:
    nine, eight = {"R": "Nine bars.\nAnswer: 9"}, {"R": "Eight bars.\nAnswer: 8"}
    outcome, _ = run("panel", {"first": nine, "second": nine, "large": {}})
    assert summary(outcome) == ("unanimous", "9", "first-R second-R")
    outcome, engines = run("panel", {"first": nine, "second": nine, "third": eight, "large": {"final": "9"}})
    assert summary(outcome) == ("judged", "9", "first-R second-R third-R large-final")
    (_, read, _) = engines["large"].requests[-1].messages
    assert read.text == "Nine bars.\nAnswer: 9\n\nNine bars.\nAnswer: 9\n\nEight bars.\nAnswer: 8"


@pytest.mark.parametrize(
    ("logprob", "large", "expected"),
    [
        (-0.1, {}, ("accept", "7", "small-S")),
        (-0.2, {"S": "7"}, ("agree-simple", "7", "small-S large-S")),
        (-0.2, {"S": "9"}, ("agree-reason", "9", "small-S large-S small-R")),
        (-0.2, {"S": "8", "final": "6"}, ("transfer", "6", "small-S large-S small-R large-final")),
    ],
)
def test_gate(logprob: float, large: Any, expected: Any) -> None:
    small = {"S": {"text": "7", "logprob": logprob}, "R": "So.\nAnswer: 9"}
    assert summary(run("gate", {"small": small, "large": large}, threshold=-0.1)[0]) == expected


def test_gate_needs_log_probabilities() -> None:
    with pytest.raises(ValueError, match="the engine of 'small' gives no log-probabilities"):
        run("gate", {"small": {"S": "7"}, "large": {}}, threshold=-0.1)


@pytest.fixture(scope="module")
def chained(offline: Offline) -> Offline:
    """The chain of three tiny models through the real command line of lmms-eval."""
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--tasks", "chartqa", "--limit", "40", "--batch_size", "8", "--model_args",
        f"strategy={EXAMPLES / 'chain.py'}:chain,small=mai-tiny-small,medium=mai-tiny-large,large=mai-tiny-large,"
        "max_reasoning_tokens=64,store=chain.sqlite",
        "--output_path", "chain", "--log_samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return offline


@pytest.mark.slow
def test_chain_of_tiny_models_through_lmms_eval(chained: Offline) -> None:
    (stored,) = mai.load_runs(chained.folder / "chain.sqlite")
    assert stored.name == "mai-tiny-small+mai-tiny-large+mai-tiny-large-chain"
    assert chained.results("chain")["model_name"] == stored.name
    routes = {sample.route for sample in stored.samples.values()}
    assert {"agree-simple", "agree-reason"} <= routes <= {"agree-simple", "agree-reason", "transfer"}
    assert {call.role for sample in stored.samples.values() for call in sample.calls} >= {"small", "medium"}
    assert chained.results("chain")["results"]["chartqa"]["relaxed_overall,none"] > 0.5


@pytest.mark.slow
def test_the_report_shows_the_chain_s_routes_and_models(chained: Offline, tmp_path: Path) -> None:
    report = make_report(chained.folder / "chain.sqlite", [], [], None)
    assert {picture.name for picture in pictures(report.results)} >= {"routes", "stage_tokens"}
    (stored,) = mai.load_runs(chained.folder / "chain.sqlite")
    tables = {table.key: table for table in report.tables}
    overview = dict(
        zip([column.name for column in tables["overview"].columns], tables["overview"].rows[0], strict=True)
    )
    spent = {role: stored_tokens(stored, role) for role in ("small", "medium", "large")}
    assert {role: overview[role] for role in spent} == {role: tokens or None for role, tokens in spent.items()}
    assert overview["output tokens"] == sum(spent.values())
    assert {row[2] for row in tables["latency"].rows} == {"all", *(s.route for s in stored.samples.values())}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "models", "routes", "score"),
    [
        ("panel", {"first": "agrees", "second": "errs", "large": "large"}, {"unanimous": 2, "judged": 2}, 1.0),
        ("gate", {"small": "sure", "large": "large"}, {"accept": 2, "agree-simple": 1, "transfer": 1}, 0.75),
    ],
)
def test_the_others_through_lmms_eval(
    offline: Offline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, models: Any, routes: Any, score: float
) -> None:
    """With scripts, by the number of the document."""
    monkeypatch.chdir(offline.folder)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", offline.folder / "cache" / "datasets")
    scripts: dict[str, dict[str, Any]] = {"agrees": {}, "errs": {}, "sure": {}, "large": {}}
    for number, question in enumerate(offline.questions["chartqa"][:4]):
        document, right, wrong = f"chartqa/{number}", question.answer, wrong_answer(question)
        scripts["agrees"][document] = {"R": f"So.\nAnswer: {right}"}
        scripts["errs"][document] = {"R": f"So.\nAnswer: {wrong if number % 2 else right}"}
        sure = {"text": wrong if number == 1 else right, "logprob": -0.1 if number < 2 else -2.0}
        scripts["sure"][document] = {"S": sure, "R": "I cannot tell."}
        scripts["large"][document] = {"S": right if number == 2 else wrong, "final": right}
    for script, content in scripts.items():
        (tmp_path / f"{script}.json").write_text(json.dumps(content))
    args = {role: f"{tmp_path}/{script}.json" for role, script in models.items()}
    args |= {"strategy": f"{EXAMPLES / name}.py:{name}", "engine": "scripted", "store": str(tmp_path)}
    if name == "gate":
        args["threshold"] = "-0.5"
    results = simple_evaluate(
        model="mai_cascade",
        model_args=",".join(f"{key}={value}" for key, value in args.items()),
        tasks=["chartqa"],
        limit=4,
        batch_size=1,
        task_manager=TaskManager(model_name="mai_cascade"),
    )
    assert results["results"]["chartqa"]["relaxed_overall,none"] == score
    (stored,) = mai.load_runs(tmp_path)
    assert Counter(sample.route for sample in stored.samples.values()) == routes
    table = next(table for table in make_report(tmp_path, [], [], None).tables if table.key == "routes")
    assert {row[3]: row[4] for row in table.rows} == routes


@pytest.mark.slow
def test_panel_through_vlmevalkit(tmp_path: Path) -> None:
    """The kit's model class knows no roles but the strategy's."""
    kit = make_kit(tmp_path)
    models = {"first": "small.json", "second": "other.json", "large": "large.json"}
    panel = {"strategy": f"{EXAMPLES / 'panel.py'}:panel", **models}
    kit.script(
        "other.json", {key: {"R": "I cannot tell."} for key in json.loads((tmp_path / "small.json").read_text())}
    )
    config = kit.config("config.json", {"panel": panel}, ["ChartQA_TEST_mini"])
    done = kit.run("--config", config, "--judge", "exact_matching")
    assert done.returncode == 0, done.stderr[-3000:]
    assert kit.status("panel")["ChartQA_TEST_mini"]["metrics"]["Overall"] == 100
    (stored,) = kit.runs()
    assert {sample.route for sample in stored.samples.values()} == {"judged"}


def stored_tokens(run: Any, role: str) -> int:
    return sum(sample.usage(role).output_tokens for sample in run.samples.values())


def test_the_strategy_on_the_page_answers() -> None:
    """The first code block of docs/extending.md, as it is."""
    page = (EXAMPLES.parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], scope)
    scripts = {"small": {"S": "7", "E": "Two.\nAnswer: 9"}, "large": {"S": "8", "final": "9"}}
    made = {role: mai.Agent(role, ScriptedEngine({"*": script}).generate, PROMPTS) for role, script in scripts.items()}
    outcome = asyncio.run(scope["borrow"](QUESTION, **made, prompt="E"))
    assert summary(outcome) == ("borrowed", "9", "small-S large-S small-E large-final")
    assert strategy_spec(scope["borrow"]).required_roles == ["small", "large"]
