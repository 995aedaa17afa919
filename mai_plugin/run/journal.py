"""A line per question, written as soon as it is answered: what was asked of whom, what they wrote, what was returned.

The harnesses keep no route, reasoning or cost per sample; this does.  And whatever becomes of a run, its answers are
on disk.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from mai_plugin.run.runner import Failure, Result


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
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"argument store={str(folder)!r}: {error}; give a folder to write to, or store=off"
            ) from error

    def write(self, result: Result, returned: str | None) -> None:
        """Add a result.  `returned` is the text that goes back to the harness, None for a failure."""
        with self._lock:
            self._file.write(json.dumps(_line(result, returned), ensure_ascii=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file.  May be called twice."""
        self._file.close()


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
