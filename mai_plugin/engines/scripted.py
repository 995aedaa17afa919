"""An engine that answers from a script: for tests, replays and benchmarks of everything around a model.

A script is a JSON file, question id to stage to answer; `*` means any question or any stage:

    {"chartqa/0": {"S": "7", "R": "red 7.\\nAnswer: 7", "final": "7"},
     "chartqa/1": {"S": {"text": "8", "output_tokens": 2, "ttft_s": 0.05, "e2e_s": 0.2}},
     "chartqa/2": {"S": {"error": "out of memory"}},
     "*": {"*": "yes"}}
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from mai_plugin.core.records import Completion, Request
from mai_plugin.engines.base import EngineError


class ScriptedEngine:
    """Answers from a script, and takes the time that the script says.

    Args:
        model: a script file, or the script itself.
        latency_s: end-to-end time of an answer that gives none.
    """

    def __init__(self, model: str | Path | Mapping[str, Any], *, latency_s: float = 0.0) -> None:
        if isinstance(model, Mapping):
            script = model
        else:
            try:
                script = json.loads(Path(model).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ValueError(f"script {model}: {' '.join(str(error).split())}") from error
        if not isinstance(script, Mapping) or not all(isinstance(stages, Mapping) for stages in script.values()):
            raise ValueError(f"script {model}: must map question ids to a mapping of stages to answers")
        self.script = script
        self.latency_s = latency_s
        self.requests: deque[Request] = deque(maxlen=16)
        """The latest requests, for tests to look at; all of them would hold all images in memory."""

    by_question = True
    """It answers by question and stage, whatever the messages are."""

    @property
    def identity(self) -> str:
        """Its script's digest: equal scripts are the same model."""
        return f"script:{sha256(json.dumps(self.script, sort_keys=True).encode()).hexdigest()[:16]}"

    async def generate(self, request: Request) -> Completion:
        """The scripted answer.  Tokens that the script does not count are counted as words."""
        self.requests.append(request)
        stages = self.script.get(request.question_id, self.script.get("*", {}))
        answer = stages.get(request.stage, stages.get("*"))
        if answer is None:
            raise EngineError(f"the script has no answer for stage {request.stage!r} of {request.question_id!r}")
        fields = dict(answer) if isinstance(answer, Mapping) else {"text": answer}
        if "error" in fields:
            raise EngineError(str(fields["error"]))
        words = str(fields["text"]).split()
        tokens = min(len(words), request.max_tokens)
        seconds = float(fields.get("e2e_s", self.latency_s))
        if seconds:
            await asyncio.sleep(seconds)
        return Completion(
            text=str(fields["text"]),
            prompt_tokens=int(fields.get("prompt_tokens", sum(len(m.text.split()) for m in request.messages))),
            cached_tokens=int(fields.get("cached_tokens", 0)),
            output_tokens=int(fields.get("output_tokens", tokens)),
            ttft_s=float(fields.get("ttft_s", seconds / max(1, tokens))),
            e2e_s=seconds,
            finish_reason=fields.get("finish_reason", "stop"),
            logprob=fields.get("logprob"),
            details=fields.get("details", {}),
        )

    def close(self) -> None:
        """Nothing to free."""
