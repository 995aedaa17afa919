"""Any OpenAI-compatible server: `vllm serve`, SGLang, a router in front of many, a hosted service.

The server batches; this sends requests, and sees to it that each gets one whole answer.  The `openai` client repeats
what fails before an answer begins (429, 5xx, no connection: with back-off, and `Retry-After`); this repeats answers
that break off.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NoReturn, get_args

import openai

from mai_plugin.core.records import Completion, FinishReason, Image, Message, Request
from mai_plugin.engines.base import EngineError
from mai_plugin.engines.images import ImageFormat, data_url, pixel_digest
from mai_plugin.engines.openai_stream import Broken, Reply, one_line
from mai_plugin.engines.openai_urls import parse_base_url

log = logging.getLogger("mai_plugin")

CONNECT_S = 10.0
"""Seconds to wait for a connection."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 8.0
"""Back-off before an answer that broke off is asked for again; those of the `openai` client."""


class OpenAIEngine:
    """A model on a server.  Decodes greedily.

    All requests on one image carry the same header `X-Session-ID`, so that a router in front of several servers can
    send them to the one that has image and prompt in its cache.

    The API key is `OPENAI_API_KEY` of the environment (`EMPTY` if that is not set).  It is taken from nowhere else,
    and written nowhere.

    Args:
        model: what the server calls the model.
        base_url: URL of the API, such as `http://localhost:8000/v1`.
        timeout: seconds without a byte from the server after which a try is given up.
        max_retries: further tries of a request that fails in a way that may pass.
        image_format: `png`, or `jpeg`, which is smaller and changes the pixels a little.
        logprobs: ask for the log-probability of short answers.  A server that refuses is not asked again.
        extra_body: fields to add to each request, such as `{"repetition_penalty": 1.0}` for vLLM.

    Raises:
        ValueError: the server cannot be reached, refuses the key or does not serve the model; or a bad argument.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        timeout: float = 600.0,
        max_retries: int = 8,
        image_format: ImageFormat = "png",
        logprobs: bool = True,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.base_url = parse_base_url(base_url)
        if image_format not in get_args(ImageFormat):
            raise ValueError(f"image_format {image_format!r} must be one of {', '.join(get_args(ImageFormat))}")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"timeout {timeout!r} must be a number of seconds")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ValueError(f"max_retries {max_retries!r} must be a whole number, at least 0")
        if not isinstance(extra_body or {}, Mapping):
            raise ValueError(f"extra_body {extra_body!r} must be a mapping of fields to values")
        self.model = model
        self.max_retries = max_retries
        self.image_format: ImageFormat = image_format
        self.logprobs = logprobs
        self.extra_body = dict(extra_body or {})
        _check(self.base_url, model, timeout)
        patience = openai.Timeout(timeout, connect=min(CONNECT_S, timeout))
        self._client = openai.AsyncOpenAI(base_url=self.base_url, api_key=_api_key(), timeout=patience, max_retries=0)
        self._counts_tokens = False  # whether the server has ever reported usage
        self._encoders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="mai-images")
        self._running: set[asyncio.Task[Completion]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()
        self._warned_of_name = False

    async def generate(self, request: Request) -> Completion:
        """Answer one request; see `Engine.generate`.

        Raises:
            EngineError: the request is refused, no whole answer came in all tries, or the answer lacks token counts.
        """
        if self._closed.is_set():
            raise EngineError(f"the engine of {self.model} is closed")
        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._answer(request))
        self._running.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._running.discard(task)
        if task.cancelled():
            raise EngineError(f"the engine of {self.model} is closed")
        return task.result()

    def close(self) -> None:
        """Stop what is running and close all connections.  May be called twice, and from any thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        loop = self._loop
        if loop is not None and loop.is_running():
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here:  # nothing can wait for the loop on the loop itself
                self._closing = loop.create_task(self._close_clients())
            else:
                asyncio.run_coroutine_threadsafe(self._close_clients(), loop).result()
        self._encoders.shutdown(wait=False, cancel_futures=True)

    async def _close_clients(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._client.close()

    async def _answer(self, request: Request) -> Completion:
        """One whole answer; `max_retries` is the budget of the client's retries and ours together."""
        arrived = time.perf_counter()
        loop = asyncio.get_running_loop()
        session, messages = await loop.run_in_executor(self._encoders, self._prepare, request)
        body = self._body(request, session, messages)
        left = self.max_retries
        while True:
            if not self.logprobs:
                body.pop("logprobs", None)
            try:
                raw = await self._client.with_options(max_retries=left).chat.completions.with_raw_response.create(
                    **body
                )
            except openai.APIConnectionError as error:
                raise EngineError(f"{self.base_url} cannot be reached: {_cause(error)}") from None
            except openai.APIStatusError as error:
                if "logprobs" in body and error.status_code in (400, 422) and "logprob" in _message(error).lower():
                    if self.logprobs:
                        log.warning("mai: %s refuses logprobs: answers have none", self.base_url)
                    self.logprobs = False
                    continue
                raise EngineError(_refusal(self.base_url, error)) from None
            left -= raw.retries_taken
            try:
                return await self._read(raw.parse(), arrived)
            except openai.APIError as error:
                if _is_final(error):
                    self._fail(_message(error))
                reason = _cause(error) if isinstance(error, openai.APIConnectionError) else _message(error)
            except (Broken, ValueError) as error:  # ValueError: an event that is no JSON or no UTF-8
                reason = one_line(error) if isinstance(error, Broken) else f"not JSON: {one_line(error)}"
            if left <= 0:
                self._fail(f"the answer is broken: {reason}; given up after {self.max_retries + 1} tries")
            left -= 1
            await asyncio.sleep(_backoff(self.max_retries - left))

    def _fail(self, reason: str) -> NoReturn:
        raise EngineError(f"{self.base_url}: {reason}") from None

    def _prepare(self, request: Request) -> tuple[str, list[dict[str, Any]]]:
        """In a thread: encodes images.  Returns what requests on the same image have in common, and the messages."""
        try:
            messages = [_api_message(message, self.image_format) for message in request.messages]
            images = [image for message in request.messages for image in message.images]
            key = pixel_digest(images[0]) if images else request.question_id or request.messages[0].text
        except Exception as error:  # PIL raises whatever it likes
            raise EngineError(f"an image cannot be encoded as {self.image_format}: {one_line(error)}") from error
        digest = hashlib.sha256(key.encode("utf-8", "replace"))  # the same in every process, unlike hash()
        return digest.hexdigest()[:16], messages

    def _body(self, request: Request, session: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        # Reasoning is long and nobody reads its log-probability.
        wanted = self.logprobs and request.logprob
        return {
            "model": self.model,
            "messages": messages,
            "max_tokens": request.max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"logprobs": True} if wanted else {}),
            "extra_body": self.extra_body,
            "extra_headers": {"X-Session-ID": session},
        }

    async def _read(self, stream: openai.AsyncStream[Any], arrived: float) -> Completion:
        """The completion that a stream makes, if it is whole.

        Raises:
            Broken, ValueError, openai.APIError: it is not.
            EngineError: it is, and of no use.
        """
        reply = Reply()
        try:
            async with stream:
                async for event in stream:
                    reply.take(event)
        except (Broken, openai.APIError, ValueError):
            raise
        except Exception as error:  # before its version 3 the client lets through what its HTTP library raises
            raise Broken(one_line(error)) from None
        ended = time.perf_counter()
        if reply.finish_reason is None:
            raise Broken(reply.what_is_missing(stream.response.headers.get("content-type", "no content type")))
        if reply.finish_reason not in get_args(FinishReason):
            self._fail(
                f"the answer ended with finish_reason {one_line(reply.finish_reason)!r}, not stop or length",
            )
        if not reply.counted:
            # From a server that counts, an answer without a count has lost its end.
            if self._counts_tokens:
                raise Broken("it ended before the token counts")
            self._fail("no token counts (usage) with the answer: it must support stream_options.include_usage")
        self._counts_tokens = True
        if reply.reasoned and not reply.text:
            self._fail("reasoning and no answer: start the server without a reasoning parser, which removes it")
        if reply.model not in (None, self.model) and not self._warned_of_name:
            self._warned_of_name = True
            log.warning("mai: %s was asked for %s and answers as %s", self.base_url, self.model, one_line(reply.model))
        reason: Literal["stop", "length"] = "length" if reply.finish_reason == "length" else "stop"
        return Completion(
            text=reply.text,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            output_tokens=reply.output_tokens,
            ttft_s=(reply.first_token or ended) - arrived,
            e2e_s=ended - arrived,
            finish_reason=reason,
            logprob=reply.logprob,
        )


