"""Hugging Face transformers: any `AutoModelForImageTextToText`, on a CPU or a GPU, requests gathered into batches."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

from mai_plugin.core.records import Completion, Request
from mai_plugin.engines.base import EngineError, hf_messages


@dataclass(eq=False)
class _Job:
    """A request on its way through the engine: `inputs` are its processor outputs, each with a batch of one."""

    request: Request
    arrived: float
    inputs: dict[str, torch.Tensor]
    max_tokens: int
    done: asyncio.Future[Completion]

    @property
    def prompt_tokens(self) -> int:
        return int(self.inputs["input_ids"].shape[1])


class TransformersEngine:
    """One model, loaded with transformers.  Decodes greedily.

    Requests that are waiting when the model becomes free run as one left-padded batch of at most `batch_size`.  Each
    has its own token limit, and is answered as soon as it ends, without waiting for the batch.

    Args:
        model: a checkpoint folder or a name on the Hub.
        device: such as `cuda:0`, `cpu`, or `auto` to spread a model over all GPUs.  Default: the GPU of
            `LOCAL_RANK` if there is one, else the CPU.
        dtype: `auto` (the checkpoint's), `float32`, `bfloat16` or `float16`.
        batch_size: most requests in one batch.
        num_threads: CPU threads of torch, for the whole process.  Tiny models are fastest with 1.
        attn_implementation: as in `from_pretrained`.
        min_pixels, max_pixels: limits on the size that the processor scales an image to; default: the model's own.
        revision, trust_remote_code: as in `from_pretrained`.

    Raises:
        ValueError: the model cannot be loaded, or an argument does not fit it.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int = 1,
        num_threads: int | None = None,
        attn_implementation: str | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise ValueError(f"dtype {dtype!r} must be one of auto, float32, bfloat16, float16")
        counts = {
            "batch_size": batch_size,
            "num_threads": num_threads,
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
        }
        for key, count in counts.items():
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"{key} {count!r} must be a whole number, at least 1")
        if num_threads:
            torch.set_num_threads(num_threads)
        if _is_path(model) and not Path(model).expanduser().is_dir():
            raise ValueError(f"model {model!r}: no such folder; give a checkpoint folder or a name on the Hub")
        self.name = model
        self.batch_size = batch_size
        self.device = default_device() if device in (None, "cuda") else device
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        path = str(Path(model).expanduser()) if _is_path(model) else model
        try:
            self.processor = AutoProcessor.from_pretrained(path, **source)
            placed = {} if self.device == "cpu" else {"device_map": self.device}
            self.model = AutoModelForImageTextToText.from_pretrained(
                path, dtype=dtype, attn_implementation=attn_implementation, **placed, **source
            ).eval()
        except Exception as error:
            # A damaged file, a missing device or a foreign model makes the libraries raise whatever they like.
            reason = next((line for line in str(error).splitlines() if line.strip()), "")
            kind = type(error).__name__
            advice = "" if _is_path(model) else "; without access to the Hub, give a checkpoint folder"
            raise ValueError(
                f"model {model!r} could not be loaded with transformers: {kind}: {reason}{advice}"
            ) from error
        self.tokenizer = self.processor.tokenizer
        _limit_pixels(self.processor, min_pixels, max_pixels)
        self.context = int(self.model.config.get_text_config().max_position_embeddings)
        self.end_tokens, self.pad_token = _special_tokens(self.model, self.tokenizer)
        # Whatever sampling a checkpoint suggests is put aside: generate() takes what it is not given from here.
        self.model.generation_config = GenerationConfig(
            do_sample=False, eos_token_id=sorted(self.end_tokens), pad_token_id=self.pad_token
        )
        self._waiting: deque[_Job] = deque()
        self._preparing = 0
        self._loop_task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set whenever a request has left the processor
        self._closed = threading.Event()
        self._processor_thread = ThreadPoolExecutor(1, thread_name_prefix="mai-processor")
        self._model_thread = ThreadPoolExecutor(1, thread_name_prefix="mai-model", initializer=self._use_device)

    async def generate(self, request: Request) -> Completion:
        """Answer one request; see `Engine.generate`."""
        if self._closed.is_set():
            raise EngineError(f"the engine of {self.name} is closed")
        loop = asyncio.get_running_loop()
        arrived = time.perf_counter()
        self._preparing += 1
        try:
            inputs = await loop.run_in_executor(self._processor_thread, self._prepare, request)
        finally:
            self._preparing -= 1
            self._changed.set()
        tokens = int(inputs["input_ids"].shape[1])
        if tokens >= self.context:
            raise EngineError(
                f"the prompt's {tokens} tokens do not fit the context of {self.context} tokens of {self.name}"
            )
        limit = min(request.max_tokens, self.context - tokens)
        job = _Job(request, arrived, inputs, limit, loop.create_future())
        self._waiting.append(job)
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = loop.create_task(self._serve())
        try:
            return await job.done
        finally:
            if job in self._waiting:  # cancelled before it ran
                self._waiting.remove(job)

    def close(self) -> None:
        """Stop a running batch at its next token and free the model."""
        self._closed.set()
        self._processor_thread.shutdown(wait=True, cancel_futures=True)
        self._model_thread.shutdown(wait=True, cancel_futures=True)
        if hasattr(self, "model"):
            del self.model
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    async def _serve(self) -> None:
        """Run batches until nothing waits."""
        loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        batch: list[_Job] = []
        try:
            while self._waiting and not self._closed.is_set():
                # Requests that have arrived are let through the processor first, so that they share the batch.
                while self._preparing and len(self._waiting) < self.batch_size:
                    self._changed.clear()
                    await self._changed.wait()
                batch = self._next_batch()
                if batch:
                    await loop.run_in_executor(self._model_thread, self._run, batch, loop)
        except Exception as error:  # such as: the model's thread is gone, since the engine was closed
            await self._abandon(batch, error)
        if self._closed.is_set():
            await self._abandon(batch, EngineError(f"the engine of {self.name} is closed"))

    async def _abandon(self, batch: list[_Job], error: Exception) -> None:
        """Fail what nobody will answer any more; answers that are on their way go first."""
        await asyncio.sleep(0)
        for job in (*batch, *self._waiting):
            _fail(job.done, error if isinstance(error, EngineError) else EngineError(f"{self.name} stopped: {error}"))
        self._waiting.clear()

    def _next_batch(self) -> list[_Job]:
        """The oldest waiting request and others of its stage: short answers do not wait behind reasoning."""
        if not self._waiting:
            return []
        stage = self._waiting[0].request.stage
        batch = [job for job in self._waiting if job.request.stage == stage][: self.batch_size]
        for job in batch:
            self._waiting.remove(job)
        return batch

    def _use_device(self) -> None:
        if self.device.startswith("cuda:"):  # kernels that are not torch's own ask for the thread's current device
            torch.cuda.set_device(self.device)

    def _prepare(self, request: Request) -> dict[str, torch.Tensor]:
        """Chat template, image preprocessing and tokens of one request."""
        try:
            inputs = self.processor.apply_chat_template(
                hf_messages(request.messages),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
        except Exception as error:  # processors raise whatever they like on a bad image or a bad conversation
            reason = " ".join(str(error).split()) or (
                f"{type(error).__name__}; does the text hold a special token such as the model's image token?"
            )
            raise EngineError(f"the processor of {self.name} failed: {reason}") from error
        return {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}

    def _run(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        """Generate for a batch, in the model's thread.

        A batch that fails, be it for memory or for one bad request, is run again in halves: what can be answered is
        answered, and the error stays with the request that causes it.
        """
        batch = [job for job in batch if not job.done.done()]
        if not batch:
            return
        try:
            with torch.inference_mode():
                self._generate(batch, loop)
        except Exception as error:
            if len(batch) > 1 and not self._closed.is_set():
                torch.cuda.empty_cache() if torch.cuda.is_available() else None
                self._run(batch[: len(batch) // 2], loop)
                self._run(batch[len(batch) // 2 :], loop)
                return
            reason = " ".join(str(error).split()) or type(error).__name__
            failed = EngineError(f"{self.name} failed on {batch[0].prompt_tokens} prompt tokens: {reason}")
            loop.call_soon_threadsafe(_fail, batch[0].done, failed)

    def _generate(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        inputs = collate([job.inputs for job in batch], self.pad_token)
        device = self.model.device
        inputs = {
            key: value.to(device, dtype=self.model.dtype) if value.is_floating_point() else value.to(device)
            for key, value in inputs.items()
        }
        watch = _Watch(self, batch, loop, inputs["input_ids"].shape[1])
        self.model.generate(
            **inputs,
            max_new_tokens=max(job.max_tokens for job in batch),
            stopping_criteria=StoppingCriteriaList([watch]),
        )


class _Watch(StoppingCriteria):  # type: ignore[misc]
    """Looks at a batch after every token: hands over the rows that have ended, and stops those at their limit."""

    def __init__(
        self, engine: TransformersEngine, batch: Sequence[_Job], loop: asyncio.AbstractEventLoop, prompt: int
    ) -> None:
        self.engine, self.batch, self.loop, self.prompt = engine, batch, loop, prompt
        self.ended = [False] * len(batch)
        self.first_token = 0.0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        now = time.perf_counter()
        self.first_token = self.first_token or now
        written = input_ids.shape[1] - self.prompt
        last = input_ids[:, -1].tolist()
        for row, job in enumerate(self.batch):
            if self.ended[row]:
                continue
            stopped = last[row] in self.engine.end_tokens
            if stopped or written >= job.max_tokens or job.done.done():
                self.ended[row] = True
                completion = Completion(
                    text=self.engine.tokenizer.decode(input_ids[row, self.prompt :], skip_special_tokens=True),
                    prompt_tokens=job.prompt_tokens,
                    output_tokens=written,
                    ttft_s=self.first_token - job.arrived,
                    e2e_s=now - job.arrived,
                    finish_reason="stop" if stopped else "length",
                )
                self.loop.call_soon_threadsafe(_succeed, job.done, completion)
        ended = self.ended if not self.engine._closed.is_set() else [True] * len(self.batch)
        return torch.tensor(ended, device=input_ids.device)


def default_device() -> str:
    """The GPU of this rank (`LOCAL_RANK`) if there is one, else the CPU."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"


def collate(rows: Sequence[dict[str, torch.Tensor]], pad_token: int) -> dict[str, torch.Tensor]:
    """Put prepared requests into one batch.

    What is laid out like the tokens (`[1, length]`) is padded on the left; everything else (pixels, image grids)
    belongs to images and is put end to end, in order.

    Args:
        rows: processor outputs of single requests; a row without images lacks the keys of images.
        pad_token: pads `input_ids`; other token-shaped inputs, the attention mask among them, are padded with 0.

    Returns:
        `input_ids` and the like of shape `[len(rows), longest]`, image inputs of the summed first dimension.
    """
    longest = max(row["input_ids"].shape[1] for row in rows)
    keys = dict.fromkeys(key for row in rows for key in row)
    batch: dict[str, torch.Tensor] = {}
    for key in keys:
        have = [row for row in rows if key in row]
        if all(row[key].shape[:2] == row["input_ids"].shape for row in have):
            fill = pad_token if key == "input_ids" else 0
            example = have[0][key]
            batch[key] = example.new_full((len(rows), longest), fill)
            for index, row in enumerate(rows):
                if key in row:
                    batch[key][index, longest - row[key].shape[1] :] = row[key][0]
        else:
            batch[key] = torch.cat([row[key] for row in have])
    return batch


def _is_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or Path(model).exists() or model.count("/") > 1


def _special_tokens(model: Any, tokenizer: Any) -> tuple[set[int], int]:
    """The tokens that end a turn, and the token to pad with."""
    ends = model.generation_config.eos_token_id
    end_tokens = set(ends if isinstance(ends, list) else [ends]) - {None}
    if not end_tokens:
        end_tokens = {tokenizer.eos_token_id} - {None}
    if not end_tokens:
        raise ValueError("the checkpoint names no end-of-turn token (eos_token_id)")
    pad = tokenizer.pad_token_id
    return end_tokens, int(pad if pad is not None else min(end_tokens))


def _limit_pixels(processor: Any, min_pixels: int | None, max_pixels: int | None) -> None:
    if min_pixels is None and max_pixels is None:
        return
    size = dict(getattr(processor.image_processor, "size", None) or {})
    if not {"shortest_edge", "longest_edge"} <= size.keys():
        raise ValueError("min_pixels and max_pixels do not apply: this model's processor has no limits on pixels")
    limits = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    processor.image_processor.size = {**size, **{key: value for key, value in limits.items() if value is not None}}


def _succeed(future: asyncio.Future[Completion], completion: Completion) -> None:
    if not future.done():
        future.set_result(completion)


def _fail(future: asyncio.Future[Completion], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
