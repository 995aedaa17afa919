"""Policies from stored calls: the same answers, routes and tokens as a run, and what must hold between policies."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.replay_stores import SHORT, YES_NO, Script, question, record, scorer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mai_plugin.cli import app
from mai_plugin.core.agent import Agent
from mai_plugin.core.agreement import agree, agree_relaxed
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Image, Message, Outcome, Request
from mai_plugin.core.strategies import single, transfer
from mai_plugin.replay.command import StoreReplay, as_json, replay_store, tables
from mai_plugin.replay.latency import Latency
from mai_plugin.replay.policies import gates, policies
from mai_plugin.replay.replay import Cost, Replay, Replayed, choose, halves
from mai_plugin.replay.stored_calls import Evidence, Models, Stored, find_models, gather, request_digest
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.run.store import describe
from mai_plugin.run.stored import load_runs
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import REQUEST as SHORT_REQUEST
from mai_plugin.tiny.charts import ChartQuestion, chart_questions

MODELS = {"small": "mai/small", "large": "mai/large"}
SINGLE = {"small": {"model": "mai/small"}, "large": {"model": "mai/large"}}
COST = Cost({"small": Latency(0.1, 0.01, "test", 1.0), "large": Latency(0.2, 0.02, "test", 1.0)})
GOLD = "7"
PAIR = ("small", "large")


def script(short: str, reasoned: str = "7", final: str = "7", logprob: float = -1.0) -> dict[str, Any]:
    return {
        "S": {"text": short, "output_tokens": 2, "logprob": logprob, "e2e_s": 0.0},
        "R": {"text": f"One thinks.\nAnswer: {reasoned}", "output_tokens": 30},
        "final": {"text": final, "output_tokens": 2},
    }


# One question per route, and what the models make of it: (small S, small R, large S, large after R).
CASES = {"chartqa/0": ("7", "7", "7", "7"), "chartqa/1": ("5", "7", "7", "7"), "chartqa/2": ("5", "8", "6", "7"), "chartqa/3": ("7", "8", "6", "5")}  # fmt: skip
SMALL = {id: script(s, r, r) for id, (s, r, _, _) in CASES.items()}
LARGE = {id: script(short, "7", final) for id, (_, _, short, final) in CASES.items()}
SCRIPTS: dict[str, Script] = {"small": SMALL, "large": LARGE}
PROMPTS = dict.fromkeys(CASES, SHORT)


def mai_run(
    path: Path, scripts: Mapping[str, Script] = SCRIPTS, prompts: Mapping[str, str] = PROMPTS, **more: Any
) -> list[Any]:
    return record(path, "MAI", "mutual_verification", MODELS, scripts, prompts, **more)


def single_run(path: Path, role: str, style: str, scripts: Mapping[str, Script] = SCRIPTS, prompts: Mapping[str, str] = PROMPTS, **more: Any) -> list[Any]:  # fmt: skip
    return record(
        path, f"{role}-{style}", "single", SINGLE[role], {"model": scripts[role]}, prompts, style=style, **more
    )


def all_runs(path: Path, scripts: Mapping[str, Script] = SCRIPTS, prompts: Mapping[str, str] = PROMPTS) -> None:
    mai_run(path, scripts, prompts)
    record(path, "transfer", "transfer", MODELS, scripts, prompts, style="R")
    for role in ("small", "large"):
        single_run(path, role, "S", scripts, prompts)
        single_run(path, role, "R", scripts, prompts)


def replayed(path: Path, **more: Any) -> StoreReplay:
    gold = dict.fromkeys((id for run in load_runs(path) for id in run.samples), GOLD)
    return replay_store(path, latency="paper", **{"scorer": scorer(gold), **more})


def by_name(found: StoreReplay) -> dict[str, Replayed]:
    (task,) = found.tasks
    return {row.policy: row for row in task.policies}


def test_replayed_mai_is_the_recorded_run(tmp_path: Path) -> None:
    outcomes = {outcome.question_id: outcome for outcome in mai_run(tmp_path / "calls.sqlite")}
    assert {outcome.route for outcome in outcomes.values()} == {"agree-simple", "agree-reason", "transfer"}
    runs = load_runs(tmp_path)
    evidence = gather(tmp_path, runs, find_models(runs, PAIR, {}))
    replay = Replay(evidence, evidence.questions, COST)
    (mai,) = (policy for policy in policies(replay.agents) if policy.name == "MAI")
    again = replay.outcomes(mai)
    assert not evidence.remarks
    assert [*again] == [*CASES]
    for id, outcome in again.items():
        assert (outcome.route, outcome.answer) == (outcomes[id].route, outcomes[id].answer)
        assert [call.completion for call in outcome.calls] == [call.completion for call in outcomes[id].calls]
        assert outcome.answer == runs[0].samples[id].returned


def test_policies_of_a_full_store(tmp_path: Path) -> None:
    all_runs(tmp_path / "calls.sqlite")
    rows = by_name(replayed(tmp_path))
    scores = {name: None if row.missing else row.score for name, row in rows.items()}
    assert scores["small-S"] == 0.5  # questions 0 and 3
    assert scores["small-R"] == 0.5  # 0 and 1
    assert scores["large-S"] == 0.5  # 0 and 1
    assert scores["large-R"] == 1.0
    assert scores["transfer"] == 0.75
    assert scores["MAI"] == 0.75
    assert scores["oracle"] == 1.0
    assert rows["MAI"].routes == {"agree-simple": 1, "agree-reason": 1, "transfer": 2}
    assert rows["MAI"].escalated == 0.75
    assert rows["MAI-S"].routes == {"agree-simple": 1, "transfer": 3}
    assert rows["transfer"].escalated is None or rows["transfer"].escalated == 1.0
    assert {role: usage.output_tokens for role, usage in rows["MAI"].usage.items()} == {
        "small": 4 * 2 + 3 * 30,
        "large": 4 * 2 + 2 * 2,
    }
    # 7 and 7 of the small model cost the least where they are right; else the large model's short or other answers.
    assert rows["oracle"].usage["large"].calls <= 2


def test_a_policy_without_its_calls_is_not_evaluated(tmp_path: Path) -> None:
    mai_run(tmp_path / "calls.sqlite")
    found = replayed(tmp_path)
    rows = by_name(found)
    assert rows["large-R"].missing == {("large", "R"): 4}
    assert rows["transfer"].missing == {("small", "R"): 1, ("large", "transfer-R"): 1}
    assert rows["MAI-S"].missing == {("large", "transfer-R"): 1}
    assert rows["MAI-R-S2"].missing == {("small", "R-S2"): 3}
    shown = "\n".join(as_json(found)["notes"])
    assert (
        "large-R is not shown: 4 calls were never made: lmms-eval --model mai_single --model_args model=mai/large,prompt=R"
        in shown
    )
    names = {row[0] for table in tables(found) for row in table.rows}
    assert "large-R" not in names
    assert "MAI" in names


def test_answers_that_nobody_scored_give_no_score(tmp_path: Path) -> None:
    mai_run(tmp_path / "calls.sqlite")
    rows = by_name(replayed(tmp_path))
    large = rows["large-S"]  # 7, 7, 6, 6; MAI returned 7, 7, 7, 5: the sixes are scored by nobody
    assert (large.n, large.scored, large.score) == (4, 2, None)
    assert large.bounds == (0.5, 1.0)
    single_run(tmp_path / "calls.sqlite", "large", "S")
    assert by_name(replayed(tmp_path))["large-S"].score == 0.5


def test_no_scores_at_all_is_said(tmp_path: Path) -> None:
    mai_run(tmp_path / "calls.sqlite")
    found = replay_store(tmp_path, latency="paper")
    assert by_name(found)["MAI"].score is None
    assert "TOY SCORES: scripted answers, no model ran" in found.remarks
    assert any("no answer is scored" in note for note in as_json(found)["notes"])


def test_r_s2_in_step_two(tmp_path: Path) -> None:
    # Question 1: the reasoning says 8, its summary 7, which is what the large model says.
    small = {**SMALL, "chartqa/1": script("5", "8", "7")}
    scripts = {"small": small, "large": LARGE}
    mai_run(tmp_path / "calls.sqlite", scripts)
    single_run(tmp_path / "calls.sqlite", "small", "R", scripts, two_stage=True)
    rows = by_name(replayed(tmp_path))
    assert rows["MAI"].routes == {"agree-simple": 1, "transfer": 3}
    assert rows["MAI-R-S2"].routes == {"agree-simple": 1, "agree-reason": 1, "transfer": 2}
    assert rows["MAI-R-S2"].usage["small"].calls == 4 + 3 + 3


def test_two_stage_and_transfer_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    mai_run(path)
    single_run(path, "large", "R", {"large": {id: script("0", "1", "9") for id in CASES}}, two_stage=True)
    runs = load_runs(path)
    evidence = gather(path, runs, find_models(runs, PAIR, {}))
    replay = Replay(evidence, evidence.questions, COST)
    named = {policy.name: replay.outcomes(policy) for policy in policies(replay.agents)}
    assert named["transfer"]["chartqa/2"].answer == "7"
    assert named["large-R-S2"]["chartqa/2"].answer == "9"


def test_the_newest_text_of_a_call_counts(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    mai_run(path)
    other = {id: script("5", "4", "4") for id in CASES}
    single_run(path, "small", "R", {"small": other}, reuse=False)
    found = replayed(path)
    assert "3 calls have different texts in different runs: the newest counts" in found.remarks
    # No answer was given after the newest reasoning.
    assert by_name(found)["MAI"].missing == {("large", "transfer-R"): 3}
    assert by_name(replayed(path, runs=["MAI"]))["MAI"].score == 0.75


def test_another_prompt_is_another_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    mai_run(path)
    other = {id: script("5", "4", "4") for id in CASES}
    single_run(path, "small", "R", {"small": other}, dict.fromkeys(CASES, "Once more. " + SHORT))
    assert by_name(replayed(path))["MAI"].score == 0.75


def test_scores_that_differ_are_said(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    mai_run(path)
    mai_run(path)
    seen: list[str] = []

    def moody(run: Any) -> Any:
        seen.append(run.id)
        samples = {id: replace(sample, score=float(len(seen) == 2)) for id, sample in run.samples.items()}
        return replace(run, samples=samples)

    found = replayed(path, scorer=moody)
    assert "4 answers were scored differently in different runs: the newest score counts" in found.remarks
    assert by_name(found)["MAI"].score == 1.0


def test_failed_questions_are_left_out_and_said(tmp_path: Path) -> None:
    large = {**LARGE, "chartqa/0": {"S": {"error": "out of memory"}}}
    mai_run(tmp_path / "calls.sqlite", {"small": SMALL, "large": large})
    found = replayed(tmp_path)
    assert found.tasks[0].n == 3
    assert any("could not answer" in remark for remark in found.remarks)


def test_pairs(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    single_run(path, "small", "S")
    single_run(path, "large", "S")
    with pytest.raises(
        ValueError, match=r"no run has a small model and a large model.*--small and --large.*large, small"
    ):
        replayed(path)
    with pytest.raises(ValueError, match="no model is called 'big'"):
        replayed(path, models={"small": "small", "large": "big"})
    with pytest.raises(ValueError, match="name the model of every role: large is missing"):
        replayed(path, models={"small": "small"})
    # Short answers alone, of single runs, are enough to replay what needs no more.
    assert by_name(replayed(path, models={"small": "small", "large": "mai/large"}))["small-S"].score == 0.5
    mai_run(path)
    assert by_name(replayed(path))["MAI"].score == 0.75
    record(path, "other", "mutual_verification", {"small": "mai/small", "large": "mai/huge"}, SCRIPTS, PROMPTS)
    with pytest.raises(ValueError, match="runs of 2 different sets of models"):
        replayed(path)
    assert by_name(replayed(path, models={"small": "small", "large": "large"}))["MAI"].score == 0.75


def test_kinds_come_from_the_stored_prompts(tmp_path: Path) -> None:
    prompts = {
        "a/0": SHORT,
        "a/1": YES_NO,
        "a/2": "Which?\nA. red\nB. blue\nAnswer with the option's letter from the given choices directly.",
    }
    small = {id: script("B") for id in prompts}
    mai_run(tmp_path / "calls.sqlite", {"small": small, "large": small}, prompts)
    runs = load_runs(tmp_path)
    found = gather(tmp_path, runs, find_models(runs, PAIR, {}))
    kinds = {stored.id: stored.question.kind for stored in found.questions}
    assert kinds == {"a/0": "short", "a/1": "yes_no", "a/2": "choice"}


def test_tasks_are_replayed_apart(tmp_path: Path) -> None:
    ids = ["chartqa/0", "pope/0", "chartqa/1"]
    small = {id: script("7") for id in ids}
    mai_run(tmp_path / "calls.sqlite", {"small": small, "large": small}, dict.fromkeys(ids, SHORT))
    found = replayed(tmp_path)
    assert {task.task: task.n for task in found.tasks} == {"chartqa": 2, "pope": 1}
    assert any(note.startswith("pope: its headline score is F1") for note in as_json(found)["notes"])


def test_measured_latency_comes_from_the_store(tmp_path: Path) -> None:
    timed = {
        id: {stage: {**answer, "e2e_s": 0.001 * answer["output_tokens"]} for stage, answer in script("7").items()}
        for id in CASES
    }
    other = {id: {**stages, "S": {**stages["S"], "text": "8"}} for id, stages in timed.items()}
    longer = {
        id: {**stages, "final": {**stages["final"], "output_tokens": 9, "e2e_s": 0.009}} for id, stages in timed.items()
    }
    path = tmp_path / "calls.sqlite"
    mai_run(
        path,
        {"small": other, "large": {id: {**stages, "S": {**stages["S"], "text": "6"}} for id, stages in longer.items()}},
    )
    found = replay_store(path)
    for role in ("small", "large"):
        assert found.cost.latency[role].per_token_s == pytest.approx(0.001, rel=0.01)
        assert found.cost.latency[role].fixed_s == pytest.approx(0, abs=1e-5)


ANSWERS = st.sampled_from(["7", "7.0", "8", "100", "103", "no idea"])
QUESTIONS = st.lists(
    st.tuples(ANSWERS, ANSWERS, ANSWERS, ANSWERS, ANSWERS, st.integers(1, 50), st.integers(1, 50)),
    min_size=1,
    max_size=8,
)


def evidence(rows: list[Any]) -> Evidence:
    """Questions with every call, and scores for every answer."""
    found = [known(question(f"chartqa/{number}", SHORT), *row) for number, row in enumerate(rows)]
    return Evidence(Models(dict.fromkeys(PAIR, "id"), MODELS), found, load_prompts(), dict.fromkeys(PAIR, 2048))


def known(asked: Question, s: str, r: str, sr: str, ls: str, rt: str, short: int, long: int) -> Stored:
    """A question for which both models made every call: short answers, R, and a short answer after R."""
    texts = {("small", "S"): s, ("small", "R"): r, ("small", "final"): sr,
             ("large", "S"): ls, ("large", "R"): sr, ("large", "final"): rt}  # fmt: skip
    calls: dict[tuple[str, str], Completion] = {}

    def agent(role: str) -> Agent:
        async def generate(request: Request) -> Completion:
            tokens = long if request.stage == "R" else short
            done = Completion(texts[role, request.stage], output_tokens=tokens, logprob=-float(tokens))
            return calls.setdefault((role, request_digest(describe(request))), done)

        return Agent(role, generate, load_prompts())

    async def make_all() -> None:
        await transfer(asked, agent("small"), agent("large"))
        for role in PAIR:
            await single(asked, agent(role))
            await single(asked, agent(role), "R", two_stage=True)

    asyncio.run(make_all())
    scores = {text: 1.0 if text in ("7", "7.0") else 0.4 if text == "8" else 0.0 for text in (s, r, sr, ls, rt)}
    return Stored(asked, calls, scores)


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_what_holds_between_policies(rows: list[Any]) -> None:
    made = evidence(rows)
    replay, at_once = (Replay(made, made.questions, cost) for cost in (COST, replace(COST, parallel=True)))
    every = policies(replay.agents, {"exact": agree, "relaxed": agree_relaxed})
    found = {policy.name: replay.run(policy) for policy in every}
    oracle = replay.oracle()
    swept = [row for gate in gates(replay.agents) for row in replay.sweep(gate, [*replay.questions])]
    for row in [*found.values(), *swept]:
        assert row.score is not None
        assert oracle.score >= row.score - 1e-12
        assert oracle.score > row.score + 1e-12 or oracle.seconds <= row.seconds + 1e-9
    mai, short_only = found["MAI"], found["MAI-S"]
    assert short_only.routes.get("transfer", 0) >= mai.routes.get("transfer", 0)
    assert short_only.escalated == pytest.approx(mai.escalated)
    assert short_only.usage["large"].calls >= mai.usage["large"].calls
    assert found["MAI, relaxed"].escalated <= mai.escalated
    # Never more than both short answers and full transfer, never less than both short answers.
    both_short = found["small-S"].seconds + found["large-S"].seconds
    assert both_short - 1e-9 <= mai.seconds <= both_short + found["transfer"].seconds + 1e-9
    assert mai.seconds <= short_only.seconds + 1e-9
    for policy in policies(at_once.agents):
        quicker, slower = at_once.run(policy), found[policy.name]
        assert quicker.seconds <= slower.seconds + 1e-9
        assert (quicker.score, quicker.usage) == (slower.score, slower.usage)


@settings(max_examples=40, deadline=None)
@given(QUESTIONS)
def test_a_gate_runs_from_one_policy_to_the_other(rows: list[Any]) -> None:
    made = evidence(rows)
    replay = Replay(made, made.questions, COST)
    named = {policy.name: replay.run(policy) for policy in policies(replay.agents)}
    ids = [*replay.questions]
    on_large, on_small = (replay.sweep(gate, ids) for gate in gates(replay.agents))
    for swept in (on_large, on_small):
        assert [row.threshold for row in swept][:: len(swept) - 1] == [-math.inf, math.inf]
        accepted = [row.routes.get("accept", 0) for row in swept]
        assert accepted == sorted(accepted, reverse=True)
    assert on_large[0].score == named["large-S"].score
    assert on_large[-1].score == named["transfer"].score
    assert on_large[-1].seconds == pytest.approx(named["large-S"].seconds + named["transfer"].seconds)
    assert on_small[0].seconds == pytest.approx(named["small-S"].seconds)
    assert on_small[-1].score == named["large-S"].score


def gated(scores_there: float) -> tuple[float | None, list[str], list[str]]:
    """The chosen threshold of the gate on large, with every score of the reporting half set to one value."""
    rows = [("7", "7", "7", "8" if n % 3 else "7", "7", 1 + n % 5, 20) for n in range(40)]
    made = evidence(rows)
    questions = list(made.questions)
    choosing, reporting = halves([question.id for question in questions], seed=3)
    questions = [
        replace(question, scores=dict.fromkeys(question.scores, scores_there)) if question.id in reporting else question
        for question in questions
    ]
    replay = Replay(made, questions, COST)
    chosen = choose(replay.sweep(gates(replay.agents)[0], choosing), None)
    assert chosen is not None
    return chosen.threshold, choosing, reporting


def test_a_threshold_is_chosen_without_a_look_at_the_other_half() -> None:
    threshold, choosing, reporting = gated(1.0)
    assert gated(0.0) == (threshold, choosing, reporting)
    assert not set(choosing) & set(reporting)
    assert len(choosing) + len(reporting) == 40


def result(score: float, seconds: float, threshold: float) -> Replayed:
    return Replayed("gate", "", 10, {}, {}, seconds, 10, 10 * score, threshold=threshold)


def test_choose() -> None:
    swept = [result(0.5, 1, -9), result(0.8, 3, -5), result(0.8, 2, -4), result(0.9, 9, 0)]
    assert choose(swept, 0.7).threshold == -4  # type: ignore[union-attr]  # the cheapest that is good enough
    assert choose(swept, 0.95).threshold == 0  # type: ignore[union-attr]  # none is: the best
    assert choose(swept, None).threshold == 0  # type: ignore[union-attr]
    assert choose([replace(swept[0], scored=9)], None) is None


def test_gates_are_reported_on_the_other_half(tmp_path: Path) -> None:
    ids = [f"chartqa/{n}" for n in range(20)]
    small = {id: script("7" if n % 2 else "5", "7", "7", -0.1 if n % 2 else -3.0) for n, id in enumerate(ids)}
    large = {id: script("7" if n % 4 else "6", "7", "7", -0.1 if n % 4 else -2.0) for n, id in enumerate(ids)}
    all_runs(tmp_path / "calls.sqlite", {"small": small, "large": large}, dict.fromkeys(ids, SHORT))
    found = replayed(tmp_path, seed=1)
    (task,) = found.tasks
    rows = {row.policy: row for row in task.reported}
    assert task.n_reported == rows["gate on large"].n == rows["MAI"].n == 10
    assert rows["gate on large"].score == 1.0  # confident answers are right ones
    assert rows["gate on large"].seconds < rows["MAI"].seconds
    content = json.loads(json.dumps(as_json(found), allow_nan=False))
    curve = content["tasks"][0]["curves"]["gate on large"]
    assert curve[0]["threshold"] == "-inf"
    assert {"score", "output_tokens", "modelled_s", "calls"} <= curve[0].keys()
    assert any("the cheapest that score as MAI does" in note for note in content["notes"])


def test_the_reporting_half_has_no_say(tmp_path: Path) -> None:
    ids = [f"chartqa/{n}" for n in range(20)]
    small = {id: script("5", "7", "7") for id in ids}
    large = {id: script("7" if n % 3 else "6", "7", "7", -1.0 - n % 7) for n, id in enumerate(ids)}
    all_runs(tmp_path / "calls.sqlite", {"small": small, "large": large}, dict.fromkeys(ids, SHORT))
    choosing, reporting = halves(ids, seed=1)

    def threshold(wrong: list[str]) -> float | None:
        found = replayed(tmp_path, seed=1, scorer=scorer({id: "6" if id in wrong else "7" for id in ids}))
        return next(row.threshold for row in found.tasks[0].reported if row.policy == "gate on large")

    assert threshold([]) == threshold(reporting)
    assert threshold([]) != threshold(choosing)


def test_an_older_run_without_its_results_is_said(tmp_path: Path) -> None:
    """lmms-eval's results of the newest run stand where those of an older one of the same name stood."""
    path, results = tmp_path / "calls.sqlite", tmp_path / "results"
    results.mkdir()
    mai_run(path)
    mai_run(
        path,
        {"small": SMALL, "large": {**LARGE, "chartqa/3": script("6", "7", "4")}},
        {**PROMPTS, "chartqa/3": "Once more. " + SHORT},
    )
    newest = load_runs(path)[-1]
    texts = {sample.doc_id: sample.returned for sample in newest.samples.values()}
    samples = [
        {"doc_id": int(id), "resps": [[text]], "relaxed_overall": float(text == GOLD), "target": GOLD}
        for id, text in texts.items()
    ]
    (results / "20990101_results.json").write_text(
        json.dumps({"model_name": "MAI", "results": {"chartqa": {"relaxed_overall,none": 0.75}}})
    )
    (results / "20990101_samples_chartqa.jsonl").write_text("\n".join(map(json.dumps, samples)))
    found = replay_store(path, latency="paper", results=[results])
    assert by_name(found)["MAI"].score == 0.75
    assert any("is not scored" in remark and "the run returned" in remark for remark in found.remarks)
    samples[0]["resps"] = [["9"]]
    (results / "20990101_samples_chartqa.jsonl").write_text("\n".join(map(json.dumps, samples)))
    with pytest.raises(ValueError, match="is not what run"):
        replay_store(path, latency="paper", results=[results])


