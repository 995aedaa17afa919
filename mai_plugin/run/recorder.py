"""What a session does with its call store: takes calls from it, keeps what is made, and writes runs and outcomes."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from mai_plugin.core.agent import Generate
from mai_plugin.core.records import Completion, Request
from mai_plugin.run.provenance import describe_environment, describe_settings
from mai_plugin.run.runner import Failure, Result
from mai_plugin.run.store import Store, request_key
from mai_plugin.settings import Settings

log = logging.getLogger("mai_plugin")
T = TypeVar("T")


class Recorder:
    """A call store in use by one session.

    Digests and SQLite have threads of their own, so that the event loop does not wait for them.  If the store cannot
    be written any more (a full disk), that is logged once and the run continues without it: calls are made and answers
    returned, and the run stays unfinished in the store.

    Args:
        path: the store's file.
        reuse: take calls from the store; False makes each anew.
        share_engines: take calls that other engines made, too.

    Raises:
        ValueError: the store cannot be opened, see `Store`.
    """

    def __init__(self, path: Path, reuse: bool = True, share_engines: bool = False) -> None:
        self.store = Store(path)
        self.reuse, self.share_engines = reuse, share_engines
        self.broken = False
        self.run_id: str | None = None
        # One writer: an outcome comes after its calls, and a run's end after its outcomes.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mai-store")
        self._digests = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="mai-digests")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def keeping(
        self, generate: Generate, engine: str, identity: Callable[[], str], by_question: bool = False
    ) -> Generate:
        """An engine's `generate`, with the store before and behind it.

        A call that is in the store is not made.  Of equal calls in flight one is made, and the others take it from
        the store when it is there: they are marked as reused too, since its cost was spent once.

        Args:
            generate: makes the calls.
            engine: what makes them, one of `ENGINES`.  A call of another engine is another one, unless the recorder
                shares engines: in bfloat16 two engines do not generate the same.
            identity: the model's, see `model_identity`.
            by_question: the engine answers by question and stage, whatever the messages are.
        """
        shared = None if self.share_engines else engine

        async def make(key: str, request: Request) -> Completion:
            done = await generate(request)
            id = await self._in_writer(self.store.add_call, key, identity(), engine, request, done)
            return replace(done, call_id=id)

        async def find_or_make(request: Request) -> Completion:
            asked = f"{request.question_id} {request.stage} " if by_question else ""
            loop = asyncio.get_running_loop()
            key = await loop.run_in_executor(self._digests, request_key, asked + identity(), request)
            if not self.reuse:
                return await make(key, request)
            lock = self._locks.setdefault(f"{engine} {key}", asyncio.Lock())
            async with lock:
                found = await self._in_writer(self.store.find, key, shared)
                if found is None:
                    return await make(key, request)
            return replace(found[1], reused=True, call_id=found[0])

        return find_or_make

    def begin(
        self,
        run_id: str,
        settings: Settings,
        identities: Mapping[str, str],
        tasks: list[str],
        harness: Mapping[str, Any],
        part_of: str | None,
        resumes: tuple[str, Sequence[str]] | None = None,
    ) -> None:
        """Open a run; `resumes` names an earlier one and the questions whose answers are taken over from it.

        Raises:
            ValueError: the store cannot be written.
        """
        described = describe_settings(settings, identities), describe_environment(tasks, harness)
        try:
            self._writer.submit(
                self.store.begin_run, run_id, settings.name, settings.strategy, settings.engine, *described, part_of
            ).result()
            if resumes:
                self._writer.submit(self.store.take_over, run_id, *resumes).result()
        except (sqlite3.Error, OSError) as error:
            raise ValueError(
                f"call store {self.store.path}: {error}; give another file (store=PATH), or store=off"
            ) from error
        self.run_id, self.broken = run_id, False

    def add(self, result: Result) -> Future[None]:
        """Store a question's outcome, without waiting for the disk: the future is done when it is there."""
        assert self.run_id is not None
        if isinstance(result, Failure):
            return self._writer.submit(
                self._attempt, self.store.add_failure, self.run_id, result.question_id, str(result)
            )
        return self._writer.submit(self._attempt, self.store.add_outcome, self.run_id, result, result.returned or "")

    def end(self, wall_s: float) -> None:
        """Close the run, once all outcomes are written; if some could not be, it stays unfinished."""
        self._writer.submit(self._attempt, self.store.end_run, self.run_id, wall_s).result()

    def close(self) -> None:
        """Write what waits, and close the store.  May be called twice."""
        self._digests.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
        self.store.close()

    async def _in_writer(self, action: Callable[..., T], *args: Any) -> T | None:
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._attempt, action, *args)

    def _attempt(self, action: Callable[..., T], *args: Any) -> T | None:
        """Do something with the store, unless it has failed before."""
        if self.broken:
            return None
        try:
            return action(*args)
        except (sqlite3.Error, OSError) as error:
            self.broken = True
            log.warning("mai: call store %s: %s; the run continues, what follows is not stored", self.store.path, error)
            return None
