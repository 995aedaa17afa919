"""`mai_single` with `engine=vllm` against lmms-eval's own `vllm` model: same checkpoint, task and engine arguments.

The large model of the tiny pair, short answers (S), task chartqa on generated charts, through lmms-eval's command line.
Timed is `generate_until`, from the first request to the last answer, models loaded and warm; both give the same score.
lmms-eval's model is run as it comes, and with its engine in its own process, and the faster of the two is what ours is
held against; it gets all requests as one batch.  `make bench-stock`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, median, write

from mai_plugin.harness.lmms_eval.command import Evaluation, results
from mai_plugin.resources import SHIPPED_MODELS
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

ENGINE_ARGS: dict[str, Any] = {
    "dtype": "float32", "max_model_len": 1024, "max_num_seqs": 64, "max_num_batched_tokens": 4096,
    "enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 64 << 20,
}  # fmt: skip
STOCK_ARGS = ",".join(f"{key}={value}" for key, value in ENGINE_ARGS.items())
MODEL = SHIPPED_MODELS["mai-tiny-large"]
VARIANTS = {
    "ours": ("mai_single", f"model={MODEL},prompt=S,engine=vllm,store=off,engine_args={json.dumps(ENGINE_ARGS)}", {}),
    "stock": ("vllm", f"model={MODEL},{STOCK_ARGS}", {}),
    "stock_in_process": ("vllm", f"model={MODEL},{STOCK_ARGS}", {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}),
}
WARM_UP = 16
TIMES = "generate_until.json"


def evaluate(name: str, folder: Path, count: int) -> tuple[float, float]:
    """Seconds and score of one run, in a process of its own."""
    model, model_args, more = VARIANTS[name]
    evaluation = Evaluation(model, model_args, ["chartqa"], count, Path("results") / name)
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", **more,
    }  # fmt: skip
    before = set((folder / evaluation.output).rglob("[0-9]*_results.json"))
    command = [sys.executable, str(Path(__file__).resolve()), "--timed", *evaluation.command()[1:]]
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    found = set((folder / evaluation.output).rglob("[0-9]*_results.json")) - before
    if not found:
        raise SystemExit(f"{name} wrote no results:\n{(folder / f'{name}.log').read_text(encoding='utf-8')[-3000:]}")
    score = results(found.pop())["results"]["chartqa"]["relaxed_overall,none"]
    return float(json.loads((folder / TIMES).read_text(encoding="utf-8"))), float(score)


def timed_lmms_eval(arguments: list[str]) -> None:
    """lmms-eval's command line, with the time of `generate_until` written to a file."""
    from lmms_eval.cli.dispatch import main as lmms_eval
    from lmms_eval.models.chat.vllm import VLLM

    from mai_plugin.harness.lmms_eval.model import MaiSingle

    for model in (MaiSingle, VLLM):
        original = model.generate_until

        def generate_until(self: Any, requests: list[Any], original: Any = original) -> Any:
            original(self, requests[-WARM_UP:])
            started = time.perf_counter()
            answers = original(self, requests)
            Path(TIMES).write_text(json.dumps(time.perf_counter() - started), encoding="utf-8")
            return answers

        model.generate_until = generate_until
    sys.argv = ["lmms-eval", *arguments]
    lmms_eval()


def main() -> None:
    """Measure and write `out/bench/against_stock.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=400)
    options = parser.parse_args()
    where = machine()
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    scores: dict[str, set[float]] = {name: set() for name in VARIANTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_benchmark("chartqa", folder, chart_questions(options.questions, 4242))
        for _ in range(options.repeats):
            for variant in VARIANTS:
                took, score = evaluate(variant, folder, options.questions)
                seconds[variant].append(took)
                scores[variant].add(score)
                print(f"{variant:17} {took:6.2f} s, score {score:.4f}", flush=True)
    best = min(("stock", "stock_in_process"), key=lambda variant: median(seconds[variant]))
    keys = {
        "ours_over_stock": median([a / b for a, b in zip(seconds["ours"], seconds[best], strict=True)]),
        "same_score": len(set.union(*scores.values())) == 1,
    }
    more = {"best_stock": best, "seconds": seconds, "scores": {key: sorted(value) for key, value in scores.items()}}
    write("against_stock", keys, {**more, "settings": {**vars(options), "engine_args": ENGINE_ARGS}}, where)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--timed"]:
        timed_lmms_eval(sys.argv[2:])
    else:
        main()
