"""What tells one model from another in the call store: whose answers may be taken for whose."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mai_plugin.engines.base import Engine, ModelSpec
from mai_plugin.engines.scripted import ScriptedEngine

PERFORMANCE_ARGS = frozenset(
    (
        "attn_implementation", "batch_size", "block_size", "data_parallel_size", "device", "device_ids",
        "distributed_executor_backend", "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager",
        "gpu_memory_utilization", "kv_cache_memory_bytes", "latency_s", "max_num_batched_tokens", "max_num_seqs",
        "max_retries", "num_threads", "pipeline_parallel_size", "tensor_parallel_size", "timeout",
    )
)  # fmt: skip
"""Engine arguments that change how fast a model answers, not what.  All others count as changing the answers."""

WHOLE_FILE = 64 * 2**20
"""Files up to this size (bytes) are digested whole."""
_SAMPLES, _BLOCK = 64, 64 * 2**10

_CHECKPOINT_FILES = frozenset(
    (".bin", ".gguf", ".jinja", ".json", ".model", ".pt", ".pth", ".py", ".safetensors", ".tiktoken", ".txt")
)
_TRAINING_FILES = re.compile(r"optimizer|scheduler|rng_state|trainer_state|training_args")

_SECRET_WORDS = frozenset(
    ("auth", "authorization", "cookie", "credential", "credentials", "header", "headers", "key", "password", "secret",
     "token")
)  # fmt: skip
_SECRET_VALUES = re.compile(r"\b(?:sk|hf|ghp|github_pat|xox[a-z])[-_][\w-]{12,}|\bBearer\s+\S+")
_URL_USER, _URL_QUERY = re.compile(r"(https?://)[^/@\s,]*@"), re.compile(r"(https?://[^\s,?#]*)[?#][^\s,]*")


def model_identity(engine_name: str, model: ModelSpec, engine: Engine | None) -> str:
    """Who a model is: two with the same identity write the same to the same request.

    A checkpoint folder is its files' fingerprint, so that a copy is the same model and a retrained one is another.  A
    name on the Hub is that with the commit in the local cache, else with the revision given.  A served model (engine
    `openai`) is its name with the `revision` given, else with the servers' URLs: what they serve under it cannot be
    seen.  A script is its digest.  Engine arguments follow, but for those of pure performance; the engine itself is
    no part of it.

    Args:
        engine_name: a key of `ENGINES`.
        model: as it was loaded.
        engine: the loaded engine, None before it is loaded: then a Hub name's commit may not be in the cache yet.
    """
    if engine is None and engine_name == "scripted":
        engine = ScriptedEngine(model.source)
    args = {**model.hints, **model.args}
    revision = args.pop("revision", None)
    base_url = args.pop("base_url", None)
    if isinstance(engine, ScriptedEngine):
        who = f"script:{_short(json.dumps(engine.script, sort_keys=True).encode())}"
    elif engine_name == "openai":
        urls = base_url.split(",") if isinstance(base_url, str) else base_url or []
        servers = ",".join(sorted(url.strip().rstrip("/") for url in map(without_secrets, urls)))
        who = f"{model.source}@{revision or servers}"
    elif (folder := Path(model.source).expanduser()).is_dir():
        who = f"checkpoint:{fingerprint(folder)}"
    else:
        commit = _cached_commit(model.source, revision) or revision
        who = f"{model.source}@{commit}" if commit else model.source
    changing = {
        key: value
        for key, value in without_secrets(args).items()
        if key not in PERFORMANCE_ARGS and value is not None and value != HIDDEN
    }
    return f"{who} {json.dumps(changing, sort_keys=True, default=str)}" if changing else who


def fingerprint(folder: Path) -> str:
    """A digest of a checkpoint folder (16 hex digits): its configuration, tokenizer, processor, template and weights.

    Of a file above `WHOLE_FILE` bytes it takes size, time of change and 64 blocks of 64 KiB, spread over the file: so
    a copy of such a file counts as the same model only where the copy kept the time (`cp -p`, `rsync -t`).
    """
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix not in _CHECKPOINT_FILES or _TRAINING_FILES.match(file.name) or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            if size <= WHOLE_FILE:
                digest.update(stream.read())
                continue
            digest.update(f"{file.stat().st_mtime_ns}\n".encode())
            for number in range(_SAMPLES):
                stream.seek((size - _BLOCK) * number // (_SAMPLES - 1))
                digest.update(stream.read(_BLOCK))
    return digest.hexdigest()[:16]


HIDDEN = "***"
"""What stands in the place of a secret."""


def without_secrets(value: Any, key: str = "") -> Any:
    """A copy in which nothing is left of keys, tokens, passwords and headers, nor of a URL's user and query."""
    if _SECRET_WORDS & set(re.split(r"[_\-\s]", key.casefold())):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(name): without_secrets(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    if isinstance(value, str):
        return _SECRET_VALUES.sub(HIDDEN, _URL_QUERY.sub(r"\1", _URL_USER.sub(r"\1", value)))
    return value


def _cached_commit(name: str, revision: Any) -> str | None:
    """The commit that the local Hub cache holds for a revision (default: main), None if it does not."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json", revision=revision)
    except (ImportError, ValueError):  # an engine without the Hub's client, or no name that the Hub could have
        return None
    return Path(found).parent.name if isinstance(found, str) else None


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
