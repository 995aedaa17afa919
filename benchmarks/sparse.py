"""Sparse transfer: what it keeps per layer (paper: table 9), what a selection costs, and what memory it takes.

1. On the tiny pair and generated charts, every question by full transfer and by sparse transfer at each layer: score
   and tokens transferred; and with as many tokens drawn at random, or from the end.  Greedy, so one run each.  Toys.
2. A selection (attention of one token at the layer that stands at 16 of 36) over a prefill of the same prompt, at the
   width of Qwen3-VL-2B with random weights and a cut depth: medians of ratios, several times.
3. The same over 2,048 reasoning tokens: how much the process grows, against eager attention with
   `output_attentions=True`, each in a process of its own.

`make bench-sparse`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

import psutil
import torch
from common import machine, median, write
from rich.console import Console
from rich.table import Table

from mai_plugin.core.records import SelectBy, Sparse
from mai_plugin.engines.attention.rows import attention_rows
from mai_plugin.engines.checkpoint import read_depth
from mai_plugin.paper.figures import paper
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.study.profile.models import load, resolve
from mai_plugin.study.profile.parts import Parts
from mai_plugin.tiny.charts import chart_questions
from training.evaluate import Form, measure

PAIR = {"small": "mai-tiny-small", "large": "mai-tiny-large"}
IMAGE_SIDE = 512
AROUND = 96
"""Query, wordings and final question: tokens of the prompt that are neither image nor reasoning."""
METHODS = ("selection", "prefill", "eager")
MIB = 2**20


def per_layer(questions: int) -> list[dict[str, Any]]:
    """Score and tokens of full and sparse transfer on the tiny pair."""
    charts = chart_questions(questions, 4242)
    settings: list[tuple[str, dict[str, Any] | None]] = [("full", None)]
    settings += [
        (f"layer {layer}" + ("" if by == "attention" else f", {by}"), {"layer": layer, "select_by": by})
        for by in get_args(SelectBy)
        for layer in range(read_depth(str(SHIPPED_MODELS[PAIR["large"]])))
    ]
    rows = [{"transfer": "large-S", **measure(("single", {"model": PAIR["large"], "prompt": "S"}), charts, "large")}]
    for name, sparse in settings:
        form: Form = ("transfer", PAIR) if sparse is None else ("sparse_transfer", {**PAIR, **sparse})
        rows.append({"transfer": name, **measure(form, charts, "large")})
    return rows


class Model:
    """A model of Qwen3-VL-2B's width with random weights, and a prompt for it."""

    def __init__(self, layers: int, reasoning: int, attention: str = "sdpa") -> None:
        (source,) = resolve(["Qwen3-VL-2B"], "random", layers, 2)
        self.model, processor = load(source, "cuda:0" if torch.cuda.is_available() else "cpu", "float32")
        self.model.set_attn_implementation(attention)
        parts = Parts(self.model, processor)
        self.inputs = parts.prompt(parts.pixels(parts.preprocess(parts.image(IMAGE_SIDE))), AROUND + reasoning)
        self.layer = Sparse().layer_of(layers)
        self.tokens = self.inputs["input_ids"].shape[1]

    @torch.inference_mode()
    def run(self, method: str) -> None:
        """Once, to its end."""
        if method == "selection":
            attention_rows(self.model, self.inputs, [self.layer])
        elif method == "prefill":
            self.model(**self.inputs, use_cache=True, logits_to_keep=1)
        else:
            self.model(**self.inputs, use_cache=False, logits_to_keep=1, output_attentions=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def cost(layers: int, reasoning: int, repeats: int) -> dict[str, Any]:
    """Seconds of a selection and of a prefill, in turns."""
    model = Model(layers, reasoning)
    seconds: dict[str, list[float]] = {"selection": [], "prefill": []}
    for method in seconds:
        model.run(method)
    for _ in range(repeats):
        for method, times in seconds.items():
            started = time.perf_counter()
            model.run(method)
            times.append(time.perf_counter() - started)
    ratio = median([a / b for a, b in zip(seconds["selection"], seconds["prefill"], strict=True)])
    print(f"{reasoning} reasoning tokens, {model.tokens} in all: selection / prefill {ratio}", flush=True)
    return {
        "reasoning_tokens": reasoning, "prompt_tokens": model.tokens, "layer": model.layer, "layers": layers,
        "selection_over_prefill": ratio, "seconds": seconds,
    }  # fmt: skip


def growth(method: str, layers: int, reasoning: int) -> int:
    """MiB by which memory grows while a method runs, its model loaded and warm."""
    model = Model(layers, reasoning, "eager" if method == "eager" else "sdpa")
    whole, model.inputs = model.inputs, Model(layers, 16).inputs
    model.run(method)
    model.inputs = whole
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model.run(method)
        return int(torch.cuda.max_memory_allocated() - before) // MIB
    return peak(lambda: model.run(method)) // MIB


def peak(action: Callable[[], None]) -> int:
    """Bytes by which this process grows at most, looked at every 2 ms."""
    process = psutil.Process()
    before, highest, done = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            highest[0] = max(highest[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    action()
    done.set()
    watcher.join()
    return highest[0] - before


def memory(layers: int, reasoning: int) -> dict[str, int]:
    """MiB of each method, each in a process of its own."""
    found = {}
    for method in METHODS:
        command = [sys.executable, __file__, "--growth", method, str(layers), str(reasoning)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{method}: {done.stderr[-2000:]}")
        found[method] = int(done.stdout.split()[-1])
        print(f"{method:10} {found[method]:6,} MiB", flush=True)
    return found


def show(rows: Sequence[dict[str, Any]], questions: int) -> None:
    """The layers, and what the paper printed for its own."""
    table = Table("transfer", "score", "full tokens", "kept tokens", "kept", title="Tiny pair (toys)")
    for row in rows:
        full, kept = (row.get(key, 0) / questions for key in ("full_tokens", "kept_tokens"))
        counts = (f"{full:.1f}", f"{kept:.1f}", f"{kept / full:.1%}") if full else ("", "", "")
        table.add_row(row["transfer"], f"{row['score']:.1f}", *counts)
    console = Console()
    console.print(table)
    printed = paper()["table9_sparse_transfer_pope"]
    layers = ", ".join(f"{layer}: {row['f1']} ({row['tokens']})" for layer, row in printed["layers"].items())
    console.print(
        f"paper, POPE, F1 (tokens kept of {printed['full']['tokens']}): {layers}; full {printed['full']['f1']}"
    )


def main() -> None:
    """Measure and write `out/bench/sparse.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layers", type=int, default=9, help="decoder layers of the model whose cost is measured")
    options = parser.parse_args()
    where = machine()
    rows = per_layer(options.questions)
    costs = [cost(options.layers, reasoning, options.repeats) for reasoning in (256, 2048)]
    grown = memory(options.layers, 2048)
    show(rows, options.questions)
    keys = {
        "selection_over_prefill_256": costs[0]["selection_over_prefill"],
        "selection_over_prefill_2048": costs[1]["selection_over_prefill"],
        "selection_memory_mib": grown["selection"],
        "prefill_memory_mib": grown["prefill"],
        "eager_memory_mib": grown["eager"],
    }
    write("sparse", keys, {"layers": rows, "cost": costs, "memory_mib": grown, "settings": vars(options)}, where)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--growth"]:
        print(growth(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main()
