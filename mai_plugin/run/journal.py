"""A line per question, written as soon as it is answered: what was asked of whom, what they wrote, what was returned.

The harnesses keep no route, reasoning or cost per sample; this does.  And whatever becomes of a run, its answers are
on disk.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from mai_plugin.run.runner import Failure, Result

log = logging.getLogger("mai_plugin")


class Journal:
    """A JSON-lines file under `folder/name/`, one per run and rank.

    Raises:
        ValueError: the file cannot be made there.
    """

    def __init__(self, folder: Path, name: str) -> None:
        rank = f"-rank{os.environ['RANK']}" if int(os.environ.get("WORLD_SIZE", 1)) > 1 else ""
        stamp = datetime.now().strftime("%Y%m%d_%H%M%S_%f")
        self.path = folder / name.replace("/", "_") / f"{stamp}{rank}.jsonl"
        self._lock = threading.Lock()
        self.broken = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A lone surrogate, which a model can write, is kept as its JSON escape.
            self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ValueError(
                f"argument store={str(folder)!r}: {error}; give a folder to write to, or store=off"
            ) from error

    def write(self, result: Result, returned: str | None) -> None:
        """Add a result.  `returned` is the text that goes back to the harness, None for a failure.

        A journal that can be written no more (a full disk) does not stop the run: that is said once.
        """
        with self._lock:
            if self.broken:
                return
            try:
                self._file.write(json.dumps(_line(result, returned), ensure_ascii=False) + "\n")
                self._file.flush()
            except OSError as error:
                self.broken = True
                log.warning("mai: %s: %s; the run goes on, what follows is not kept", self.path, error)

    def close(self, discard: bool = False) -> None:
        """Close the file, and remove it if it is of no use.  May be called twice."""
        with suppress(OSError):
            self._file.close()
        if discard:
            self.path.unlink(missing_ok=True)


def _line(result: Result, returned: str | None) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"question": result.question_id, "error": str(result)}
    calls = [
        {
            "role": call.role,
            "stage": call.stage,
            "text": call.text,
            "answer": call.answer,
            "prompt_tokens": call.completion.prompt_tokens,
            "cached_tokens": call.completion.cached_tokens,
            "output_tokens": call.completion.output_tokens,
            "ttft_s": round(call.completion.ttft_s, 6),
            "e2e_s": round(call.completion.e2e_s, 6),
            "finish_reason": call.completion.finish_reason,
        }
        for call in result.calls
    ]
    return {"question": result.question_id, "route": result.route, "returned": returned, "calls": calls}
