"""The real VLMEvalKit, end to end: scores, what is kept, concurrency, and its traps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.kit import Kit, make_kit, number

from mai_plugin.core.records import Completion, Image, Request
from mai_plugin.engines.base import EngineError
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.harness import vlmevalkit
from mai_plugin.harness.vlmevalkit.model import FAIL_MSG, MaiVLM, close_all
from mai_plugin.resources import task_configs
from mai_plugin.settings import preset_names
from mai_plugin.tiny.kit_datasets import KIT_DATASETS

DATASETS = [f"{name}_mini" for name in KIT_DATASETS]
PAIR = {"small": "small.json", "large": "large.json"}
MODELS: dict[str, dict[str, Any]] = {
    "S": {"model": "large.json"},
    "R-S2": {"model": "large.json", "prompt": "R", "two_stage": True},
    "transfer": {**PAIR, "strategy": "transfer"},
    "MAI": PAIR,
}
# By the number of the question modulo 4, see `make_kit`.
RIGHT = {"S": (1, 1, 0, 0), "R-S2": (1, 1, 1, 1), "transfer": (1, 1, 1, 1), "MAI": (1, 1, 1, 0)}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return make_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture(scope="session")
def evaluated(made: Kit) -> Kit:
    """Four models on all data sets, by the command line."""
    done = made.run("--config", made.config("all.json", MODELS, DATASETS), "--judge", "exact_matching")
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """A folder of its own, to run the kit in this process."""
    kit = make_kit(tmp_path)
    for name, value in kit.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PRED_FORMAT", "tsv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["test"])
    yield kit
    close_all()
    torch.set_grad_enabled(True)  # the kit's import switches it off for the whole process


def evaluate(kit: Kit, models: dict[str, dict[str, Any]], *datasets: str, args: tuple[str, ...] = ()) -> int:
    return vlmevalkit.main(
        ["--config", kit.config("config.json", models, datasets), "--judge", "exact_matching", *args]
    )


def expected(kit: Kit, model: str, dataset: str) -> float:
    """The score that the scripts come to, in points, by what the benchmark's metric is."""
    right = {index: bool(RIGHT[model][number(index) % 4]) for index in kit.answers[dataset]}
    if dataset == "POPE_mini":
        gold = {index: answer == "Yes" for index, answer in kit.answers[dataset].items()}
        # "nothing of all that", the large model's S, is neither yes nor no.
        said_yes = {
            index: gold[index] == right[index] and not (model == "S" and number(index) % 4 == 2) for index in gold
        }
        found = sum(gold[index] and said_yes[index] for index in gold)
        wrong = sum(gold[index] != said_yes[index] for index in gold)
        return 100 * 2 * found / (2 * found + wrong)
    if dataset == "MMMU_DEV_VAL_mini":  # the headline is over the validation rows
        right = {index: mark for index, mark in right.items() if int(index) % 4}
    return 100 * sum(right.values()) / len(right)


def headline(kit: Kit, model: str, dataset: str, work_dir: str = "outputs") -> float:
    """What the kit gives, in points: it has choices from 0 to 1."""
    status = kit.status(model, work_dir)[dataset]
    assert "error_message" not in status
    metrics = status["metrics"]
    value = float(metrics.get("split=none|Overall") or metrics[status["primary_metric"]])
    return (
        value
        if KIT_DATASETS[dataset.removesuffix("_mini")].cls in ("ImageYORNDataset", "ImageVQADataset")
        else 100 * value
    )


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_the_kit_s_scorers_give_the_known_score(evaluated: Kit, model: str, dataset: str) -> None:
    assert headline(evaluated, model, dataset) == pytest.approx(expected(evaluated, model, dataset))


def test_the_store_holds_reasoning_tokens_and_times_by_index(evaluated: Kit) -> None:
    runs = [run for run in evaluated.runs() if run.name == "small+large-MAI"]
    assert [run.tasks for run in runs] == [(dataset,) for dataset in DATASETS]
    for run, dataset in zip(runs, DATASETS, strict=True):
        assert run.finished
        assert {sample.doc_id for sample in run.samples.values()} == evaluated.answers[dataset].keys()
        for sample in run.samples.values():
            stages = [call.stage for call in sample.calls]
            assert stages == ["S", "S", "R", "final"][: (2, 3, 4, 2)[number(sample.doc_id) % 4]]
            assert all(call.completion.output_tokens for call in sample.calls)
    handed_over = evaluated.predictions("MAI", "ChartQA_TEST_mini")
    assert "Looking at the bars" in runs[4].samples["ChartQA_TEST_mini/1"].calls[2].text
    assert handed_over == {sample.doc_id: sample.returned for sample in runs[4].samples.values()}
    assert max(map(len, handed_over.values())) <= 4


