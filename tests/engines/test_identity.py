"""Which models count as the same, and that nothing secret is written down."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mai_plugin.engines import identity
from mai_plugin.engines.base import Engine, ModelSpec
from mai_plugin.engines.identity import fingerprint, model_identity, without_secrets
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.resources import SHIPPED_MODELS


class Real:
    """Stands for an engine that runs a model."""

    async def generate(self, request: Any) -> Any: ...

    def close(self) -> None: ...


REAL: Engine = Real()


def of(name: str, engine: str = "transformers", **args: Any) -> str:
    return model_identity(engine, ModelSpec(name, args), REAL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED_MODELS["mai-tiny-small"], tmp_path / "copy"))


def test_a_copy_of_a_checkpoint_is_the_same_model_whatever_lies_beside_it(copy: Path) -> None:
    (copy / "README.md").write_text("A copy.")
    (copy / "trainer_state.json").write_text("{}")
    (copy / "checkpoint-100").mkdir()
    assert of(str(copy)) == of("mai-tiny-small") != of("mai-tiny-large")
    assert of("mai-tiny-small").startswith("checkpoint:")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_one_changed_byte_makes_another_model(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    times = os.stat(copy / name)
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    os.utime(copy / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert of(str(copy)) != of("mai-tiny-small")


def test_large_files_are_told_by_size_time_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "WHOLE_FILE", 1000)
    file = tmp_path / "model.safetensors"

    def write(content: bytes, time: int = 1) -> str:
        file.write_bytes(content)
        os.utime(file, ns=(time, time))
        return fingerprint(tmp_path)

    first = write(bytes(5_000_000))
    assert write(bytes(5_000_000)) == first
    assert write(bytes(5_000_000), time=2) != first
    assert write(bytes(5_000_001)) != first
    assert write(bytes(4_999_999) + b"x") != first
    assert write(bytes(2_500_000) + b"x" * 100_000 + bytes(2_400_000)) != first


def test_arguments_that_change_what_is_written_count_and_those_of_speed_do_not() -> None:
    plain = of("mai-tiny-small")
    assert of("mai-tiny-small", batch_size=4, device="cpu", num_threads=2, attn_implementation="eager") == plain
    assert of("mai-tiny-small", distributed_executor_backend="mp", tensor_parallel_size=2) == plain
    assert of("mai-tiny-small", min_pixels=None) == plain
    assert of("mai-tiny-small", min_pixels=9) != plain
    assert of("mai-tiny-small", never_heard_of=1) != plain
    assert of("mai-tiny-small", dtype="float32") == plain + ' {"dtype": "float32"}'
    hinted = ModelSpec("mai-tiny-small", {}, {"batch_size": 16, "device": "cuda:0"})
    assert model_identity("transformers", hinted, REAL) == plain


def test_the_engine_is_no_part_of_it() -> None:
    assert of("mai-tiny-small", "vllm") == of("mai-tiny-small", "transformers")


def test_a_name_on_the_hub_is_the_commit_in_the_cache_else_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert of("org/model") == "org/model"
    assert of("org/model", revision="v2") == "org/model@v2"
    commits = {"main": "a" * 40, "v2": "b" * 40}
    for revision, commit in commits.items():
        refs, snapshot = (
            tmp_path / "models--org--model" / "refs",
            tmp_path / "models--org--model" / "snapshots" / commit,
        )
        refs.mkdir(parents=True, exist_ok=True)
        snapshot.mkdir(parents=True)
        (refs / revision).write_text(commit)
        (snapshot / "config.json").write_text("{}")
    assert of("org/model") == of("org/model", revision="main") == f"org/model@{'a' * 40}"
    assert of("org/model", revision="v2") == of("org/model", revision="b" * 40) == f"org/model@{'b' * 40}"


def test_a_served_model_is_known_by_its_server_unless_a_revision_is_given() -> None:
    one = of("m", "openai", base_url="http://a:8000/v1")
    assert of("m", "openai", base_url="http://a:8000/v1/", timeout=3) == one
    assert of("m", "openai", base_url="http://b:8000/v1") != one
    assert one == "m@http://a:8000/v1"
    assert of("m", "openai", base_url="http://a:8000/v1", revision="1") == of("m", "openai", revision="1") == "m@1"
    assert of("m", "openai", base_url="http://me:pass@a:8000/v1?api_key=sk-1234567890abcdef") == one
    assert of("m", "openai", base_url="http://a:8000/v1", api_key="one") == one


def test_scripts_are_known_by_what_they_say(tmp_path: Path) -> None:
    script = {"a/0": {"S": "7", "R": "8"}}
    (tmp_path / "script.json").write_text(json.dumps(script, indent=4))
    spec = ModelSpec("whatever", {"latency_s": 3})
    same = {model_identity("scripted", spec, ScriptedEngine(model)) for model in (script, tmp_path / "script.json")}
    assert len(same) == 1
    assert model_identity("scripted", spec, ScriptedEngine({"a/0": {"S": "8"}})) not in same


def test_secrets_are_left_out() -> None:
    args = {
        "api_key": "one", "hf_token": "two", "extra_headers": {"X": "three"}, "max_tokens": 4, "tokenizer": "t",
        "extra_body": {"access-token": "five", "top_k": 1, "note": "key sk-abcdefghijklmnop"},
        "urls": ["https://me:six@host/v1?key=seven"],
    }  # fmt: skip
    assert without_secrets(args) == {
        "api_key": "***", "hf_token": "***", "extra_headers": "***", "max_tokens": 4, "tokenizer": "t",
        "extra_body": {"access-token": "***", "top_k": 1, "note": "key ***"},
        "urls": ["https://host/v1"],
    }  # fmt: skip


def test_it_is_known_before_a_model_is_loaded(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"*": {"S": "7"}}')
    script = ModelSpec(str(tmp_path / "script.json"))
    assert model_identity("scripted", script, None) == model_identity("scripted", script, ScriptedEngine(script.name))
    spec = ModelSpec(str(copy), {"dtype": "bfloat16"})
    assert model_identity("transformers", spec, None) == model_identity("transformers", spec, REAL)
