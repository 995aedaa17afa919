"""What tells one model from another in the call store: equal identities give equal answers to equal requests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mai_plugin.engines.base import ENGINES, Engine, ModelSpec

PERFORMANCE_ARGS = frozenset(
    (
        "attn_implementation", "batch_size", "block_size", "data_parallel_size", "device", "device_ids",
        "distributed_executor_backend", "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager",
        "first_layers", "gpu_memory_utilization", "kv_cache_memory_bytes", "latency_s", "max_num_batched_tokens",
        "max_num_seqs", "max_retries", "num_threads", "pipeline_parallel_size", "tensor_parallel_size", "timeout",
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


def model_identity(engine: str, model: ModelSpec, loaded: Engine | None = None) -> str:
    """A model's identity; nothing is loaded for it.

    A checkpoint folder is its files' fingerprint, so that a copy is the same model and a retrained one is another.  A
    name on the Hub is that with the commit in the local cache, else with the revision given.  A served model (engine
    `openai`) is its name with the `revision` given, else with the server's URL: what it serves under it cannot be
    seen.  A script is its digest.  Engine arguments follow, but for those of pure performance; the engine's own name is
    kept beside it in the store.

    Args:
        engine: a key of `ENGINES`.
        model: what is loaded, or would be.
        loaded: the loaded engine, where there is one: it may tell its identity itself (an attribute `identity`).

    Raises:
        ValueError: a script that cannot be read.
    """
    args = {**model.hints, **model.args}
    revision, base_url = args.pop("revision", None), args.pop("base_url", None)
    if own := getattr(loaded, "identity", None):
        who = str(own)
    elif ENGINES[engine].by_question and loaded is None:
        from mai_plugin.engines.scripted import ScriptedEngine

        who = ScriptedEngine(model.source).identity
    elif base_url or engine == "openai":
        who = f"{model.source}@{revision or without_secrets(str(base_url or '')).strip().rstrip('/')}"
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


def is_settled(engine: str, model: ModelSpec) -> bool:
    """Whether loading the model leaves its identity as it is: the commit of a Hub name is known once it is cached."""
    known = not ENGINES[engine].loads_weights or Path(model.source).expanduser().is_dir()
    revision = model.args.get("revision")
    return known or revision is not None or _cached_commit(model.source, revision) is not None


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
"""What replaces a secret."""


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
