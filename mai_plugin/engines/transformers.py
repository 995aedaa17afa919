"""Hugging Face transformers: any `AutoModelForImageTextToText`, on a CPU or a GPU, requests gathered into batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from mai_plugin.core.records import Completion, Message, Request, Sparse
from mai_plugin.engines import checkpoint
from mai_plugin.engines.attention.rows import decoder_layers
from mai_plugin.engines.attention.select import select
from mai_plugin.engines.base import EngineError, hf_messages
from mai_plugin.engines.speculative import Assistant


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
        assistant_model: a small model that drafts for this one, see `speculative`; then `batch_size` is 1.
        assistant_args: its `device`, `dtype` and the like, where they are others than this model's.
        first_layers: load no more layers than a selection by this one needs (its number, or its share of the depth);
            nothing can be generated.

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
        assistant_model: str | None = None,
        assistant_args: Mapping[str, Any] | None = None,
        first_layers: int | float | None = None,
    ) -> None:
        counts = {"batch_size": batch_size, "num_threads": num_threads}
        counts |= {"min_pixels": min_pixels, "max_pixels": max_pixels}
        for key, count in counts.items():
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"{key} {count!r} must be a whole number, at least 1")
        if num_threads:
            torch.set_num_threads(num_threads)
        self.name = model
        self.batch_size = 1 if assistant_model else batch_size  # transformers drafts for one prompt at a time
        self.device = checkpoint.default_device() if device in (None, "cuda") else device
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        self.processor = checkpoint.load_processor(model, **source)
        self.model = checkpoint.load_model(
            model,
            device=self.device,
            dtype=dtype,
            attn_implementation=attn_implementation,
            first_layers=None if first_layers is None else lambda depth: Sparse(first_layers).layer_of(depth) + 1,
            **source,
        )
        self.depth = checkpoint.read_depth(model, **source)
        self.only_selects = first_layers is not None
        self.tokenizer = self.processor.tokenizer
        checkpoint.limit_pixels(self.processor, min_pixels, max_pixels)
        self.context = int(self.model.config.get_text_config().max_position_embeddings)
        self.assistant: Assistant | None = None
        if not self.only_selects:
            self.end_tokens, self.pad_token = checkpoint.decode_greedily(self.model, self.tokenizer)
            if assistant_model:
                self.assistant = Assistant(
                    assistant_model, {**source, "dtype": dtype, **(assistant_args or {})}, self.model, self.device
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
        if self.only_selects and not request.sparse:
            raise EngineError(f"of {self.name} only the first layers are loaded: it can select but not generate")
        loop = asyncio.get_running_loop()
        arrived = time.perf_counter()
        self._preparing += 1
        try:
            inputs = await loop.run_in_executor(self._processor_thread, self._prepare, request.messages)
        finally:
            self._preparing -= 1
            self._changed.set()
        limit = min(request.max_tokens, self._room(inputs))
        job = _Job(request, arrived, inputs, limit, loop.create_future())
        self._waiting.append(job)
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = loop.create_task(self._serve())
        try:
            return await job.done
        finally:
            if job in self._waiting:  # cancelled before it ran
                self._waiting.remove(job)

    def check_selection(self, sparse: Sparse) -> None:
        """Refuse a selection that this model cannot make, before questions have been answered up to it.

        Raises:
            ValueError: the layer does not exist, or the model's layers are not accessible.
        """
        sparse.layer_of(self.depth)
        decoder_layers(self.model)

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
        """The oldest waiting request and others of its lane: short answers do not wait behind reasoning."""
        if not self._waiting:
            return []
        lane = self._waiting[0].request.lane
        batch = [job for job in self._waiting if job.request.lane == lane][: self.batch_size]
        for job in batch:
            self._waiting.remove(job)
        return batch

    def _use_device(self) -> None:
        if self.device.startswith("cuda:"):  # kernels that are not torch's own ask for the thread's current device
            torch.cuda.set_device(self.device)

    def inputs(self, messages: Sequence[Message]) -> dict[str, torch.Tensor]:
        """One prompt as the model takes it, on the model's device: for those who call the model themselves.

        Raises:
            EngineError: as `generate`.
        """
        inputs = self._prepare(messages)
        self._room(inputs)
        return self._on_device(inputs)

    def _room(self, inputs: Mapping[str, torch.Tensor]) -> int:
        """How many tokens the context has room for behind a prompt."""
        tokens = int(inputs["input_ids"].shape[1])
        if tokens >= self.context:
            raise EngineError(
                f"the prompt's {tokens} tokens do not fit the context of {self.context} tokens of {self.name}"
            )
        return self.context - tokens

    def _prepare(self, messages: Sequence[Message]) -> dict[str, torch.Tensor]:
        """Chat template, image preprocessing and tokens of one prompt."""
        try:
            inputs = self.processor.apply_chat_template(
                hf_messages(messages),
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
                self._work(batch[0])(batch, loop)
        except Exception as error:
            if len(batch) > 1 and not self._closed.is_set():
                torch.cuda.empty_cache() if torch.cuda.is_available() else None
                self._run(batch[: len(batch) // 2], loop)
                self._run(batch[len(batch) // 2 :], loop)
                return
            reason = " ".join(str(error).split()) or type(error).__name__
            failed = EngineError(f"{self.name} failed on {batch[0].prompt_tokens} prompt tokens: {reason}")
            loop.call_soon_threadsafe(_fail, batch[0].done, failed)

    def _work(self, job: _Job) -> Callable[[list[_Job], asyncio.AbstractEventLoop], None]:
        """What is to be done with a batch that begins with this request."""
        if job.request.sparse:
            return self._select
        return self._generate_assisted if self.assistant else self._generate

    def _on_device(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        device = self.model.device
        return {
            key: value.to(device, dtype=self.model.dtype) if value.is_floating_point() else value.to(device)
            for key, value in inputs.items()
        }

    def _select(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        """Selections, one by one: each is a prefill of some layers, which fills the device by itself."""
        for job in batch:
            if self._closed.is_set():
                return
            sparse = job.request.sparse
            assert sparse is not None
            kept = select(
                self.model, self.processor, job.request.messages, self._on_device(job.inputs),
                sparse.layer_of(self.depth), sparse.keep, sparse.by,
            )  # fmt: skip
            seconds = time.perf_counter() - job.arrived
            completion = Completion(
                text=kept.text,
                prompt_tokens=job.prompt_tokens,
                ttft_s=seconds,
                e2e_s=seconds,
                details={"full_tokens": kept.full_tokens, "kept_tokens": kept.kept_tokens},
            )
            loop.call_soon_threadsafe(_succeed, job.done, completion)

    def _generate_assisted(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        assert self.assistant is not None
        (job,) = batch
        written = self.assistant.write(self._on_device(job.inputs), job.max_tokens, self._closed)
        stopped = bool(written.tokens) and written.tokens[-1] in self.end_tokens
        if self._closed.is_set():
            return
        completion = Completion(
            text=self.tokenizer.decode(written.tokens, skip_special_tokens=True),
            prompt_tokens=job.prompt_tokens,
            output_tokens=len(written.tokens),
            ttft_s=written.first_token_s - job.arrived,
            e2e_s=time.perf_counter() - job.arrived,
            finish_reason="stop" if stopped else "length",
            details={"drafted_tokens": written.drafted_tokens, "accepted_tokens": written.accepted_tokens},
        )
        loop.call_soon_threadsafe(_succeed, job.done, completion)

    def _generate(self, batch: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        inputs = self._on_device(collate([job.inputs for job in batch], self.pad_token))
        watch = _Watch(self, batch, loop, inputs["input_ids"].shape[1])
        self.model.generate(
            **inputs,
            max_new_tokens=max(job.max_tokens for job in batch),
            stopping_criteria=StoppingCriteriaList([watch]),
        )


class _Watch(StoppingCriteria):  # type: ignore[misc]
    """Looks at a batch after every token: returns the rows that have ended, and stops those at their limit."""

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


def _succeed(future: asyncio.Future[Completion], completion: Completion) -> None:
    if not future.done():
        future.set_result(completion)


def _fail(future: asyncio.Future[Completion], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
