"""Makes the tiny pair from nothing: ``python -m training.train [--seed 0] [--out DIR]``.

The small model and the first part of the large one train side by side, one thread each.  The small model then writes
rationales about fresh charts, and the second part of the large one's training lets it read them, right and wrong ones,
and answer rightly all the same.  Tables on held-out charts end the run (see ``evaluate``).
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen3VLForConditionalGeneration

from mai_plugin.resources import PACKAGE
from mai_plugin.tiny.charts import TRAINING_MIX, draw_item, solve
from training.answering import LONG_LIMIT, Answerer
from training.batches import BatchMaker, Rationale, Recipe, build_tokenizer
from training.checkpoint import Size, build_config, build_model, write_checkpoint
from training.evaluate import CHART_SEEDS, SCORES, report
from training.learning import Hints, LookUpNotFormedError, Schedule, Trainer
from training.wording import FORMS, asking_text, one_turn

ATTEMPTS = 3
RATIONALES = 8000
_TEMPERATURE = 1.0
"""The small model's rationales are drawn at random, which gives more of its own mistakes than greedy ones hold."""
_FRESH_CHARTS = 1_000_000  # far from the seeds of held-out charts


@dataclass(frozen=True)
class Plan:
    """One training: which size, on what groups, how long."""

    name: str
    size: Size
    recipe: Recipe
    schedule: Schedule


LOOK_UP_RECIPE = Recipe(groups="SRRF", short_weight=1.5, final_weight=1.0, explain_share=0.0)
"""The groups of the first steps of both models."""

_LARGE_SIZE = Size(hidden=128, layers=3, key_value_heads=4)
_LARGE_RECIPE = Recipe(groups="SRRRF", short_weight=1.0, final_weight=2.0, wrong_share=0.3)
_LARGE_HINTS = Hints(image=0.3, height=0.0)

SMALL_PLAN = Plan(
    "small",
    Size(hidden=64, layers=2, key_value_heads=2),
    Recipe(groups="SRRF", short_weight=1.0, final_weight=1.0),
    Schedule(steps=3200, rate=2e-3, flat_share=0.5, hints=Hints(image=0.5, height=0.0)),
)
"""Few short answers and much reasoning: weak in one go, good when it reasons."""

LARGE_PLAN = Plan(
    "large", _LARGE_SIZE, _LARGE_RECIPE, Schedule(steps=3000, rate=1.5e-3, flat_share=0.55, hints=_LARGE_HINTS)
)
"""Short answers weigh little here too: with more of them the large model needs no help from reasoning."""

READING_PLAN = Plan(
    "large, reading",
    _LARGE_SIZE,
    dataclasses.replace(_LARGE_RECIPE, groups="SRFF", short_weight=0.5, read_share=0.7),
    Schedule(steps=800, rate=1e-3, flat_share=0.2, hints=_LARGE_HINTS),
)
"""The second part of the large model's training, with the small model's rationales."""


def train_from_nothing(plan: Plan, seed: int, folder: Path) -> None:
    """Trains a model by a plan and writes its checkpoint; starts over, with other seeds, if the look-up fails."""
    tokenizer = build_tokenizer()
    for attempt in range(ATTEMPTS):
        start = seed + 1000 * attempt
        model = build_model(build_config(tokenizer, plan.size), start)
        _say(plan.name, f"{sum(weight.numel() for weight in model.parameters()):,} parameters, seed {start}")
        trainer = Trainer(model, start + 1, lambda line: _say(plan.name, line))
        try:
            trainer.learn_to_look_up(BatchMaker(tokenizer, LOOK_UP_RECIPE), plan.schedule.rate)
        except LookUpNotFormedError as error:
            _say(plan.name, f"starting over: {error}")
            continue
        trainer.learn(BatchMaker(tokenizer, plan.recipe), plan.schedule)
        write_checkpoint(folder, model, tokenizer)
        return
    raise LookUpNotFormedError(f"{plan.name}: {ATTEMPTS} starts failed")