def test_gates_need_log_probabilities(tmp_path: Path) -> None:
    silent = {id: {"*": "7"} for id in CASES}
    mai_run(tmp_path / "calls.sqlite", {"small": silent, "large": silent})
    found = replayed(tmp_path)
    assert not found.tasks[0].curves
    assert any("gave no log-probability for" in note for note in as_json(found)["notes"])


def test_command(tmp_path: Path) -> None:
    all_runs(tmp_path / "calls.sqlite")
    answer = CliRunner().invoke(
        app, ["replay", str(tmp_path), "--latency", "paper", "--json", str(tmp_path / "out" / "r.json")]
    )
    assert answer.exit_code == 0, answer.output
    assert "agree-simple 1" in answer.output
    assert json.loads((tmp_path / "out" / "r.json").read_text())["tasks"][0]["n"] == 4


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        (["nowhere"], "no call store at nowhere"),
        (["{}", "--run", "nobody"], "no run is called 'nobody'"),
        (["{}", "--latency", "fast"], "--latency fast: expected measured or paper"),
        (["{}", "--overhead", "90"], "--overhead goes with --latency paper"),
        (["{}", "--agreement", "loose"], "--agreement loose; expected one of"),
        (["{}"], "the measured times do not grow"),
        (["{}", "--latency", "paper", "--results", "nowhere"], "no such folder"),
        (["{}", "--latency", "paper", "--json", "{}"], "--json"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, options: list[str], trouble: str) -> None:
    mai_run(tmp_path / "calls.sqlite")
    answer = CliRunner().invoke(app, ["replay", *(option.format(tmp_path) for option in options)])
    assert answer.exit_code == 1
    last = answer.stderr.strip().splitlines()[-1]
    assert trouble in last
    assert last.startswith("mai: ")
    assert "Traceback" not in answer.output


