"""Arguments and presets: what they come to, and one clear line for each that is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mai_plugin.core import agreement as answers
from mai_plugin.core.records import Sparse
from mai_plugin.engines.base import ModelSpec
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.settings import AUTO_BATCH_SIZE, Settings, preset_names, preset_strategy


def cascade(**args: object) -> Settings:
    return Settings.from_args("mutual_verification", args)


def sparse(settings: Settings) -> Sparse:
    return Sparse(*(settings.arguments[key] for key in ("layer", "keep", "select_by")))


def test_the_default_is_the_papers_pair() -> None:
    settings = cascade()
    assert settings.name == "MAI-Qwen3VL-2B-8B"
    assert [model.name for model in settings.models.values()] == [
        "Qwen/Qwen3-VL-2B-Instruct",
        "Qwen/Qwen3-VL-8B-Instruct",
    ]
    assert (settings.engine, settings.max_reasoning_tokens) == ("transformers", 2048)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_sound(name: str) -> None:
    strategy = "mutual_verification" if name.startswith("MAI-") else "single"
    settings = Settings.from_args(strategy, {"preset": name})  # type: ignore[arg-type]
    assert settings.name == name


def test_shipped_models_are_found_by_name() -> None:
    models = cascade(preset="MAI-tiny").models
    assert models["small"].source == str(SHIPPED_MODELS["mai-tiny-small"])
    assert models["small"].args == {"num_threads": 1}


def test_names_tell_models_and_strategy() -> None:
    pair = {"small": "org/Small-2B", "large": "/models/Large-8B/"}
    assert Settings.from_args("mutual_verification", pair).name == "Small-2B+Large-8B-MAI"
    assert Settings.from_args("transfer", pair).name == "Small-2B+Large-8B-transfer-R"
    assert Settings.from_args("transfer", {"preset": "MAI-tiny", "prompt": "E"}).name == "MAI-tiny-transfer-E"
    assert Settings.from_args("single", {"model": "org/M"}).name == "M-S"
    assert Settings.from_args("single", {"model": "org/M", "prompt": "R", "two_stage": True}).name == "M-R-S2"
    assert Settings.from_args("single", {"preset": "tiny-large-S", "prompt": "R"}).name == "tiny-large-S-R"
    assert cascade(preset="MAI-tiny", large="org/L").name == "mai-tiny-small+L-MAI"
    assert cascade(preset="MAI-tiny", strategy="transfer").name == "MAI-tiny-transfer-R"
    assert cascade(preset="MAI-tiny", strategy="sparse_transfer").name == "MAI-tiny-sparse-transfer-R"
    assert cascade(preset="MAI-tiny", strategy="sparse_transfer", layer=2).name == "MAI-tiny-sparse-transfer-R-L2"
    assert cascade(preset="MAI-tiny", transfer="sparse").name == "MAI-tiny-sparse"
    assert cascade(**pair, transfer="sparse", layer=0.5, keep=0.9).name == "Small-2B+Large-8B-MAI-sparse-L0.5-keep0.9"
    assert cascade(preset="MAI-tiny", strategy="speculative").name == "MAI-tiny-speculative-R"
    assert cascade(**pair, strategy="speculative", two_stage=True).name == "Small-2B+Large-8B-speculative-R-S2"


def test_sparse_transfer() -> None:
    assert cascade().arguments["transfer"] == "full"
    settings = cascade(transfer="sparse")
    assert (sparse(settings), list(settings.models)) == (Sparse(16 / 36, 0.8), ["small", "large"])
    settings = cascade(strategy="sparse_transfer", layer="16", keep="1")
    assert sparse(settings) == Sparse(16, 1.0)
    assert isinstance(settings.arguments["layer"], int)
    assert sparse(cascade(transfer="sparse", layer="0.25")) == Sparse(0.25)
    assert sparse(cascade(transfer="sparse", select_by="random")) == Sparse(by="random")
    assert cascade(preset="MAI-tiny", transfer="sparse", select_by="random").name == "MAI-tiny-sparse-random"
    settings = cascade(
        transfer="sparse",
        engine="vllm",
        selector="mai-tiny-large",
        dtype="bfloat16",
        selector_args='{"device":"cuda:1"}',
    )
    selector = {"dtype": "bfloat16", "device": "cuda:1", "first_layers": 16 / 36}
    assert settings.models["selector"] == ModelSpec("mai-tiny-large", selector)
    assert [settings.engine_of(role) for role in settings.models] == ["vllm", "vllm", "transformers"]


def test_a_sparse_preset_serves_the_other_strategies_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("strategy: mutual_verification\nsmall: a\nlarge: b\ntransfer: sparse\nlayer: 3\n")
    assert sparse(cascade(preset=str(file))) == Sparse(3)
    assert cascade(preset=str(file)).name == "mine"
    assert cascade(preset=str(file), layer=4).name == "mine-L4"
    assert Settings.from_args("transfer", {"preset": str(file)}).arguments == {"prompt": "R"}


@pytest.mark.parametrize("strategy", ["sparse_transfer", "speculative"])
def test_a_preset_of_a_strategy_without_a_model_of_its_own_keeps_it(tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"strategy: {strategy}\nsmall: a\nlarge: b\n")
    assert (cascade(preset=str(file)).strategy, cascade(preset=str(file)).name) == (strategy, "mine")
    assert cascade(preset=str(file), strategy="mutual_verification").name == "mine-MAI"
    assert Settings.from_args("transfer", {"preset": str(file)}).strategy == strategy
    assert Settings.from_args("transfer", {"preset": str(file), "strategy": "transfer"}).strategy == "transfer"


def test_the_assistant_of_speculative_decoding_is_an_argument_of_the_large_model() -> None:
    settings = cascade(preset="MAI-tiny", strategy="speculative", small_args={"device": "cpu"}, dtype="float32")
    (model,) = settings.models.values()
    assert (model.name, model.args["assistant_model"]) == ("mai-tiny-large", str(SHIPPED_MODELS["mai-tiny-small"]))
    assert model.args["assistant_args"] == {"dtype": "float32", "num_threads": 1, "device": "cpu"}


def test_engine_arguments_are_merged() -> None:
    settings = cascade(
        small="a", large="b", dtype="float32", batch_size="4",
        engine_args='{"num_threads": 2}', large_args='{"dtype": "bfloat16"}',
    )  # fmt: skip
    assert settings.models["small"].args == {"dtype": "float32", "num_threads": 2}
    assert settings.models["large"].args == {"dtype": "bfloat16", "num_threads": 2}
    assert settings.models["large"].hints == {"batch_size": 4}


def test_agreement() -> None:
    assert cascade().arguments["agreement"] is answers.agree
    assert cascade(agreement="relaxed").arguments["agreement"] is answers.agree_relaxed
    assert cascade(agreement="mai_plugin.core.agreement:agree_relaxed").arguments["agreement"] is answers.agree_relaxed
    with pytest.raises(ValueError, match="must take two answers and their kind"):
        cascade(agreement="operator:eq")


def test_a_function_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_agreement_rule.py").write_text("def never(a, b, kind):\n    return False\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert cascade(agreement="my_agreement_rule:never").arguments["agreement"]("7", "7", "short") is False


def test_batch_size() -> None:
    assert cascade(batch_size="auto").models["small"].hints == {"batch_size": AUTO_BATCH_SIZE}
    with pytest.raises(ValueError, match="argument batch_size='many' must be a whole number"):
        cascade(batch_size="many")


@pytest.mark.parametrize(
    ("given", "file"),
    [({}, "mai_runs/calls.sqlite"), ({"store": "runs"}, "runs/calls.sqlite"), ({"store": "a/b.sqlite"}, "a/b.sqlite"),
     ({"store": "b.db"}, "b.db"), ({"store": "~/x"}, str(Path.home() / "x" / "calls.sqlite"))],
)  # fmt: skip
def test_store(given: dict[str, object], file: str) -> None:
    assert cascade(**given).store == Path(file)


def test_store_off_and_reuse() -> None:
    assert cascade(store="off").store is None
    assert cascade().reuse is True
    assert cascade(reuse="false").reuse is False
    with pytest.raises(ValueError, match="argument reuse='no' must be true or false"):
        cascade(reuse="no")


def test_a_preset_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("strategy: mutual_verification\nsmall: a\nlarge: b\nmax_reasoning_tokens: 99\n")
    settings = cascade(preset=str(file))
    assert (settings.name, settings.max_reasoning_tokens) == ("mine", 99)


WRONG = [
    ({"preset": "MAI-Qwen3VL-2B-9B"}, r"unknown preset 'MAI-Qwen3VL-2B-9B' \(did you mean 'MAI-Qwen3VL-[24]B-[48]B'\?\); `mai presets` lists them"),
    ({"preset": "no/such.yaml"}, "preset 'no/such.yaml': no such file"),
    ({"preset": "Qwen3VL-8B-S"}, "is for strategy single"),
    ({"engine": "vlm"}, "did you mean 'vllm'"),
    ({"smal": "a"}, r"unknown argument 'smal' \(did you mean 'small'\?\); arguments are: small"),
    ({"small": "a"}, "argument 'large' is missing: give small=MODEL and large=MODEL, or preset=NAME"),
    ({"concurrency": 0}, "argument concurrency=0 must be a whole number, at least 1"),
    ({"max_reasoning_tokens": 1.5}, "must be a whole number"),
    ({"raw": "maybe"}, "argument raw='maybe' must be true or false"),
    ({"engine_args": "{dtype"}, "is not JSON"),
    ({"engine_args": "3"}, "must be a JSON object"),
    ({"store": ""}, "argument store='' must be a name or a path"),
    ({"small": "", "large": "b"}, "argument small='' must be a name or a path"),
    ({"agreement": ":x"}, "argument agreement=':x'"),
    ({"agreement": "loose"}, "argument agreement='loose'; expected one of: exact, relaxed, or your own as file.py:function"),
    ({"agreement": "no_such:thing"}, "argument agreement='no_such:thing' cannot be imported: ModuleNotFoundError: No module named"),
    ({"agreement": "math:pi"}, "argument agreement='math:pi': math has no function 'pi'"),
    ({"prompts": "no/such.yaml"}, "prompts file no/such.yaml"),
    ({"engine": "openai"}, "argument 'small_base_url' is missing: engine=openai needs small_base_url=URL, such as http://localhost:8000/v1"),
    ({"engine": "openai", "small_base_url": "http://a/v1"}, "argument 'large_base_url' is missing"),
    ({"engine": "openai", "small_base_url": "http://a/v1", "large_base_url": "b"}, "argument large_base_url: 'b' is no URL"),
    ({"small_base_url": "http://a/v1"}, "argument small_base_url needs engine=openai; the engine is transformers"),
    ({"strategy": "spares_transfer"}, r"argument strategy='spares_transfer' \(did you mean 'sparse_transfer'\?\); expected one of: mutual_verification, single"),
    ({"transfer": "some"}, "argument transfer='some'; expected one of: full, sparse"),
    ({"layer": 3}, "argument layer is for sparse transfer: add transfer=sparse"),
    ({"transfer": "sparse", "layer": -1}, "argument layer=-1 must be a layer's number, counted from 0, or a share of the depth such as 0.44"),
    ({"transfer": "sparse", "layer": 1.5}, "argument layer=1.5 must be"),
    ({"transfer": "sparse", "layer": "last"}, "argument layer='last' must be"),
    ({"transfer": "sparse", "layer": True}, "argument layer=True must be"),
    ({"transfer": "sparse", "keep": 0}, "argument keep=0 must be a number above 0 and at most 1"),
    ({"transfer": "sparse", "keep": 80}, "argument keep=80 must be a number above 0 and at most 1"),
    ({"transfer": "sparse", "keep": "nan"}, "argument keep='nan' must be a number above 0 and at most 1"),
    ({"transfer": "sparse", "select_by": "first"}, "argument select_by='first'; expected one of: attention, random, last"),
    ({"transfer": "sparse", "engine": "vllm"}, "engine=vllm does not give: add selector=Qwen/Qwen3-VL-8B-Instruct, whose first layers"),
    ({"strategy": "sparse_transfer", "engine": "openai", "small_base_url": "http://a/v1", "large_base_url": "http://b/v1"}, "add selector=CHECKPOINT"),
    ({"transfer": "sparse", "selector_args": "{}"}, "argument selector_args needs selector=MODEL"),
    ({"strategy": "speculative", "engine": "vllm"}, "strategy=speculative is transformers' assisted generation, not supported with engine=vllm"),
    ({"strategy": "speculative", "agreement": "relaxed"}, "unknown argument 'agreement'"),
    ({"strategy": "speculative", "prompt": "S"}, "argument prompt='S'; expected one of: E, R"),
    ({"base_url": "http://a/v1"}, r"unknown argument 'base_url' \(did you mean"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG)
def test_wrong_arguments(args: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        cascade(**args)
    assert "\n" not in str(error.value)


SERVED = {"engine": "openai", "small_base_url": "http://a:8000", "large_base_url": "https://c/v2"}


def test_models_on_servers() -> None:
    models = cascade(preset="MAI-tiny", **SERVED, image_format="jpeg").models
    # What is sent is the name, not the folder of the shipped pair; its arguments for transformers are put aside.
    assert (models["small"].source, models["large"].source) == ("mai-tiny-small", "mai-tiny-large")
    assert models["small"].args == {"base_url": "http://a:8000/v1", "image_format": "jpeg"}
    assert models["large"].args == {"base_url": "https://c/v2", "image_format": "jpeg"}
    single = Settings.from_args("single", {"model": "org/M", "engine": "openai", "base_url": "http://a:8000"})
    assert single.models["model"].args == {"base_url": "http://a:8000/v1"}


def test_servers_in_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "served.yaml"
    file.write_text(
        "strategy: mutual_verification\nengine: openai\nsmall: a\nlarge: b\nengine_args: {timeout: 30}\n"
        "small_base_url: http://a:8000/v1\nlarge_base_url: http://c:8000\n"
    )
    models = cascade(preset=str(file)).models
    assert models["small"].args == {"timeout": 30, "base_url": "http://a:8000/v1"}
    assert models["large"].args == {"timeout": 30, "base_url": "http://c:8000/v1"}
    # With another engine, what was meant for this one is put aside.
    assert cascade(preset=str(file), engine="transformers").models["small"].args == {}


def test_several_urls_are_refused_as_lmms_eval_passes_them_too() -> None:
    """It splits at commas, but for those in brackets or quotes."""
    parse = pytest.importorskip("lmms_eval.utils").simple_parse_args_string
    a, b = "http://a:8000/v1", "http://b:8000/v1"
    for typed in (f"{a};{b}", f"[{a},{b}]", f'"{a},{b}"'):
        args = parse(f"engine=openai,small=s,large=l,small_base_url={typed},large_base_url={a}")
        with pytest.raises(ValueError, match=r"small_base_url: .* holds several URLs; .* vllm-router or LiteLLM"):
            cascade(**args)


@pytest.mark.parametrize(
    "args",
    [
        {"api_key": "sk-secret"},
        {"small_api_key": "sk-secret"},
        {"engine_args": '{"api_key": "sk-secret"}'},
        {"engine_args": "{api_key: sk-secret"},
        {"small_args": {"api_key": "sk-secret"}},
        {"small_base_url": "http://me:sk-secret@a/v1"},
        {"small_base_url": "http://a/v1?api_key=sk-secret"},
    ],
)
def test_a_key_among_the_arguments_is_refused_and_not_repeated(args: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY") as error:
        cascade(**{**SERVED, **args})
    assert "sk-secret" not in str(error.value)


def test_a_key_in_a_preset_is_refused_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "key.yaml"
    file.write_text("strategy: mutual_verification\nsmall: a\nlarge: b\nsmall_args: {api_key: sk-secret}\n")
    with pytest.raises(ValueError, match="argument small_args holds an API key: give it as OPENAI_API_KEY") as error:
        cascade(preset=str(file))
    assert "sk-secret" not in str(error.value)


def test_wrong_prompt_letters() -> None:
    with pytest.raises(ValueError, match="argument prompt='Q'; expected one of: S, E, R"):
        Settings.from_args("single", {"model": "a", "prompt": "Q"})
    with pytest.raises(ValueError, match="argument prompt='S'; expected one of: E, R"):
        Settings.from_args("transfer", {"prompt": "S"})
    with pytest.raises(ValueError, match="two_stage=true needs prompt=E or prompt=R"):
        Settings.from_args("single", {"model": "a", "two_stage": True})
    with pytest.raises(ValueError, match="argument 'model' is missing"):
        Settings.from_args("single", {})


@pytest.mark.parametrize(
    ("content", "message"),
    [("strategy: cascade", "argument strategy='cascade'; expected one of"), ("- 1", "needs 'strategy'"), ("a: [", "preset"),
     ("strategy: mutual_verification\nsmall:\nlarge: b", "argument 'small' is missing"),
     ("strategy: mutual_verification\nsmall: [a]\nlarge: b", "must be a name or a path"),
     ("strategy: mutual_verification\nsmall: a\nlarge: b\nprompts: [x]", "must be a name or a path"),
     ("strategy: mutual_verification\nmodel: a", "unknown key 'model'")],
)  # fmt: skip
def test_a_bad_preset_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(content)
    with pytest.raises(ValueError, match=message):
        cascade(preset=str(tmp_path / "bad.yaml"))


def test_a_preset_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"bad\.yaml"):
        cascade(preset=str(tmp_path / "bad.yaml"))


def test_a_preset_tells_its_strategy(tmp_path: Path) -> None:
    assert [preset_strategy(name) for name in ("MAI-tiny", "tiny-large-R-S2")] == ["mutual_verification", "single"]
    (tmp_path / "mine.yaml").write_text("strategy: transfer\nsmall: a\nlarge: b")
    assert preset_strategy(str(tmp_path / "mine.yaml")) == "transfer"
    with pytest.raises(ValueError, match="unknown preset 'MAI-tony' \\(did you mean 'MAI-tiny'"):
        preset_strategy("MAI-tony")