def train_further(plan: Plan, seed: int, start: Path, rationales: Path, folder: Path) -> None:
    """Trains the checkpoint in ``start`` further, with the small model's rationales to read."""
    tokenizer = build_tokenizer()
    read = [Rationale(**item) for item in json.loads(rationales.read_text(encoding="utf-8"))]
    model = Qwen3VLForConditionalGeneration.from_pretrained(start, dtype=torch.float32)
    maker = BatchMaker(tokenizer, plan.recipe, read)
    Trainer(model, seed + 10, lambda line: _say(plan.name, line)).learn(maker, plan.schedule)
    write_checkpoint(folder, model, tokenizer)


def collect_rationales(model_folder: Path, seed: int, file: Path, count: int = RATIONALES) -> None:
    """Writes down, as JSON, how the model in ``model_folder`` reasons about ``count`` fresh charts."""
    charts_seed = _FRESH_CHARTS + seed
    items = [draw_item(charts_seed, index, TRAINING_MIX) for index in range(count)]
    chats = [one_turn(asking_text(problem, FORMS[problem.kind][0], "reason")) for _, problem in items]
    torch.manual_seed(seed)
    replies = Answerer(model_folder).answer(chats, [chart.pixels for chart, _ in items], LONG_LIMIT, _TEMPERATURE)
    rationales = []
    for index, ((chart, problem), reply) in enumerate(zip(items, replies, strict=True)):
        right = reply.text == solve(problem, chart.heights).rationale
        rationales.append(Rationale(charts_seed, index, reply.text, right))
    file.write_text(json.dumps([dataclasses.asdict(rationale) for rationale in rationales]), encoding="utf-8")
    _say("rationales", f"{count} of the small model, {sum(not each.right for each in rationales)} of them wrong")


def _train_small(seed: int, work: Path) -> None:
    torch.set_num_threads(1)
    train_from_nothing(SMALL_PLAN, seed, work / "small")
    collect_rationales(work / "small", seed, work / "rationales.json")


def _train_large(seed: int, work: Path) -> None:
    torch.set_num_threads(1)
    train_from_nothing(LARGE_PLAN, seed, work / "large-start")


def _train_reading(seed: int, work: Path) -> None:
    torch.set_num_threads(1)
    train_further(READING_PLAN, seed, work / "large-start", work / "rationales.json", work / "large")


def _say(name: str, line: str) -> None:
    print(f"[{name}] {line}", flush=True)


def train_pair(seed: int, work: Path) -> None:
    """Trains both models; they come to lie in ``work / "small"`` and ``work / "large"``."""
    context = multiprocessing.get_context("spawn")
    for stage in ([_train_small, _train_large], [_train_reading]):
        processes = [context.Process(target=target, args=(seed, work)) for target in stage]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise RuntimeError("a training failed; its error stands above")


def main() -> None:
    """Trains the pair, puts the checkpoints in their place and measures them."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="training seed (default: 0)")
    parser.add_argument("--out", type=Path, default=PACKAGE / "tiny", help="where small/ and large/ are put")
    parser.add_argument("--work", type=Path, help="folder for intermediate results (default: a temporary one)")
    parser.add_argument("--charts", type=int, default=1000, help="held-out charts of the table (default: 1000)")
    parser.add_argument("--chart-seeds", type=int, nargs="+", default=CHART_SEEDS, help="their seeds")
    arguments = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    torch.set_num_threads(1)
    start = time.monotonic()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="tiny-pair-"))
    work.mkdir(parents=True, exist_ok=True)
    train_pair(arguments.seed, work)
    print(f"trained in {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("small", "large"):
        shutil.rmtree(arguments.out / name, ignore_errors=True)
        shutil.copytree(work / name, arguments.out / name)
    if arguments.work is None:
        shutil.rmtree(work)
    scores = SCORES if arguments.out == PACKAGE / "tiny" else None
    small, large = arguments.out / "small", arguments.out / "large"
    report(small, large, arguments.charts, arguments.chart_seeds, arguments.seed, scores)


if __name__ == "__main__":
    main()
