"""How fast the cascade is on vLLM, and how far from what the engines allow.

A workload shaped like the paper's: routes as in table 10, output lengths as in table 5 (2B and 8B), scaled down in the
number of questions (MMMU: in lengths too), on random-weight models with forced lengths.  Lengths are spread around the
paper's means (log-normal, sigma 0.5; the paper prints means only).  In one process, with both engines resident:

- pipelined: the package's own runner and `mutual_verification`, single questions overlapping;
- staged:    all S calls of both models, then all R calls, then all transfer calls, each stage waiting for the last;
- bound:     the cascade's calls all offered at once, as if none depended on another;
- large_r:   the large model reasons on every question.

Each run has images of its own, so that no run finds another's in a cache.  `make bench-pipeline`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from common import machine, median, write
from PIL import Image as PILImage

from mai_plugin.core.agent import Agent
from mai_plugin.core.prompts import load_prompts
from mai_plugin.core.question import Question
from mai_plugin.core.records import Call, Completion, Image, Message, Outcome, Request
from mai_plugin.core.strategies import AGREE_REASON, AGREE_SIMPLE, TRANSFER, mutual_verification
from mai_plugin.engines.base import Engine, ModelSpec, close_engines, load_engines
from mai_plugin.run.runner import Item, run
from training.checkpoint import Size, build_config, build_model, train_tokenizer, write_checkpoint

# Narrow and deep: a decoding step costs much the same for one row as for sixty, as on a GPU, where it is the reading
# of the weights that takes the time.  Wide models would be bound by computing here, and prefill would weigh too much.
SIZES = {
    "small": Size(hidden=64, layers=6, key_value_heads=1),
    "large": Size(hidden=64, layers=12, key_value_heads=1),
}
PROMPTS = load_prompts()
QUESTION = "How many of the items in the picture are larger than the average of all items of their kind?"
SPREAD = 0.5
LENGTH_SCALE = {"ChartQA": 1.0, "POPE": 1.0, "MMMU": 4.0}
"""The paper's output lengths are divided by this."""
SEQUENCES = 64
"""Sequences that an engine decodes at once, and questions in flight."""


class Workload:
    """Questions with a route and forced output lengths each."""

    def __init__(self, shape: str, questions: int, scale: float, seed: int) -> None:
        paper = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
        counts = paper["table10_mai_2b_8b"][shape]
        lengths = paper["table5_output_tokens_qwen3vl"]
        means = {
            ("small", "S"): lengths["2B"][shape]["S"],
            ("small", "R"): lengths["2B"][shape]["R"],
            ("large", "S"): lengths["8B"][shape]["S"],
            ("large", "R"): lengths["8B"][shape]["R"],
            ("large", "final"): lengths["8B"][shape]["S"],
        }
        generator = random.Random(seed)
        reason = round(questions * counts["agree_r"] / counts["n"])
        transfer = round(questions * counts["transfer"] / counts["n"])
        routes = [AGREE_REASON] * reason + [TRANSFER] * transfer
        routes += [AGREE_SIMPLE] * (questions - len(routes))
        generator.shuffle(routes)
        self.shape = shape
        self.routes = {f"{shape}/{index}": route for index, route in enumerate(routes)}
        self.lengths = {
            (id, role, stage): max(1, round(mean / scale * generator.lognormvariate(-(SPREAD**2) / 2, SPREAD)))
            for id in self.routes
            for (role, stage), mean in means.items()
        }

    def questions(self, seed: int) -> list[Question]:
        """The questions, each with an image that no other run has."""
        noise = np.random.default_rng(seed)
        built = []
        for id in self.routes:
            pixels = noise.integers(0, 255, (96, 128, 3), dtype=np.uint8)
            text = f"{QUESTION}\nAnswer the question with a single word."
            message = Message("user", (Image(PILImage.fromarray(pixels)), text))
            built.append(Question.from_messages(id, [message], 64, PROMPTS))
        return built

    def agents(self, engines: dict[str, Engine]) -> dict[str, Agent]:
        """Both models, each call cut to the length that the workload gives it."""

        def forced(role: str) -> Callable[[Request], Awaitable[Completion]]:
            async def generate(request: Request) -> Completion:
                length = self.lengths[request.question_id, role, request.stage]
                return await engines[role].generate(replace(request, max_tokens=length))

            return generate

        return {role: Agent(role, forced(role), PROMPTS) for role in engines}

    async def cascade(self, question: Question, agents: dict[str, Agent]) -> Outcome:
        """The package's own strategy; agreement follows the workload's route instead of the nonsense answers."""
        asked = iter((AGREE_SIMPLE, AGREE_REASON))
        route = self.routes[question.id]
        return await mutual_verification(
            question, agents["small"], agents["large"], agreement=lambda *_: next(asked) == route
        )


async def pipelined(work: Workload, agents: dict[str, Agent], questions: list[Question]) -> list[Outcome]:
    """As the package runs it."""
    items = [Item(question.id, lambda question=question: question) for question in questions]  # type: ignore[misc]
    results = await run(items, lambda question: work.cascade(question, agents), concurrency=SEQUENCES)
    assert all(isinstance(result, Outcome) for result in results), results[0]
    return results  # type: ignore[return-value]


