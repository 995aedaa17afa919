"""The engine for OpenAI-compatible servers against real vLLM servers of the tiny pair, on the CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from helpers.offline import Offline
from helpers.offline import offline as offline
from helpers.servers import vllm_servers

from mai_plugin.core.records import Call, Image, Message, Outcome, Request
from mai_plugin.engines.base import EngineError
from mai_plugin.engines.openai import OpenAIEngine
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import REQUEST, ChartQuestion, chart_questions

CHARTS = 24
MAY_DIFFER = 0.05
"""Share of calls whose text may differ between two engines: float32 sums in another order may turn a close choice."""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with vllm_servers(tmp_path_factory.mktemp("vllm")) as started:
        yield started


def answer(charts: list[ChartQuestion], **args: object) -> list[Outcome]:
    """The charts through the cascade of the tiny pair."""
    pair = {"small": "mai-tiny-small", "large": "mai-tiny-large", "max_reasoning_tokens": 128, "store": "off"}
    with Session(Settings.from_args("mutual_verification", {**pair, **args})) as session:

        def item(chart: ChartQuestion) -> Item:
            messages = [Message("user", (Image(chart.image), f"{chart.question}\n{REQUEST}"))]
            return Item(chart.id, lambda: session.question(chart.id, messages, 16))

        results, _ = session.run([item(chart) for chart in charts], progress=False)
    assert all(isinstance(result, Outcome) for result in results), results
    return results  # type: ignore[return-value]


@pytest.fixture(scope="module")
def outcomes(urls: dict[str, str]) -> list[tuple[ChartQuestion, Outcome, Outcome]]:
    """Each chart with its outcome by the servers and by transformers."""
    charts = chart_questions(CHARTS, 2024)
    served = answer(charts, engine="openai", small_base_url=urls["small"], large_base_url=urls["large"])
    loaded = answer(charts, dtype="float32", batch_size=8, engine_args={"num_threads": 1})
    return list(zip(charts, served, loaded, strict=True))


def calls(outcomes: list[tuple[ChartQuestion, Outcome, Outcome]]) -> list[tuple[Call, Call]]:
    """The calls that both engines made: same question, model and stage."""
    pairs = []
    for _, served, loaded in outcomes:
        known = {(call.role, call.stage): call for call in loaded.calls}
        pairs += [(call, known[call.role, call.stage]) for call in served.calls if (call.role, call.stage) in known]
    return pairs


def test_the_cascade_comes_to_the_same_as_with_transformers(
    outcomes: list[tuple[ChartQuestion, Outcome, Outcome]],
) -> None:
    routes = {served.route for _, served, _ in outcomes}
    assert routes == {"agree-simple", "agree-reason", "transfer"}  # there is something to compare
    same = [served.answer == loaded.answer and served.route == loaded.route for _, served, loaded in outcomes]
    assert same.count(False) <= MAY_DIFFER * CHARTS
    texts = [ours.text == theirs.text for ours, theirs in calls(outcomes)]
    assert len(texts) > 2 * CHARTS
    assert texts.count(False) <= MAY_DIFFER * len(texts)
    right = sum(served.answer.lower() == chart.answer.lower() for chart, served, _ in outcomes)
    assert right >= 0.75 * CHARTS


def test_token_counts_are_those_of_the_models_own_processor(
    outcomes: list[tuple[ChartQuestion, Outcome, Outcome]],
) -> None:
    for ours, theirs in calls(outcomes):
        a, b = ours.completion, theirs.completion
        if ours.stage != "final" or ours.text == theirs.text:  # "final" reads a reasoning, which may differ
            assert a.prompt_tokens == b.prompt_tokens
        if ours.text == theirs.text:
            assert (a.output_tokens, a.finish_reason) == (b.output_tokens, b.finish_reason)
        assert a.prompt_tokens > 24  # the image's tokens are among them
        assert 0 < a.ttft_s <= a.e2e_s


def test_short_answers_have_log_probabilities(outcomes: list[tuple[ChartQuestion, Outcome, Outcome]]) -> None:
    made = [call for _, served, _ in outcomes for call in served.calls]
    for call in made:
        if call.stage in ("S", "final"):
            assert call.completion.logprob is not None
            assert -50 < call.completion.logprob <= 0
        else:
            assert call.completion.logprob is None
    assert len({call.completion.logprob for call in made}) > CHARTS


def test_cached_tokens_are_reported(urls: dict[str, str]) -> None:
    """By a server that runs with --enable-prompt-tokens-details, in whole blocks."""

    async def main() -> list[int]:
        engine = OpenAIEngine("mai-tiny-small", base_url=urls["small"])
        image = Image(chart_questions(1, 99)[0].image)
        request = Request((Message("user", (image, "How many bars are there? " * 12)),), 4, "q", "S")
        cached = [(await engine.generate(request)).cached_tokens for _ in range(2)]
        await asyncio.to_thread(engine.close)
        return cached

    first, second = asyncio.run(main())
    assert first == 0
    assert second > 0
    assert second % 32 == 0


def test_what_the_server_refuses_is_one_line(urls: dict[str, str]) -> None:
    async def main() -> None:
        engine = OpenAIEngine("mai-tiny-small", base_url=urls["small"])
        long = Request((Message("user", ("word " * 9000,)),), 4, "q", "S")
        with pytest.raises(EngineError, match="answered 400: This model's maximum context length is 4096") as error:
            await engine.generate(long)
        assert "\n" not in str(error.value)
        assert (await engine.generate(Request((Message("user", ("Hello",)),), 4))).output_tokens > 0
        await asyncio.to_thread(engine.close)

    asyncio.run(main())
    with pytest.raises(ValueError, match=r"does not serve 'mai-tiny-large'; it serves: mai-tiny-small$"):
        OpenAIEngine("mai-tiny-large", base_url=urls["small"])


def test_the_real_command_line(urls: dict[str, str], offline: Offline) -> None:
    key = "sk-not-to-be-seen-0123456789"
    done = offline.lmms_eval(
        "--model", "mai_cascade", "--model_args",
        f"preset=MAI-tiny,engine=openai,small_base_url={urls['small']},large_base_url={urls['large']},store=served",
        "--tasks", "chartqa,pope", "--limit", str(CHARTS), "--batch_size", "16", "--device", "cpu",
        "--output_path", "served", "--log_samples", OPENAI_API_KEY=key,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    results = offline.results("served")
    assert results["model_name"] == "MAI-tiny"
    samples = offline.samples("served", "chartqa")
    given = {sample["doc_id"]: sample["filtered_resps"] for sample in samples}
    answers = {number: text if isinstance(text, str) else text[0] for number, text in given.items()}
    questions = offline.questions["chartqa"][:CHARTS]
    right = sum(answers[number].lower() == question.answer.lower() for number, question in enumerate(questions))
    assert results["results"]["chartqa"]["relaxed_overall,none"] == pytest.approx(right / CHARTS, abs=0.01)
    assert right >= 0.7 * CHARTS
    assert all(sample["token_counts"][0]["input_tokens"] > 0 for sample in samples)
    assert results["throughput"]["avg_small_calls"] >= 2 * CHARTS
    files = [path for path in (offline.folder / "served").rglob("*") if path.is_file()]
    assert {".json", ".jsonl"} <= {path.suffix for path in files}
    assert key not in done.stdout + done.stderr + "".join(path.read_bytes().decode("latin-1") for path in files)