def test_a_pair_of_one_model(tmp_path: Path) -> None:
    """The same checkpoint in both roles is a pair too."""
    same = {"small": "one", "large": "one"}
    record(tmp_path / "calls.sqlite", "MAI", "mutual_verification", same, {"small": SMALL, "large": SMALL}, PROMPTS)
    assert by_name(replayed(tmp_path))["MAI"].routes == {"agree-simple": 4}


def test_outcome_of_one_call_is_not_counted_as_two_at_once() -> None:
    short = Call("small", "S", Completion("7", output_tokens=10), "7")
    one_after_the_other = Outcome("q", "ask-large", replace(short, role="large"), (short, replace(short, role="large")))
    assert replace(COST, parallel=True).seconds(one_after_the_other) == COST.seconds(one_after_the_other)


def test_replayed_mai_is_a_real_run(tmp_path: Path) -> None:
    """The tiny pair through a session: its store gives the same routes, answers and tokens without the models."""
    settings = Settings.from_args("mutual_verification", {"preset": "MAI-tiny", "store": str(tmp_path)})
    charts = chart_questions(12, 5)
    with Session(settings) as session:

        def item(chart: ChartQuestion) -> Item:
            messages = [Message("user", (Image(chart.image), f"{chart.question}\n{SHORT_REQUEST}"))]
            return Item(f"chartqa/{chart.id}", lambda: session.question(f"chartqa/{chart.id}", messages, 16))

        results, summary = session.run([item(chart) for chart in charts], progress=False)
    found = replay_store(tmp_path, latency="paper")
    mai = by_name(found)["MAI"]
    assert dict(mai.routes) == summary.routes
    assert mai.usage == summary.usage
    assert len(summary.routes) > 1
    evidence = gather(tmp_path, runs := load_runs(tmp_path), find_models(runs, PAIR, {}))
    replay = Replay(evidence, evidence.questions, COST)
    again = replay.outcomes(next(policy for policy in policies(replay.agents) if policy.name == "MAI"))
    assert {id: outcome.answer for id, outcome in again.items()} == {
        result.question_id: result.answer for result in results if isinstance(result, Outcome)
    }


def test_of_two_short_answers_at_once_the_slower_counts() -> None:
    s = Call("small", "S", Completion("7", output_tokens=10), "7")  # 0.2 s
    r = Call("small", "R", Completion("7", output_tokens=40), "7")  # 0.5 s
    l = Call("large", "S", Completion("7", output_tokens=10), "7")  # 0.4 s  # noqa: E741
    outcome = Outcome("q", "agree-reason", l, (s, l, r))
    assert COST.seconds(outcome) == pytest.approx(1.1)
    assert replace(COST, parallel=True).seconds(outcome) == pytest.approx(0.9)