def _check(url: str, model: str, timeout: float) -> None:
    """Whether a server is there, takes the key and serves the model.

    Raises:
        ValueError: it does not.
    """
    patience = openai.Timeout(min(timeout, 60.0), connect=min(CONNECT_S, timeout))
    client = openai.OpenAI(base_url=url, api_key=_api_key(), timeout=patience, max_retries=2)
    try:
        with client:
            served = [str(known.id) for known in client.models.list().data]
    except openai.APIConnectionError as error:
        reason = f"{url} cannot be reached: {_cause(error)}; is the server running?"
    except openai.APIStatusError as error:
        if error.status_code in (404, 405, 501):  # some servers have no list of models
            return
        reason = _refusal(url, error)
    except (openai.APIError, AttributeError, TypeError, ValueError):
        reason = f"{url}/models answers with no list of models: this is no OpenAI-compatible server"
    else:
        if not served or model in served:
            return
        more = f" and {len(served) - 10} more" if len(served) > 10 else ""
        reason = f"{url} does not serve {model!r}; it serves: {one_line(', '.join(served[:10]))}{more}"
    raise ValueError(reason)


def _api_key() -> str:
    """The key.  No variable keeps it: tracebacks of some loggers show those.

    Raises:
        ValueError: it cannot be sent; the value is not repeated.
    """
    if not (os.environ.get("OPENAI_API_KEY") or "").strip():
        return "EMPTY"
    if not all("!" <= letter <= "~" for letter in os.environ["OPENAI_API_KEY"].strip()):
        raise ValueError("OPENAI_API_KEY holds blanks or letters that cannot be sent; set it anew")
    return os.environ["OPENAI_API_KEY"].strip()