def test_mai_report_and_compare_read_the_scores(evaluated: Kit) -> None:
    def mai(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mai_plugin.cli", *args, "--json", "out.json"]
        return subprocess.run(command, cwd=evaluated.folder, capture_output=True, text=True, check=False)

    done = mai("report")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = {}
    for run in json.loads((evaluated.folder / "out.json").read_text())["runs"]:
        found.setdefault(run["environment"]["model"], {}).update(run["tasks"])
    for model in MODELS:
        for dataset in DATASETS:
            assert found[model][dataset]["score"] == pytest.approx(expected(evaluated, model, dataset))
            assert found[model][dataset]["metric"] == "Overall"
    done = mai("compare")
    assert done.returncode == 0, done.stderr
    assert "not one of the benchmarks for which published figures are known" in done.stdout  # a _mini is no benchmark


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_simple_prompt_is_the_kit_s_own(kit: Kit, dataset: str) -> None:
    """Byte for byte, image for image; the row's index rides along, and names the question."""
    vlmevalkit.register()
    import vlmeval.dataset
    from PIL import Image as PILImage

    model = MaiVLM(engine="scripted", model=kit.script("any.json", {"*": {"S": "7"}}), store="off")
    data = getattr(vlmeval.dataset, KIT_DATASETS[dataset[:-5]].cls)(dataset=dataset)
    model.set_dump_image(data.dump_image)
    assert model.use_custom_prompt(dataset)
    for row in range(3):
        line = data.data.iloc[row]
        theirs = data.build_prompt(line)
        ours = model.build_prompt(line, dataset=dataset)
        assert [{key: part[key] for key in ("type", "value")} for part in ours] == theirs
        assert model.generate(message=ours, dataset=dataset) == "7"
        assert model.session
        engine = model.session.engines["model"]
        assert isinstance(engine, ScriptedEngine)
        request = engine.requests[-1]
        (message,) = request.messages
        assert request.question_id == f"{dataset}/{line['index']}"
        shown = [part for part in theirs if part["value"] != ""]
        for part, wanted in zip(message.content, shown, strict=True):
            if isinstance(part, Image):
                assert part.data.tobytes() == PILImage.open(wanted["value"]).convert("RGB").tobytes()
            else:
                assert part == wanted["value"]
    model.close()


def test_names_and_class_are_registered(kit: Kit) -> None:
    models = vlmevalkit.register(engine="scripted")
    import vlmeval.api
    import vlmeval.inference
    from vlmeval.config import supported_VLM

    assert (
        {*preset_names(), "MAI-tiny-transfer-R", "MAI-Qwen3VL-2B-8B-transfer-E"}
        <= models.keys()
        <= supported_VLM.keys()
    )
    assert "GPT4o" in supported_VLM
    assert vlmeval.api.MaiVLM is MaiVLM
    assert vlmeval.inference.FAIL_MSG == FAIL_MSG
    names = {"MAI-tiny": "MAI-tiny", "MAI-tiny-transfer-R": "MAI-tiny-transfer-R", "tiny-large-R-S2": "tiny-large-R-S2"}
    assert {name: supported_VLM[name]().settings.name for name in names} == names
    vlmevalkit.register()  # twice does no harm
    assert supported_VLM["MAI-tiny"]().settings.engine == "transformers"


class Counting:
    """Patches the scripted engine: counts calls in flight, and fails some of them once."""

    def __init__(self, patch: pytest.MonkeyPatch, failing: tuple[str, ...] = ()) -> None:
        self.now = self.most = self.calls = 0
        self.failing = set(failing)
        original = ScriptedEngine.generate

        async def generate(engine: ScriptedEngine, request: Request) -> Completion:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(0.02)
                if request.question_id in self.failing:
                    self.failing.remove(request.question_id)
                    raise EngineError("boom")
                return await original(engine, request)
            finally:
                self.now -= 1

        patch.setattr(ScriptedEngine, "generate", generate)


def test_as_many_questions_overlap_as_concurrency_says(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    assert evaluate(kit, {"S": {**MODELS["S"], "concurrency": 8}}, "MMBench_DEV_EN_mini") == 0
    assert len(kit.answers["MMBench_DEV_EN_mini"]) > 8
    assert counting.most == 8


def test_the_kit_s_own_flag_for_threads_is_respected(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    assert evaluate(kit, {"S": MODELS["S"]}, "MMBench_DEV_EN_mini", args=("--api-nproc", "3")) == 0
    assert counting.most == 3


def test_a_question_that_fails_gives_no_score_and_the_same_command_asks_it_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counting = Counting(monkeypatch, failing=("ChartQA_TEST_mini/1",))
    models = {"R-S2": {**MODELS["R-S2"], "reuse": False}}
    assert evaluate(kit, models, "ChartQA_TEST_mini", "RealWorldQA_mini") == 1
    status = kit.status("R-S2")
    assert "metrics" not in status["ChartQA_TEST_mini"]
    assert status["RealWorldQA_mini"]["metrics"] == {"split=none|Overall": 1.0}
    count = len(kit.answers["ChartQA_TEST_mini"])
    printed = capsys.readouterr().err.splitlines()
    assert printed[-1].startswith(
        f"mai: R-S2 x ChartQA_TEST_mini: 1 of {count} questions could not be answered, so there is no score; first: "
        "question ChartQA_TEST_mini/1 could not be answered: boom"
    )
    before = counting.calls
    assert evaluate(kit, models, "ChartQA_TEST_mini", "RealWorldQA_mini") == 0
    assert counting.calls == before + 2  # R and the short answer of one question
    assert kit.status("R-S2")["ChartQA_TEST_mini"]["metrics"]["Overall"] == 100
    failed, _, complete = kit.runs()
    assert failed.samples["ChartQA_TEST_mini/1"].error
    assert len(complete.samples) == count
    assert not any(sample.error for sample in complete.samples.values())


def test_the_exit_code_says_that_nothing_was_evaluated(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    """The kit's own is 0."""
    broken = kit.folder / "LMUData" / "ChartQA_TEST_mini.tsv"
    broken.write_text("index\tquestion\n1\tWho?\n")
    assert evaluate(kit, {"S": MODELS["S"]}, "ChartQA_TEST_mini") == 1
    assert "mai: S x ChartQA_TEST_mini: " in capsys.readouterr().err.splitlines()[-1]
    assert not (kit.folder / "mai_runs").exists()
    # Of an unknown name the kit makes a data set without a scorer, whose error has no message.
    assert vlmevalkit.main(["--data", "RealWorldQA_mini", "--model", "MAI-tiny", "--mode", "eval"]) == 1
    assert (
        vlmevalkit.main(["--data", "POPE_mini", "--model", "MAI-tiny", "--model-args", "max_reasoning_tokens=8"]) == 1
    )
    assert capsys.readouterr().err.splitlines()[-1] == "mai: MAI-tiny x POPE_mini: it failed; the kit's log says where"
    assert vlmevalkit.main(["--data", "NoSuchData", "--model", "MAI-tiny", "--mode", "infer"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "mai: MAI-tiny x NoSuchData: no score: invalid_dataset"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": "R", "two_stage": True}, "prompt S (now R), two_stage False (now True)"),
        ({"model": "other.json"}, "model model script:"),
        ({"prompts": "prompts.yaml"}, "prompts "),
        ({"max_new_tokens": 5}, "max_new_tokens 1024 (now 5)"),
        ({"raw": True}, "raw False (now True)"),
    ],
)
def test_predictions_of_other_settings_are_refused(
    kit: Kit, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    kit.script("other.json", {"*": {"*": "7"}})
    (kit.folder / "prompts.yaml").write_text("brevity: ['In a word, please.']\n")
    assert evaluate(kit, {"mine": MODELS["S"]}, "ChartQA_TEST_mini") == 0
    before = kit.predictions("mine", "ChartQA_TEST_mini")
    for args in ((), ("--mode", "eval")):
        assert evaluate(kit, {"mine": {**MODELS["S"], **change}}, "ChartQA_TEST_mini", args=args) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("mai: outputs/mine holds predictions on ChartQA_TEST_mini made with ")
        assert said in line
        assert line.endswith("give another --work-dir, or delete that folder")
    assert kit.predictions("mine", "ChartQA_TEST_mini") == before
    assert evaluate(kit, {"mine": {**MODELS["S"], **change}}, "ChartQA_TEST_mini", args=("--work-dir", "other")) == 0
    # What changes speed alone does not count.
    assert evaluate(kit, {"mine": {**MODELS["S"], "concurrency": 3, "reuse": False}}, "ChartQA_TEST_mini") == 0


def test_predictions_on_other_questions_and_of_unknown_origin_are_refused(
    kit: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(kit, {"mine": MODELS["S"]}, "ChartQA_TEST_mini") == 0
    file = kit.folder / "LMUData" / "ChartQA_TEST_mini.tsv"
    file.write_text(file.read_text().replace("bar?", "column?"))
    assert evaluate(kit, {"mine": MODELS["S"]}, "ChartQA_TEST_mini") == 1
    assert "made with questions " in capsys.readouterr().err.splitlines()[-1]
    (kit.folder / "outputs" / "mine" / "mai.json").unlink()
    assert evaluate(kit, {"mine": MODELS["S"]}, "ChartQA_TEST_mini") == 1
    assert "of which mai.json does not say what they were made with" in capsys.readouterr().err.splitlines()[-1]


def test_a_run_of_a_few_and_then_of_all(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit keeps the few predictions, and would score all by the marks of the few."""
    counting = Counting(monkeypatch)
    assert evaluate(kit, {"S": MODELS["S"]}, "POPE_mini", args=("--limit", "2")) == 0
    assert counting.calls == 2
    assert evaluate(kit, {"S": MODELS["S"]}, "POPE_mini") == 0
    rows = kit.answers["POPE_mini"]
    assert counting.calls == len(rows) > 2
    assert headline(kit, "S", "POPE_mini") == pytest.approx(expected(kit, "S", "POPE_mini"))
    few, whole = kit.runs()
    assert len(few.samples) == 2
    assert {sample.doc_id for sample in whole.samples.values()} == rows.keys()
    from mai_plugin.harness.scores import score

    assert score(whole).scores["POPE_mini"].value == pytest.approx(expected(kit, "S", "POPE_mini"))
    # Once complete, nothing is asked and no run is made.
    assert evaluate(kit, {"S": MODELS["S"]}, "POPE_mini") == 0
    assert len(kit.runs()) == 2


def test_text_that_states_no_answer_is_not_handed_over(kit: Kit) -> None:
    long = {"text": "Let me see. " * 4000 + "\nIt may be A or B", "finish_reason": "length"}
    script = {"RealWorldQA_mini/0": {"R": long}, "RealWorldQA_mini/1": {"R": ""}, "*": {"R": "So it is.\nAnswer: A"}}
    models = {"R": {"model": kit.script("long.json", script), "prompt": "R"}}
    assert evaluate(kit, models, "RealWorldQA_mini") == 0
    handed_over = kit.predictions("R", "RealWorldQA_mini")
    assert (handed_over["0"], handed_over["1"], handed_over["2"]) == ("-", "-", "A")
    (run,) = kit.runs()
    assert len(run.samples["RealWorldQA_mini/0"].calls[0].text) > 40_000
    assert run.samples["RealWorldQA_mini/0"].returned == "-"


def test_spreadsheets_are_read_too(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    from mai_plugin.harness.scores import score

    monkeypatch.setenv("PRED_FORMAT", "xlsx")
    datasets = ["POPE_mini", "ChartQA_TEST_mini", "MMBench_DEV_EN_mini", "MMMU_DEV_VAL_mini"]
    assert evaluate(kit, {"MAI": PAIR}, *datasets) == 0
    for run, dataset in zip(kit.runs(), datasets, strict=True):
        assert score(run).scores[dataset].value == pytest.approx(expected(kit, "MAI", dataset))


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert vlmevalkit.main(list(args)) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_what_the_kit_would_do_silently_or_not_at_all_is_one_line(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ("--data", "ChartQA_TEST", "--model", "MAI-tiny")
    assert "unknown model 'MAI-Tiny' (did you mean 'MAI-tiny'?)" in refused(capsys, *ours[:3], "MAI-Tiny")
    assert "give --data and --model, or --config FILE" in refused(capsys, "--data", "POPE")
    assert "unknown argument 'engin'" in refused(capsys, *ours, "--model-args", "engin=vllm")
    assert "--api-mode is for the kit's own models" in refused(capsys, *ours, "--api-mode")
    config = kit.config("bad.json", {"mine": {"preset": "MAI-tiny", "small": "x", "agreement": "none"}}, DATASETS[:1])
    assert "argument agreement='none'" in refused(capsys, "--config", config)
    assert "--config nothing.json: " in refused(capsys, "--config", "nothing.json")
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        assert "in one process only: start it without torchrun" in refused(capsys, *ours)
    with monkeypatch.context() as patch:
        patch.setenv("LMUData", str(kit.folder / "nowhere"))
        assert f"LMUData={kit.folder}/nowhere: no such folder" in refused(capsys, *ours)
    with monkeypatch.context() as patch:
        patch.setenv("VLMEVALKIT", str(kit.folder))
        assert f"VLMEVALKIT={kit.folder}: no checkout of VLMEvalKit is there" in refused(capsys, *ours)
    missing = kit.config("missing.json", {"mine": {"model": "missing.json"}}, DATASETS[:1])
    (kit.folder / "missing.json").unlink()
    (kit.folder / "config.json").write_text(
        json.dumps(
            {
                "model": {"mine": {"class": "MaiVLM", "engine": "scripted", "model": "none.json"}},
                "data": {"POPE_mini": {"class": "ImageYORNDataset", "dataset": "POPE_mini"}},
            }
        )
    )
    assert "script none.json: " in refused(capsys, "--config", "config.json")
    assert missing


def test_a_model_that_cannot_be_loaded_is_tried_once(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def session(settings: Any) -> Any:
        tried.append(settings)
        raise ValueError("out of memory")

    monkeypatch.setattr("mai_plugin.harness.vlmevalkit.model.Session", session)
    assert evaluate(kit, {"S": MODELS["S"]}, "ChartQA_TEST_mini", "POPE_mini") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "mai: out of memory"
    assert len(tried) == 1


def test_outside_of_an_evaluation_a_failure_is_an_error(kit: Kit) -> None:
    vlmevalkit.register()
    model = MaiVLM(engine="scripted", model=kit.script("s.json", {"*": {"S": "7"}}))
    assert model.generate(["How many?"]) == "7"
    assert model.generate("How many?") == "7"
    with pytest.raises(RuntimeError, match=r"question none/unnamed-2 could not be answered: .*empty"):
        model.generate([""])
    with pytest.raises(RuntimeError, match="holds video; mai models read text and images"):
        model.generate([{"type": "video", "value": "a.mp4"}])
    with pytest.raises(ValueError, match="asks for several rounds"):
        model.chat([], dataset="MMDU")
    model.close()
    (run,) = kit.runs()
    assert (len(run.samples), run.finished) == (4, True)
    model = MaiVLM(engine="scripted", model="s.json")
    other = MaiVLM(engine="scripted", model="s.json", prompt="E")
    assert model.generate("How many?") == "7"
    with pytest.raises(RuntimeError):
        other.generate("How many?")
    assert model.session is None  # gone when the other one loaded its own


def test_models_of_the_kit_s_own_are_run_as_ever(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    vlmevalkit.register()
    import vlmeval.config
    import vlmeval.vlm
    from vlmeval.vlm.base import BaseModel

    class Echo(BaseModel):  # type: ignore[misc]
        def generate_inner(self, message: Any, dataset: str | None = None) -> str:
            return "A"

    monkeypatch.setitem(vlmeval.config.supported_VLM, "Echo", Echo)
    config = json.loads(Path(kit.config("echo.json", {"S": MODELS["S"]}, ["RealWorldQA_mini"])).read_text())
    config["model"]["Echo"] = {}
    (kit.folder / "echo.json").write_text(json.dumps(config))
    assert vlmevalkit.main(["--config", "echo.json", "--judge", "exact_matching"]) == 0
    assert set(kit.predictions("Echo", "RealWorldQA_mini").values()) == {"A"}
    share = sum(answer == "A" for answer in kit.answers["RealWorldQA_mini"].values()) / len(
        kit.answers["RealWorldQA_mini"]
    )
    assert kit.status("Echo")["RealWorldQA_mini"]["metrics"]["split=none|Overall"] == pytest.approx(share)
    assert not (kit.folder / "outputs" / "Echo" / "mai.json").exists()


@pytest.mark.parametrize("config", sorted(path.name for path in (task_configs() / "vlmevalkit").glob("*.json")))
def test_ready_configs(kit: Kit, config: str) -> None:
    """Each model can be built, each data set's class exists, and is the one that the kit has for the name."""
    vlmevalkit.register()
    import vlmeval.dataset

    content = json.loads((task_configs() / "vlmevalkit" / config).read_text())
    assert content.keys() == {"model", "data"}
    for name, entry in content["model"].items():
        assert MaiVLM(**{key: value for key, value in entry.items() if key != "class"}).settings.name == name
    for name, entry in content["data"].items():
        cls = getattr(vlmeval.dataset, entry["class"])
        assert entry["dataset"] == name
        official = name.removesuffix("_mini")
        assert official in cls.DATASET_URL
        assert (config == "mini.json") == (name != official)


def test_all_data_sets_have_a_ready_config() -> None:
    names = {path.stem for path in (task_configs() / "vlmevalkit").glob("*.json")}
    assert {*KIT_DATASETS, "mini", "paper", "paper_internvl"} == names


def test_a_git_checkout_is_taken_where_one_is_named(made: Kit) -> None:
    """The same kit, laid out as its repository is."""
    import vlmeval

    checkout = made.folder / "checkout"
    checkout.mkdir()
    package = Path(vlmeval.__file__).parent
    (checkout / "vlmeval").symlink_to(package)
    (checkout / "run.py").write_text((package / "run.py").read_text() + "\nprint('of the checkout')\n")
    config = made.config("checkout.json", {"S": MODELS["S"]}, ["RealWorldQA_mini"])
    done = made.run("--config", config, "--judge", "exact_matching", "--work-dir", "by_checkout", VLMEVALKIT="checkout")
    assert done.returncode == 0, done.stderr[-3000:]
    assert headline(made, "S", "RealWorldQA_mini", "by_checkout") == expected(made, "S", "RealWorldQA_mini")
    assert "of the checkout" in done.stdout  # its run.py, not the installed module
    assert "Evaluation Results" in next((made.folder / "by_checkout" / "logs").glob("*.log")).read_text()


def start(made: Kit, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mai_plugin.cli", "vlmevalkit", *args], cwd=made.folder,
        env={**os.environ, **made.environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def answered(kit: Kit) -> int:
    """How many questions the store holds; 0 while it is being made."""
    try:
        return sum(len(run.samples) for run in kit.runs())
    except ValueError:
        return 0


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_interrupt_that_gets_lost_ends_it_all_the_same(kit: Kit) -> None:
    """What was in flight is cancelled by then, and that is what the kit's threads report."""
    model = MaiVLM(engine="scripted", model="small.json")
    with pytest.raises(KeyboardInterrupt), model._stopping_at_ctrl_c():
        raise CancelledError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ended_in_the_middle_and_started_again(kit: Kit, monkeypatch: pytest.MonkeyPatch, how: signal.Signals) -> None:
    """Ctrl-C ends it at once, though the kit would wait for all; what was answered is not asked again."""
    dataset = "ChartQA_TEST_mini"
    rows = kit.answers[dataset]
    at_once = {f"{dataset}/{index}": {"S": {"text": "7", "e2e_s": 0}} for index in list(rows)[:3]}
    kit.script("slow.json", at_once | {"*": {"S": "7"}})
    slow = {"slow": {"model": "slow.json", "engine_args": {"latency_s": 100}}}
    process = start(kit, "--config", kit.config("slow_config.json", slow, [dataset]), "--judge", "exact_matching")
    try:
        wait_for(lambda: answered(kit) == 3)
        os.kill(process.pid, how)
        _, said = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == (130 if how == signal.SIGINT else -how), said[-3000:]
    (run,) = kit.runs()
    assert (len(run.samples), run.finished) == (3, False)

    counting = Counting(monkeypatch)
    assert evaluate(kit, {"slow": {"model": "slow.json"}}, dataset) == 0
    assert counting.calls == len(rows) - 3
    _, run = kit.runs()
    assert (len(run.samples), run.finished, run.reused_calls) == (len(rows), True, 3)
