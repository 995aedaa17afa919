"""Multi-agent inference for vision-language models, inside the harnesses that people evaluate with.

A small and a large model share one question: both answer briefly; if they agree, done; else the small one reasons,
and where that still disagrees the large one answers after reading that reasoning (arXiv 2604.04929).

    import mai_plugin as mai

    with mai.open("MAI-tiny") as pair:
        print(pair.ask("How many bars are there?", "chart.png"))

What is listed in `__all__` is the public API; each name is imported at its first use, so that importing this package
loads none of torch, transformers, vllm and the harnesses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Agree",
    "Answer",
    "Call",
    "Failure",
    "Image",
    "Message",
    "Models",
    "Outcome",
    "Question",
    "Session",
    "Settings",
    "__version__",
    "agree",
    "load_runs",
    "open",
    "strategies",
    "to_frame",
]

if TYPE_CHECKING:
    from mai_plugin.api import Answer, Models, open, to_frame
    from mai_plugin.core import strategies
    from mai_plugin.core.agent import Agent
    from mai_plugin.core.agreement import Agree, agree
    from mai_plugin.core.question import Question
    from mai_plugin.core.records import Call, Image, Message, Outcome
    from mai_plugin.run.runner import Failure
    from mai_plugin.run.session import Session
    from mai_plugin.run.stored import load_runs
    from mai_plugin.settings import Settings
else:
    _PLACES = {
        "Agent": "core.agent", "Agree": "core.agreement", "Answer": "api", "Call": "core.records",
        "Failure": "run.runner", "Image": "core.records", "Message": "core.records", "Models": "api",
        "Outcome": "core.records", "Question": "core.question", "Session": "run.session", "Settings": "settings",
        "agree": "core.agreement", "load_runs": "run.stored", "open": "api", "to_frame": "api",
    }  # fmt: skip

    def __getattr__(name: str) -> object:
        if name == "strategies":
            return import_module("mai_plugin.core.strategies")
        if name not in _PLACES:
            raise AttributeError(f"module 'mai_plugin' has no attribute {name!r}")
        return getattr(import_module(f"mai_plugin.{_PLACES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
