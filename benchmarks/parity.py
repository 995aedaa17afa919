"""Whether one checkpoint answers the same through every engine: transformers, vLLM in process, and two vLLM servers.

The tiny pair in float32 on generated charts, S and R: the share of texts that differ from those of transformers, of
token counts that differ, and how much of the prompt each kind of call found in vLLM's prefix cache.  Then the cascade
through lmms-eval on each engine: the same score?  `make bench-parity`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import machine, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the servers that the tests start
from helpers.servers import vllm_servers

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Image, Message
from mai_plugin.demo import run_demo
from mai_plugin.engines.base import Engine, ModelSpec, close_engines, load_engines
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.settings import Settings
from mai_plugin.tiny.charts import chart_questions

PROMPTS = load_prompts()
Answers = dict[tuple[str, str, int], Call]


async def answers(engines: Mapping[str, Engine], count: int) -> Answers:
    """S, R and transfer of every chart, by both models (transfer: by the large one)."""
    agents = {role: Agent(role, engine.generate, PROMPTS, 256) for role, engine in engines.items()}
    limit = asyncio.Semaphore(64)

    async def one(index: int, question: Question) -> Answers:
        async with limit:
            small_s, large_s = await asyncio.gather(*(agent.ask(question, "S") for agent in agents.values()))
            small_r, large_r = await asyncio.gather(*(agent.ask(question, "R") for agent in agents.values()))
            final = await agents["large"].ask_after(question, small_r)
        calls = (small_s, large_s, small_r, large_r, final)
        return {(call.role, call.stage, index): call for call in calls}

    found: Answers = {}
    questions = []
    for index, chart in enumerate(chart_questions(count, 31337)):
        text = f"{chart.question}\nAnswer the question with a single word."
        questions.append(
            Question.from_messages(f"chartqa/{index}", [Message("user", (Image(chart.image), text))], 16, PROMPTS)
        )
    for part in await asyncio.gather(*(one(index, question) for index, question in enumerate(questions))):
        found |= part
    return found


def main() -> None:
    """Measure and write `out/bench/parity.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200)
    options = parser.parse_args()
    where = machine()
    found: dict[str, Answers] = {}
    demos: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with vllm_servers(folder) as urls:
            demos["openai"] = run_demo(folder / "openai", options.questions, engine="openai", base_urls=urls)
            models = {role: ModelSpec(f"mai-tiny-{role}", {"base_url": url}) for role, url in urls.items()}
            found["openai"] = _ask("openai", models, options.questions)
        for engine in ("transformers", "vllm"):
            demos[engine] = run_demo(folder / engine, options.questions, engine=engine)
            settings = Settings.from_args("mutual_verification", {"preset": "MAI-tiny", "engine": engine})
            models = {
                role: ModelSpec(str(SHIPPED_MODELS[spec.name]), spec.args) for role, spec in settings.models.items()
            }
            if engine == "transformers":
                models = {
                    role: ModelSpec(model.name, {**model.args, "batch_size": 16}) for role, model in models.items()
                }
            found[engine] = _ask(engine, models, options.questions)

    keys: dict[str, Any] = {}
    reference = found["transformers"]
    for engine in ("vllm", "openai"):
        ours = found[engine]
        for stage in ("S", "R", "final"):
            chosen = [key for key in reference if key[1] == stage]
            different = [key for key in chosen if ours[key].text != reference[key].text]
            keys[f"{engine}_{stage}_texts_differ"] = round(len(different) / len(chosen), 4)
            counts = [key for key in chosen if key not in different and _counts(ours[key]) != _counts(reference[key])]
            keys[f"{engine}_{stage}_counts_differ"] = round(len(counts) / len(chosen), 4)
    for stage, share in _cached(found["vllm"]).items():
        keys[f"vllm_{stage}_cached_share_of_prompt"] = share
    for engine, rows in demos.items():
        keys[f"{engine}_lmms_eval_scores"] = {row["name"]: row["score"] for row in rows}
    keys["lmms_eval_scores_equal"] = len({str(keys[f"{engine}_lmms_eval_scores"]) for engine in demos}) == 1
    write("parity", keys, {"settings": vars(options), "demos": demos}, where)


def _ask(engine: str, models: Mapping[str, ModelSpec], count: int) -> Answers:
    engines = load_engines(engine, models)
    try:
        return asyncio.run(answers(engines, count))
    finally:
        close_engines(engines)


def _counts(call: Call) -> tuple[int, int, str]:
    done = call.completion
    return done.prompt_tokens, done.output_tokens, done.finish_reason


def _cached(found: Answers) -> dict[str, float]:
    read: dict[str, int] = defaultdict(int)
    cached: dict[str, int] = defaultdict(int)
    for (_, stage, _), call in found.items():
        read[stage] += call.completion.prompt_tokens
        cached[stage] += call.completion.cached_tokens
    return {stage: round(cached[stage] / read[stage], 3) for stage in read}


if __name__ == "__main__":
    main()