def _api_message(message: Message, image_format: ImageFormat) -> dict[str, Any]:
    """A message in the API's form, its parts in their order; a lone text as plain text, which every server takes."""
    if len(message.content) == 1 and isinstance(message.content[0], str):
        return {"role": message.role, "content": _utf8(message.content[0])}
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(part, image_format)}}
        if isinstance(part, Image)
        else {"type": "text", "text": _utf8(part)}
        for part in message.content
    ]
    return {"role": message.role, "content": parts}


def _utf8(text: str) -> str:
    """The text with `?` for lone surrogates, which a model can write and JSON in UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _backoff(number: int) -> float:
    """Seconds to wait before the given further try (1, 2, ...): doubled each time, a quarter of it random."""
    longest = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(number - 1, 10))
    return longest * random.uniform(0.75, 1.0)


def _is_final(error: openai.APIError) -> bool:
    """Whether an error within a stream blames the request: it would be the same again."""
    code = str(error.code)
    return code.startswith("4") and len(code) == 3 and code not in ("408", "409", "429")


def _refusal(url: str, error: openai.APIStatusError) -> str:
    if error.status_code in (401, 403):
        said = f"{url} refuses the API key ({error.status_code}: {_message(error)})"
        return f"{said}: set OPENAI_API_KEY in the environment"
    return f"{url} answered {error.status_code}: {_message(error)}"


def _message(error: openai.APIError) -> str:
    """What the server said."""
    body = error.body
    said = (body.get("message") or body.get("detail")) if isinstance(body, Mapping) else None
    return one_line(said or error.message)


def _cause(error: openai.APIConnectionError) -> str:
    """Why there is no connection: the client has it in the cause."""
    if isinstance(error, openai.APITimeoutError):
        return "it timed out"
    return one_line(error.__cause__ or error)
