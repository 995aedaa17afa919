"""Sessions over scripted models, and questions for them."""

from __future__ import annotations

from pathlib import Path

from mai_plugin.core.records import Message
from mai_plugin.engines.base import Engine
from mai_plugin.engines.scripted import ScriptedEngine
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings

PROMPT = "How many?\nAnswer the question with a single word."


def settings(folder: Path, **args: object) -> Settings:
    return Settings.from_args(
        "mutual_verification", {"engine": "scripted", "small": "s", "large": "l", "store": str(folder), **args}
    )


def engines(small: dict[str, object], large: dict[str, object]) -> dict[str, Engine]:
    return {"small": ScriptedEngine(small), "large": ScriptedEngine(large)}  # type: ignore[dict-item]


def items(session: Session, *prompts: str) -> list[Item]:
    def item(index: int, prompt: str) -> Item:
        name = f"t/{index}"
        return Item(name, lambda: session.question(name, [Message("user", (prompt,))], 16))

    return [item(index, prompt) for index, prompt in enumerate(prompts)]
