"""The lmms-eval adapter in this process: prompts, single and transfer models, and what it refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from helpers.offline import Offline
from lmms_eval.api.instance import Instance
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.models import get_model
from lmms_eval.protocol import ChatMessages
from lmms_eval.tasks import TaskManager, get_task_dict
from lmms_eval.utils import simple_parse_args_string
from PIL import Image as PILImage

from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.records import Image
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.harness.lmms_eval.model import MaiCascade, MaiSingle, settings_for, to_messages
from mai_plugin.tiny.datasets import BENCHMARKS

SCRIPTED = "engine=scripted,small=small.json,large=large.json"
PICTURE = PILImage.new("RGB", (8, 8))


def ask(model: Any, *questions: str, gen_kwargs: dict[str, Any] | None = None) -> list[Any]:
    """Put questions to a model as the harness does, in a task of its own."""
    model.task_dict = {"t": {"test": list(questions)}}

    def doc_to_messages(doc: str) -> list[dict[str, Any]]:
        content = [{"type": "image", "url": PICTURE}, {"type": "text", "text": doc}]
        return [{"role": "user", "content": content}]

    requests = [
        Instance(
            request_type="generate_until",
            arguments=("", doc_to_messages, gen_kwargs or {"max_new_tokens": 16}, index, "t", "test"),
            idx=0,
            metadata={"task": "t", "doc_id": index, "repeats": 1},
        )
        for index in range(len(questions))
    ]
    return model.generate_until(requests)  # type: ignore[no-any-return]


@pytest.fixture
def scripted(tmp_path: Any) -> Callable[..., Any]:
    """A model of ours on the scripted engine."""

    def build(cls: type, script: dict[str, Any], **args: Any) -> Any:
        (tmp_path / "script.json").write_text(json.dumps(script))
        roles = ("model",) if cls is MaiSingle else ("small", "large")
        args = {"store": str(tmp_path / "store"), **{role: str(tmp_path / "script.json") for role in roles}, **args}
        return cls(engine="scripted", batch_size="1", **args)

    return build


@pytest.mark.parametrize("task", BENCHMARKS)
def test_the_simple_prompt_is_the_harness_s_own(here: Offline, tasks: TaskManager, task: str) -> None:
    """Byte for byte, image for image, for the real prompts of all six tasks; stem and kind are told from them."""
    model = MaiSingle(engine="scripted", model="large.json", store="off")
    built = get_task_dict([task], tasks, "chat")[task]
    model.task_dict[task] = built.dataset
    split = BENCHMARKS[task].split
    for number, chart in enumerate(here.questions[task][:6]):
        request = Instance(
            request_type="generate_until",
            arguments=("", built.doc_to_messages, {"max_new_tokens": 16}, number, task, split),
            idx=0,
            metadata={"task": task, "doc_id": number, "repeats": 1},
        )
        model.generate_until([request])
        engine = model.session.engines["model"]
        assert isinstance(engine, ScriptedEngine)
        (message,) = engine.requests[-1].messages
        (theirs,) = ChatMessages(messages=built.doc_to_messages(built.dataset[split][number])).to_hf_messages()
        for part, content in zip(message.content, theirs["content"], strict=True):
            if isinstance(part, Image):
                assert part.data.tobytes() == content["image"].tobytes()
            else:
                assert part == content["text"]
        question = model.session.question("x/0", [message], 16)
        assert (question.kind, question.known) == (chart.kind, True)
        assert question.stem[-1].text.rstrip() == question.stem[-1].text
        assert "nswer" not in question.stem[-1].text
        assert question.stem[-1].images == message.images
    model.clean()


@pytest.mark.parametrize(
    ("model", "args", "name", "score"),
    [
        ("mai_transfer", SCRIPTED, "small+large-transfer-R", 1.0),
        ("mai_cascade", f"{SCRIPTED},strategy=sparse_transfer,layer=16", "small+large-sparse-transfer-R-L16", 1.0),
        ("mai_cascade", f"{SCRIPTED},transfer=sparse,keep=0.9", "small+large-MAI-sparse-keep0.9", 0.75),
        (
            "mai_cascade",
            "engine=scripted,small=small.json,large=both.json,strategy=speculative",
            "small+both-speculative-R",
            1.0,
        ),
        ("mai_single", "engine=scripted,model=large.json", "large-S", 0.5),
        ("mai_single", "engine=scripted,model=small.json,prompt=R", "small-R", 1.0),
        ("mai_single", "engine=scripted,model=both.json,prompt=R,two_stage=true", "both-R-S2", 1.0),
    ],
)
def test_single_and_transfer_models(
    here: Offline, tasks: TaskManager, model: str, args: str, name: str, score: float
) -> None:
    # A script with every stage: documents whose transfer was not scripted are answered rightly.
    scripts = {side: json.loads((here.folder / f"{side}.json").read_text()) for side in ("small", "large")}
    for number, question in enumerate(here.questions["chartqa"]):
        key = f"chartqa/{number}"
        scripts["small"][key].setdefault("R", f"So.\nAnswer: {question.answer}")
        scripts["large"][key].setdefault("final", question.answer)
        scripts["large"][key]["select"] = f"So. {question.answer}"
    scripts["both"] = {key: {**scripts["large"][key], **scripts["small"][key]} for key in scripts["small"]}
    for side, script in scripts.items():
        (here.folder / f"{side}.full.json").write_text(json.dumps(script))
    assert settings_for(model, simple_parse_args_string(args)).name == name
    results = simple_evaluate(
        model=model,
        model_args=args.replace(".json", ".full.json"),
        tasks=["chartqa"],
        limit=4,
        batch_size=1,
        task_manager=tasks,
    )
    assert results["results"]["chartqa"]["relaxed_overall,none"] == score


def test_the_packages_tasks_are_found_without_a_flag(tasks: TaskManager) -> None:
    assert "mai_paper" in tasks.all_groups
    assert set(tasks._get_config("mai_paper")["task"]) == set(BENCHMARKS)


@pytest.mark.parametrize("name", ["mai_cascade", "mai_single", "mai_transfer"])
def test_models_are_found_by_entry_point(name: str) -> None:
    assert get_model(name).model_id == name
    assert not get_model(name).is_simple


def test_generation_only(scripted: Callable[..., Any]) -> None:
    model = scripted(MaiCascade, {})
    request = Instance(
        request_type="loglikelihood",
        arguments=("", "x"),
        idx=0,
        metadata={"task": "lambada", "doc_id": 0, "repeats": 1},
    )
    with pytest.raises(SystemExit, match="task 'lambada' asks for log-likelihoods; mai models are generation only"):
        model.loglikelihood([request])
    with pytest.raises(SystemExit, match="task 'lambada' asks for several rounds; mai models are generation only"):
        model.generate_until_multi_round([request])


def test_an_empty_question_is_named_and_the_others_finish(
    scripted: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = scripted(MaiCascade, {"*": {"S": "7"}})
    with pytest.raises(
        SystemExit, match="1 of 3 questions could not be answered, so there is no score; first: question t/1"
    ) as stop:
        ask(model, "How many?", "", "How many?")
    assert "empty, it has no text" in str(stop.value)


def test_an_empty_answer_is_counted_and_handed_on(scripted: Callable[..., Any], said: list[str]) -> None:
    model = scripted(MaiCascade, {"t/0": {"S": "", "R": "", "final": ""}, "*": {"S": "7"}})
    results = ask(model, "How many?", "How many?")
    assert [result.text for result in results] == ["", "7"]
    assert "1 without an answer" in "".join(said)


def test_reasoning_is_not_cut_by_the_tasks_limit_and_short_answers_are(
    scripted: Callable[..., Any], said: list[str]
) -> None:
    cut = {"text": "and so on", "finish_reason": "length"}
    model = scripted(MaiCascade, {"t/0": {"S": "", "R": cut, "final": "7"}}, max_reasoning_tokens=500)
    ask(model, "How many?", gen_kwargs={"max_new_tokens": 16})
    limits = {
        request.stage: request.max_tokens for engine in model.session.engines.values() for request in engine.requests
    }
    assert limits == {"S": 16, "R": 500, "final": 16}
    assert "1 reasoning texts cut by the limit" in "".join(said)


def test_raw_hands_back_the_text_as_written(scripted: Callable[..., Any]) -> None:
    script = {"*": {"S": "The answer is **7**."}}
    assert ask(scripted(MaiSingle, script), "How many?")[0].text == "7"
    assert ask(scripted(MaiSingle, script, raw=True), "How many?")[0].text == "The answer is **7**."


def test_an_unknown_prompt_is_said_once(scripted: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    model = scripted(MaiSingle, {"*": {"S": "7"}})
    with caplog.at_level(logging.WARNING, "mai_plugin"):
        ask(model, "How many? Reply with one number only.", "How much? Reply with one number only.")
    records = [record for record in caplog.records if "'answer briefly'" in record.message]
    assert len(records) == 1
    assert "t: no known 'answer briefly' sentence at the end of the prompt; guessed 'Reply with" in records[0].message


def test_a_task_that_asks_for_reasoning_is_said_to_make_no_cascade(
    scripted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    script = {"*": {"S": "7"}}
    wording = load_prompts().reason["short"]
    for cls, times in ((MaiCascade, 1), (MaiSingle, 0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "mai_plugin"):
            ask(scripted(cls, script), f"How many?\n{wording}", f"How much?\n{wording}")
        assert caplog.text.count("the task itself asks for reasoning") == times


def test_a_model_can_be_used_again_after_clean(scripted: Callable[..., Any]) -> None:
    model = scripted(MaiSingle, {"*": {"S": "7"}})
    assert ask(model, "How many?")[0].text == "7"
    model.clean()
    assert ask(model, "How many?")[0].text == "7"


def test_the_place_of_the_calls_is_said_and_a_second_run_makes_none(
    scripted: Callable[..., Any], said: list[str], tmp_path: Any
) -> None:
    for _ in range(2):
        model = scripted(MaiSingle, {"*": {"S": "7"}})
        assert [result.text for result in ask(model, "How many?", "How much?")] == ["7", "7"]
        model.clean()
    scripted(MaiSingle, {"*": {"S": "7"}}, reuse=False).clean()
    ours = [line for line in said if line.startswith("mai: ")]
    place = f"mai: calls are stored in {tmp_path / 'store' / 'calls.sqlite'}; "
    assert [line.startswith(place) for line in ours] == [True, False, True, False, True]
    assert ours[0].rstrip() == f"{place}stored calls are reused"
    assert "came from the store" not in ours[1]
    assert "2 calls came from the store, so this is not a timing" in ours[3]
    assert ours[4].rstrip() == f"{place}each is made anew (reuse=false)"


def test_an_engine_that_cannot_be_loaded_ends_the_run_at_the_first_missing_call(
    scripted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted(MaiSingle, {"*": {"S": "7"}})
    ask(model, "How many?")
    model.clean()

    def load(*_: Any) -> None:
        raise ValueError("checkpoint M cannot be loaded: no such folder")

    monkeypatch.setattr("mai_plugin.run.session.load_engines", load)
    model = scripted(MaiSingle, {"*": {"S": "7"}})
    assert [result.text for result in ask(model, "How many?")] == ["7"]  # stored
    with pytest.raises(SystemExit) as stop:
        ask(model, "How many?", "How much?")
    assert stop.value.code == "mai: checkpoint M cannot be loaded: no such folder"  # printed; the exit code is then 1


def test_a_store_that_cannot_be_written_is_named(scripted: Callable[..., Any], tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"^mai: call store .*File exists.*; give another file \(store=PATH\)"):
        scripted(MaiSingle, {}, store=str(tmp_path / "file"))


def test_sampling_is_refused_with_a_word(scripted: Callable[..., Any], said: list[str]) -> None:
    model = scripted(MaiSingle, {"*": {"S": "7"}})
    ask(model, "How many?", "How much?", gen_kwargs={"max_new_tokens": 4, "do_sample": True})
    assert len([line for line in said if "decode greedily" in line]) == 1


@pytest.mark.parametrize("kind", ["video", "audio"])
def test_video_and_audio_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=f"holds {kind}; mai models read text and images"):
        to_messages([{"role": "user", "content": [{"type": kind, "url": "x"}]}])


def test_images_may_be_paths(tmp_path: Any) -> None:
    PICTURE.save(tmp_path / "a.png")
    message = {"role": "user", "content": [{"type": "image", "url": str(tmp_path / "a.png")}]}
    assert to_messages([message])[0].images[0].data.size == (8, 8)
    message["content"][0]["url"] = str(tmp_path / "none.png")  # type: ignore[index]
    with pytest.raises(ValueError, match=r"none\.png' does not decode"):
        to_messages([message])
