"""The engine for OpenAI-compatible servers against one that misbehaves: nothing lost, nothing twice, nothing wrong."""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai._base_client
import pytest
from helpers.servers import MisbehavingServer, free_port
from PIL import Image as PILImage

from mai_plugin.core.records import Completion, Image, Message, Outcome, Request
from mai_plugin.engines import openai as module
from mai_plugin.engines.base import EngineError, load_engine
from mai_plugin.engines.openai import OpenAIEngine
from mai_plugin.run.runner import Failure, Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings

KEY = "sk-very-secret-0123456789"
Result = Completion | BaseException


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off in milliseconds, and no key from outside."""
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.02)
    monkeypatch.setattr(module, "FIRST_BACKOFF_S", 0.005)
    monkeypatch.setattr(module, "LONGEST_BACKOFF_S", 0.02)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as running:
        yield running


def ask(text: str, stage: str = "S", limit: int = 16) -> Request:
    return Request((Message("user", (text,)),), limit, text, stage, logprob=stage in ("", "S", "final"))


def together(engine: OpenAIEngine, *requests: Request) -> list[Result]:
    """Answer requests at once, and close the engine as a session does: from another thread."""

    async def main() -> list[Result]:
        try:
            return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(main())


def one(server: MisbehavingServer, request: Request, **args: Any) -> Result:
    (result,) = together(OpenAIEngine("m", base_url=server.url, **args), request)
    return result


# --- what is asked, and what comes back


def test_the_request_is_greedy_and_streamed_and_keeps_the_order_of_the_parts(server: MisbehavingServer) -> None:
    red, blue = (Image(PILImage.new("RGB", (3, 2), colour)) for colour in ("red", "blue"))
    turns = (
        Message("system", ("Be kind.",)),
        Message("user", ("first", red, "second", blue, "third")),
        Message("assistant", ("reasoning",)),
        Message("user", ("And?",)),
    )
    together(
        OpenAIEngine("m", base_url=server.url, extra_body={"seed": 3}), Request(turns, 7, "q", "final", logprob=True)
    )
    (asked,) = server.asked
    assert {key: asked.body[key] for key in ("model", "max_tokens", "temperature", "stream", "logprobs", "seed")} == {
        "model": "m", "max_tokens": 7, "temperature": 0.0, "stream": True, "logprobs": True, "seed": 3,
    }  # fmt: skip
    system, user, *rest = asked.body["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    assert rest == [{"role": "assistant", "content": "reasoning"}, {"role": "user", "content": "And?"}]
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text", "image_url", "text"]
    colours = []
    for part in user["content"]:
        if part["type"] == "image_url":
            data = part["image_url"]["url"].removeprefix("data:image/png;base64,")
            colours.append(PILImage.open(io.BytesIO(base64.b64decode(data))).getpixel((0, 0)))
    assert colours == [(255, 0, 0), (0, 0, 255)]


def test_text_that_no_server_can_read_is_mended(server: MisbehavingServer) -> None:
    """A lone surrogate, which a model can write, is no UTF-8: JSON cannot carry it on to the other model."""
    turns = (Message("user", ("Q",)), Message("assistant", ("so \ud800",)), Message("user", ("\udfff", "a")))
    (done,) = together(OpenAIEngine("m", base_url=server.url), Request(turns, 4, logprob=True))
    assert isinstance(done, Completion)
    _, reasoning, last = server.asked[0].body["messages"]
    assert reasoning["content"] == "so ?"
    assert [part["text"] for part in last["content"]] == ["?", "a"]


def test_counts_times_and_log_probabilities(server: MisbehavingServer) -> None:
    server.answer = lambda text: "one two three"
    short, cut, long = together(
        OpenAIEngine("m", base_url=server.url), ask("a"), ask("b", limit=2), ask("c", stage="R")
    )
    assert isinstance(short, Completion)
    assert isinstance(cut, Completion)
    assert isinstance(long, Completion)
    assert (short.text, short.prompt_tokens, short.cached_tokens, short.output_tokens) == ("one two three", 10, 4, 4)
    assert (short.finish_reason, short.logprob) == ("stop", -2.0)
    assert (cut.text, cut.output_tokens, cut.finish_reason, cut.logprob) == ("one two", 2, "length", -1.0)
    assert long.logprob is None  # not asked for reasoning
    assert [asked.body.get("logprobs") for asked in server.asked if asked.text == "c"] == [None]
    assert all(0 < done.ttft_s <= done.e2e_s for done in (short, cut, long))


def test_the_first_token_is_told_from_the_last(server: MisbehavingServer) -> None:
    server.answer = lambda text: "one two three four"
    server.always["*"] = "slow"  # a pause behind each of six events
    done = one(server, ask("a"))
    assert isinstance(done, Completion)
    assert done.text == "one two three four"
    assert done.ttft_s < done.e2e_s - 0.1


def test_an_empty_answer_is_an_answer(server: MisbehavingServer) -> None:
    server.always["*"] = "empty"
    done = one(server, ask("a"))
    assert isinstance(done, Completion)
    assert (done.text, done.output_tokens, done.finish_reason) == ("", 1, "stop")


@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_an_image_is_encoded_once_for_all_calls_of_a_question(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    saved = []
    original = PILImage.Image.save

    def save(self: PILImage.Image, *args: Any, **kwargs: Any) -> None:
        saved.append((kwargs["format"], threading.current_thread().name))
        original(self, *args, **kwargs)

    monkeypatch.setattr(PILImage.Image, "save", save)
    server.answer = lambda text: "Answer: 7"
    image = Image(PILImage.new("RGB", (3, 2)))
    args = {"engine": "openai", "model": "m", "base_url": server.url, "image_format": format, "prompt": "R",
            "two_stage": True, "store": "off", "batch_size": "8", "device": "cuda:0"}  # fmt: skip
    with Session(Settings.from_args("single", args)) as session:
        messages = [Message("user", (image, "How many?\nAnswer the question with a single word."))]
        items = [Item("t/0", lambda: session.question("t/0", messages, 16))]
        results, _ = session.run(items, progress=False)
    assert isinstance(results[0], Outcome)
    assert len(server.asked) == 2
    assert [kind for kind, _ in saved] == [format.upper()]
    assert saved[0][1].startswith("mai-images")  # not on the event loop
    urls = {asked.body["messages"][0]["content"][0]["image_url"]["url"] for asked in server.asked}
    assert len(urls) == 1
    assert urls.pop().startswith(f"data:image/{format};base64,")


def test_an_image_that_cannot_be_encoded_fails_alone(server: MisbehavingServer) -> None:
    alpha = Request((Message("user", (Image(PILImage.new("RGBA", (2, 2))), "a")),), 4)
    failed, done = together(OpenAIEngine("m", base_url=server.url, image_format="jpeg"), alpha, ask("b"))
    assert isinstance(failed, EngineError)
    assert "cannot be encoded as jpeg" in str(failed)
    assert isinstance(done, Completion)


# --- faults

PASSING = [
    429, 500, 502, 503, 408, "cut", "cut before", "ends early", "broken json", "odd shape", "number", "bad utf-8",
    "empty choices", "error event", "html",
]  # fmt: skip


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_is_got_over(server: MisbehavingServer, fault: Any) -> None:
    server.answer = lambda text: "one two three"
    server.faults["a"] = [fault, fault]
    done = one(server, ask("a"))
    assert isinstance(done, Completion), done
    # Neither what came before the cut nor its count is in the answer.
    assert (done.text, done.output_tokens, done.logprob) == ("one two three", 4, -2.0)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (429, "answered 429: out of order"),
        (500, "answered 500: out of order"),
        (503, "answered 503: out of order"),
        ("cut", "the answer is broken: peer closed connection"),
        ("cut before", "cannot be reached: Server disconnected"),
        ("ends early", "the answer is broken: it broke off; given up after 3 tries"),
        ("broken json", "the answer is broken: not JSON: "),
        ("odd shape", "the answer is broken: an event of another shape"),
        ("number", "the answer is broken: an event of another shape"),
        ("bad utf-8", "the answer is broken: not JSON: "),
        ("empty choices", "the answer is broken: no choices"),
        ("error event", "the answer is broken: engine hiccup"),
        ("html", "the answer is broken: no events (text/html)"),
    ],
)
def test_a_fault_that_stays_is_named_after_all_tries(server: MisbehavingServer, fault: Any, said: str) -> None:
    server.always["a"] = fault
    failed, done = together(OpenAIEngine("m", base_url=server.url, max_retries=2), ask("a"), ask("b"))
    assert isinstance(failed, EngineError)
    assert str(failed).startswith(server.url)
    assert said in str(failed)
    assert "\n" not in str(failed)
    assert server.count() == {"a": 3, "b": 1}
    assert isinstance(done, Completion)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (400, "answered 400: out of order"),
        (404, "answered 404: out of order"),
        (422, "answered 422: out of order"),
        (401, "refuses the API key (401: out of order): set OPENAI_API_KEY in the environment"),
        (403, "refuses the API key (403: out of order): set OPENAI_API_KEY in the environment"),
        ("finish content_filter", "the answer ended with finish_reason 'content_filter', not stop or length"),
        ("finish tool_calls", "finish_reason 'tool_calls'"),
        ("uncounted", "no token counts (usage) with the answer: it must support stream_options.include_usage"),
        ("zero counts", "no token counts (usage) with the answer"),
        ("reasoning only", "reasoning and no answer: start the server without a reasoning parser"),
        ("final error event", "no such token"),
    ],
)
def test_what_would_be_the_same_again_is_not_asked_again(server: MisbehavingServer, fault: Any, said: str) -> None:
    server.always["a"] = fault
    failed = one(server, ask("a"))
    assert isinstance(failed, EngineError)
    assert str(failed).startswith(server.url)
    assert said in str(failed)
    assert len(server.asked) == 1


def test_counts_that_are_lost_once_are_asked_for_again(server: MisbehavingServer) -> None:
    """From a server that counts, an answer without counts is one that lost its end."""
    engine = OpenAIEngine("m", base_url=server.url)
    server.faults["b"] = ["uncounted"]

    async def main() -> list[Completion]:
        done = [await engine.generate(ask("a")), await engine.generate(ask("b"))]
        await asyncio.to_thread(engine.close)
        return done

    assert [done.output_tokens for done in asyncio.run(main())] == [2, 2]
    assert server.count() == {"a": 1, "b": 2}


def test_the_clients_retries_and_ours_are_one_budget(server: MisbehavingServer) -> None:
    server.faults["a"] = [500, "cut", 429, "ends early", 500, 500]
    failed = one(server, ask("a"), max_retries=4)
    assert isinstance(failed, EngineError)
    assert len(server.asked) == 5
    server.asked.clear()
    server.faults["b"] = [500, "cut", 429, "ends early"]
    assert isinstance(one(server, ask("b"), max_retries=4), Completion)


def test_the_server_says_how_long_to_wait(server: MisbehavingServer) -> None:
    server.faults["a"] = [429]
    server.headers["Retry-After"] = "0.4"
    assert isinstance(one(server, ask("a")), Completion)
    first, second = server.asked
    assert second.at - first.at >= 0.4


@pytest.mark.parametrize("fault", ["hang", "hang midway"])
def test_a_server_that_hangs(server: MisbehavingServer, fault: str) -> None:
    server.faults["a"] = [fault]
    assert isinstance(one(server, ask("a"), timeout=0.3), Completion)
    server.always["b"] = fault
    failed = one(server, ask("b"), timeout=0.2, max_retries=1)
    assert isinstance(failed, EngineError)
    assert "timed out" in str(failed) or "ReadTimeout" in str(failed)  # the client's words, or its HTTP library's
    assert server.count() == {"a": 2, "b": 2}


def test_a_server_that_takes_no_logprobs(server: MisbehavingServer, caplog: pytest.LogCaptureFixture) -> None:
    server.logprobs = False
    engine = OpenAIEngine("m", base_url=server.url)

    async def main() -> list[Completion]:
        done = [await engine.generate(ask(str(number))) for number in range(3)]
        await asyncio.to_thread(engine.close)
        return done

    assert [(done.text, done.logprob) for done in asyncio.run(main())] == [("0!", None), ("1!", None), ("2!", None)]
    assert server.count() == {"0": 2, "1": 1, "2": 1}
    assert caplog.text.count("refuses logprobs") == 1


def test_a_server_that_ignores_logprobs_and_an_engine_that_does_not_ask(server: MisbehavingServer) -> None:
    server.logprobs = None
    done = one(server, ask("a"))
    assert isinstance(done, Completion)
    assert done.logprob is None
    one(server, ask("b"), logprobs=False)
    assert "logprobs" not in server.asked[-1].body


def test_an_answer_of_another_model_is_said_once(server: MisbehavingServer, caplog: pytest.LogCaptureFixture) -> None:
    server.always["*"] = "other model"
    together(OpenAIEngine("m", base_url=server.url), ask("a"), ask("b"))
    assert caplog.text.count("was asked for m and answers as another") == 1


# --- a whole run


def run_questions(args: dict[str, Any], number: int, **overrides: Any) -> list[Outcome | Failure]:
    settings = Settings.from_args("single", {"engine": "openai", "model": "m", "store": "off", **args, **overrides})
    with Session(settings) as session:

        def item(index: int) -> Item:
            name = f"t/{index}"
            return Item(name, lambda: session.question(name, [Message("user", (f"q{index}",))], 16))

        return session.run([item(index) for index in range(number)], progress=False)[0]


def test_a_run_over_a_bad_server_answers_each_question_once_and_rightly(server: MisbehavingServer) -> None:
    server.answer = lambda text: f"answer {text}"
    for index, fault in enumerate(PASSING):
        server.faults[f"q{index}"] = [fault, *([429] if index % 3 == 0 else [])]
    server.always["q16"] = 400
    server.always["q17"] = "slow"
    server.faults["q18"] = ["hang"]
    results = run_questions({"base_url": server.url, "engine_args": {"timeout": 1.0}}, 20)
    assert [result.question_id for result in results] == [f"t/{index}" for index in range(20)]
    assert isinstance(results[16], Failure)
    assert "answered 400: out of order" in str(results[16])
    for index, result in enumerate(results):
        if index != 16:
            assert isinstance(result, Outcome), result
            assert (result.final.text, result.final.completion.output_tokens) == (f"answer q{index}", 3)
    # No question was asked again after it had been answered.
    wanted = {f"q{i}": 1 + len([i]) * (i < len(PASSING)) + (i < len(PASSING) and i % 3 == 0) for i in range(20)}
    assert server.count() == {**wanted, "q18": 2}


def test_a_cascade_over_two_servers(server: MisbehavingServer) -> None:
    server.answer = lambda text: "Hm. So it is.\nAnswer: 7" if "step" in text else "6"
    server.faults["q0"] = ["cut"]
    with MisbehavingServer(models=["org/large"]) as other:
        other.answer = lambda text: "7"
        args = {"engine": "openai", "small": "m", "large": "org/large", "store": "off",
                "small_base_url": server.url, "large_base_url": other.url}  # fmt: skip
        with Session(Settings.from_args("mutual_verification", args)) as session:
            items = [Item("t/0", lambda: session.question("t/0", [Message("user", ("q0",))], 16))]
            (result,), summary = session.run(items, progress=False)
    assert isinstance(result, Outcome)
    assert (result.answer, result.route) == ("7", "agree-reason")
    assert (len(server.asked), len(other.asked)) == (3, 1)
    assert summary.usage["small"].calls == 2


# --- loading


def test_connection_refused_at_start_names_the_url() -> None:
    closed = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(ValueError, match=f"^{closed} cannot be reached: .+; is the server running[?]$"):
        load_engine("openai", "m", {"base_url": closed})


def test_a_model_that_is_not_served(server: MisbehavingServer) -> None:
    server.models = ["org/a", "b"]
    with pytest.raises(ValueError, match=f"{server.url} does not serve 'm'; it serves: org/a, b$"):
        OpenAIEngine("m", base_url=server.url)
    server.models = [f"m{index}" for index in range(40)]
    with pytest.raises(ValueError, match=r"m9 and 30 more$"):
        OpenAIEngine("m", base_url=server.url)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (401, r"refuses the API key \(401: out of order\): set OPENAI_API_KEY in the environment"),
        (500, "answered 500: out of order"),
        ("html", "/models answers with no list of models: this is no OpenAI-compatible server"),
    ],
)
def test_a_server_that_is_no_good_is_named_at_start(server: MisbehavingServer, fault: Any, message: str) -> None:
    server.always["models"] = fault
    with pytest.raises(ValueError, match=message) as error:
        OpenAIEngine("m", base_url=server.url)
    assert str(error.value).startswith(server.url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("models", [None, []])
def test_a_server_without_a_list_of_models_is_taken_at_its_word(server: MisbehavingServer, models: Any) -> None:
    server.models = models
    assert isinstance(one(server, ask("a")), Completion)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"image_format": "gif"}, "image_format 'gif' must be one of png, jpeg"),
        ({"timeout": 0}, "timeout 0 must be a number of seconds"),
        ({"timeout": "long"}, "timeout 'long' must be a number of seconds"),
        ({"max_retries": -1}, "max_retries -1 must be a whole number"),
        ({"extra_body": [1]}, "must be a mapping"),
        ({"base_url": "nowhere"}, "'nowhere' is no URL"),
        ({"dtype": "float32"}, "engine 'openai' takes no argument 'dtype'; it takes: base_url, timeout"),
    ],
)
def test_wrong_arguments(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_engine("openai", "m", {"base_url": "http://127.0.0.1:1/v1", **args})


# --- a router in front of several servers


def picture(seed: int) -> Image:
    rng = np.random.default_rng(seed)
    return Image(PILImage.fromarray(rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)))


def test_all_calls_on_an_image_carry_the_same_session(server: MisbehavingServer) -> None:
    requests = [
        Request((Message("user", (picture(seed), f"{seed} {part}")),), 4, f"q{seed}{part}")
        for seed in range(10)
        for part in ("S", "R", "final")
    ]
    results = together(OpenAIEngine("m", base_url=server.url), *requests)
    assert all(isinstance(result, Completion) for result in results)
    sessions = {(asked.text.split()[0], asked.session) for asked in server.asked}
    assert len({session for _, session in sessions}) == len(sessions) == 10


def test_a_server_that_goes_down_is_named() -> None:
    with MisbehavingServer() as server:
        engine = OpenAIEngine("m", base_url=server.url, max_retries=0)
    (failed,) = together(engine, ask("a"))
    assert isinstance(failed, EngineError)
    assert str(failed).startswith(f"{server.url} cannot be reached: ")


# --- the key


def test_the_key_is_sent_and_written_nowhere(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str], tmp_path: Any,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        caplog.set_level(logging.DEBUG, name)
    server.message = f"Incorrect API key: {KEY}"
    server.always.update({"q0": 401, "q1": 400, "q2": 500, "q3": "error event"})
    results = run_questions(
        {"base_url": server.url}, 6, store=str(tmp_path), engine_args={"max_retries": 1},
    )  # fmt: skip
    assert all(asked.key == KEY for asked in server.asked)
    assert [isinstance(result, Failure) for result in results] == [True] * 4 + [False] * 2
    assert "Incorrect API key: ***" in str(results[0])
    server.always["models"] = 401
    with pytest.raises(ValueError, match=r"Incorrect API key: \*\*\*") as error:
        OpenAIEngine("m", base_url=server.url)
    written = caplog.text + "".join(capfd.readouterr()) + str(error.value) + repr(error.value)
    written += "".join(map(str, results)) + "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    assert len(written) > 1000
    assert KEY not in written


def test_a_traceback_does_not_show_the_key(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import traceback

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.message = f"Incorrect API key: {KEY}"
    server.always.update({"a": 400, "b": "error event"})
    failed = together(OpenAIEngine("m", base_url=server.url, max_retries=0), ask("a"), ask("b"))
    for error in failed:
        assert isinstance(error, EngineError)
        assert KEY not in "".join(traceback.format_exception(error))


def test_without_a_key_the_word_empty_is_sent(server: MisbehavingServer) -> None:
    one(server, ask("a"))
    assert server.asked[0].key == "EMPTY"


def test_a_key_that_cannot_be_sent(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "geheimer schlüssel")
    with pytest.raises(ValueError, match="OPENAI_API_KEY holds blanks or letters that cannot be sent") as error:
        OpenAIEngine("m", base_url=server.url)
    assert "geheim" not in str(error.value)


# --- stopping


def test_a_closed_engine_answers_nothing(server: MisbehavingServer) -> None:
    engine = OpenAIEngine("m", base_url=server.url)
    engine.close()
    engine.close()
    (failed,) = together(engine, ask("a"))
    assert isinstance(failed, EngineError)
    assert "is closed" in str(failed)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fault", ["hang", "hang midway", 429])
def test_closing_leaves_nobody_waiting(server: MisbehavingServer, fault: Any, recwarn: pytest.WarningsRecorder) -> None:
    server.always["*"] = fault
    server.headers["Retry-After"] = "60"

    async def main() -> list[Any]:
        engine = OpenAIEngine("m", base_url=server.url)
        asked = [asyncio.ensure_future(engine.generate(ask(str(index)))) for index in range(5)]
        while len(server.asked) < 5:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.close)
        results = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        assert not engine._running
        return results

    assert all(
        isinstance(result, EngineError) and "closed" in str(result) for result in asyncio.run(main(), debug=True)
    )
    gc.collect()
    assert not list(recwarn)


@pytest.mark.filterwarnings("error")
def test_a_cancelled_request_leaves_nothing_behind(server: MisbehavingServer) -> None:
    server.always["a"] = "hang midway"

    async def main() -> None:
        engine = OpenAIEngine("m", base_url=server.url)
        task = asyncio.ensure_future(engine.generate(ask("a")))
        while not server.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
        assert (await engine.generate(ask("b"))).text == "b!"
        await asyncio.to_thread(engine.close)

    asyncio.run(main())
    gc.collect()


def test_a_session_closes_its_connections(server: MisbehavingServer) -> None:
    before = threading.active_count()
    assert len(run_questions({"base_url": server.url}, 5)) == 5
    # The server has a thread for each connection, which ends with it.
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before