async def staged(work: Workload, agents: dict[str, Agent], questions: list[Question]) -> None:
    """Stage by stage; within a stage everything is offered at once."""
    small, large = agents["small"], agents["large"]
    await asyncio.gather(*(agent.ask(q, "S") for q in questions for agent in (small, large)))
    unsure = [question for question in questions if work.routes[question.id] != AGREE_SIMPLE]
    reasons = await asyncio.gather(*(small.ask(question, "R") for question in unsure))
    await asyncio.gather(
        *(large.ask_after(q, r) for q, r in zip(unsure, reasons, strict=True) if work.routes[q.id] == TRANSFER)
    )


async def bound(
    work: Workload, agents: dict[str, Agent], questions: list[Question], reasons: dict[str, Call]
) -> None:  # fmt: skip
    """The same calls at once; the reasoning to be read comes from an earlier run."""
    small, large = agents["small"], agents["large"]
    calls = [agent.ask(question, "S") for question in questions for agent in (small, large)]
    calls += [small.ask(q, "R") for q in questions if work.routes[q.id] != AGREE_SIMPLE]
    calls += [large.ask_after(q, reasons[q.id]) for q in questions if work.routes[q.id] == TRANSFER]
    await asyncio.gather(*calls)


async def large_r(agents: dict[str, Agent], questions: list[Question]) -> None:
    """The baseline that the cascade is to replace."""
    await asyncio.gather(*(agents["large"].ask(question, "R") for question in questions))


async def measure(engines: dict[str, Engine], work: Workload, repeats: int) -> dict[str, list[float]]:
    """Seconds of every mode, `repeats` times in turn, after a warm-up that is not counted."""
    agents = work.agents(engines)
    outcomes = await pipelined(work, agents, work.questions(seed=0))
    taken = {route: sum(o.route == route for o in outcomes) for route in dict.fromkeys(work.routes.values())}
    assert taken == {route: list(work.routes.values()).count(route) for route in taken}, taken
    reasons = {outcome.question_id: outcome.calls[2] for outcome in outcomes if outcome.route == TRANSFER}
    modes: dict[str, Callable[[list[Question]], Awaitable[object]]] = {
        "pipelined": lambda questions: pipelined(work, agents, questions),
        "staged": lambda questions: staged(work, agents, questions),
        "bound": lambda questions: bound(work, agents, questions, reasons),
        "large_r": lambda questions: large_r(agents, questions),
    }
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    for repeat in range(repeats):
        for index, (mode, go) in enumerate(modes.items()):
            questions = work.questions(seed=1 + repeat * len(modes) + index)
            started = time.perf_counter()
            await go(questions)
            seconds[mode].append(time.perf_counter() - started)
            print(f"{work.shape:8} {mode:10} {seconds[mode][-1]:7.2f} s", flush=True)
    return seconds


def random_pair(folder: Path) -> dict[str, Path]:
    """Two random-weight checkpoints; a step of the large one takes about twice as long."""
    tokenizer = train_tokenizer([QUESTION, "user\nassistant\nAnswer: 7"] * 4, 400)
    paths = {}
    for role, size in SIZES.items():
        paths[role] = folder / role
        write_checkpoint(paths[role], build_model(build_config(tokenizer, size), seed=0), tokenizer)
    return paths


def main() -> None:
    """Measure all shapes and write `out/bench/pipeline.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=256, help="per shape (MMMU: a quarter of it)")
    parser.add_argument("--shapes", default="ChartQA,POPE,MMMU")
    options = parser.parse_args()
    where = machine()
    args = {
        "dtype": "float32", "max_model_len": 4096, "max_num_seqs": SEQUENCES, "max_num_batched_tokens": 4096,
        "enforce_eager": True, "ignore_eos": True,
    }  # fmt: skip
    keys: dict[str, float] = {}
    seconds: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = random_pair(Path(folder))
        engines = load_engines("vllm", {role: ModelSpec(str(path), args) for role, path in paths.items()})
        try:
            with asyncio.Runner() as runner:
                for shape in options.shapes.split(","):
                    count = options.questions // 4 if shape == "MMMU" else options.questions
                    work = Workload(shape, count, LENGTH_SCALE[shape], seed=1)
                    taken = seconds[shape] = runner.run(measure(engines, work, options.repeats))
                    for over, under in (("pipelined", "bound"), ("staged", "pipelined"), ("large_r", "pipelined")):
                        ratio = median([a / b for a, b in zip(taken[over], taken[under], strict=True)])
                        keys[f"{over}_over_{under}_{shape.lower()}"] = ratio
        finally:
            close_engines(engines)
    plain = {f"{key}": keys[f"{key}_chartqa"] for key in ("pipelined_over_bound", "staged_over_pipelined")
             if f"{key}_chartqa" in keys}  # fmt: skip
    more = {
        "questions": options.questions,
        "repeats": options.repeats,
        "length_scale": LENGTH_SCALE,
        "engine_args": args,
    }
    write("pipeline", {**plain, **keys}, {"settings": more, "seconds": seconds}, where)


PAPER = Path(__file__).parent.parent / "mai_plugin" / "paper" / "paper.yaml"

if __name__ == "__main__":
    main()
