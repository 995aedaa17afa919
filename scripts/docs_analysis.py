"""Run sparse transfer and speculative decoding with the tiny pair, and fill docs/analysis.md.

Everything lands in out/analysis; the benchmarks' figures come from the last `make bench-sparse bench-speculative`.
With --keep the runs that are there are reported again instead of being made anew.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from docs_report import shell
from docs_tables import ROOT, put, table

from mai_plugin.demo import run_lmms_eval
from mai_plugin.paper.figures import paper
from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

PAGE = ROOT / "docs" / "analysis.md"
OUT = ROOT / "out" / "analysis"
QUESTIONS = 200
LAYERS = (0, 1, 2)
RUNS = {
    "transfer": ("mai_transfer", "preset=MAI-tiny", 16),
    **{f"sparse-{n}": ("mai_cascade", f"preset=MAI-tiny,strategy=sparse_transfer,layer={n}", 16) for n in LAYERS},
    "MAI": ("mai_cascade", "preset=MAI-tiny", 16),
    "MAI-sparse": ("mai_cascade", "preset=MAI-tiny,transfer=sparse", 16),
    "large-R": ("mai_single", "preset=tiny-large-R", 1),
    "speculative": ("mai_cascade", "preset=MAI-tiny,strategy=speculative", 1),
}
PRINTED = {
    "large-R, batch 1": "8B-R HF bs1", "speculative, batch 1": "speculative 8B+2B HF bs1",
    "large-R, batch 32": "8B-R vLLM bs32", "MAI, batch 32": "MAI 8B+2B vLLM bs32",
}  # fmt: skip


def evaluate() -> None:
    """Write the data and make every run, each call made anew so that its times are its own."""
    OUT.mkdir(parents=True, exist_ok=True)
    write_benchmark("chartqa", OUT, chart_questions(QUESTIONS, 2026))
    shutil.rmtree(OUT / "mai_runs", ignore_errors=True)
    for name, (model, args, batch) in RUNS.items():
        print(f"docs_analysis: {name}", flush=True)
        run_lmms_eval(OUT, model, f"{args},reuse=false", name, "chartqa", batch)


def report(key: str) -> str:
    """What `mai report` prints of one table."""
    (OUT / "report.json").unlink(missing_ok=True)
    shown = shell("mai report --json report.json", OUT)
    (title,) = (t["title"] for t in json.loads((OUT / "report.json").read_text("utf-8"))["tables"] if t["key"] == key)
    others = [t["title"] for t in json.loads((OUT / "report.json").read_text("utf-8"))["tables"]]
    body = shown[shown.index(title) :]
    ends = [body.index(other) for other in others if other != title and other in body]
    return f"```\n$ mai report\n...\n{body[: min(ends)].rstrip() if ends else body}\n```"


def bench(name: str) -> dict[str, Any]:
    file = ROOT / "out" / "bench" / f"{name}.json"
    if not file.is_file():
        raise SystemExit(f"docs_analysis: {file.relative_to(ROOT)} is missing: run `make bench-{name}` first")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def where(result: dict[str, Any]) -> str:
    machine = result["machine"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    versions = machine["versions"]
    packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers"))
    return f"{machine['cpu']}, {machine['cores']} cores, {gpus}; {packages}"


def layers() -> str:
    result = bench("sparse")
    questions = result["settings"]["questions"]
    rows = []
    for row in result["layers"]:
        full, kept = (row.get(key, 0) / questions for key in ("full_tokens", "kept_tokens"))
        rows.append([row["transfer"], f"{kept:.1f} of {full:.1f}" if full else "", f"{row['score']:.1f}"])
    return (
        f"{table(['', 'tokens passed on', 'score'], rows)}\n\n{questions} charts of another seed (`make bench-sparse`)."
    )


def costs() -> str:
    result = bench("sparse")
    rows = [
        [
            f"{cost['reasoning_tokens']:,} ({cost['prompt_tokens']:,})",
            f"{1000 * sorted(cost['seconds']['selection'])[len(cost['seconds']['selection']) // 2]:,.0f} ms",
            f"{1000 * sorted(cost['seconds']['prefill'])[len(cost['seconds']['prefill']) // 2]:,.0f} ms",
            f"{cost['selection_over_prefill']:.3f}",
        ]
        for cost in result["cost"]
    ]
    layers, layer = result["cost"][0]["layers"], result["cost"][0]["layer"]
    header = ["reasoning tokens (prompt)", f"selection at layer {layer} of {layers}", "whole prefill", "ratio"]
    memory = result["memory_mib"]
    rows_memory = [[f"{memory[key]:,} MiB" for key in ("selection", "prefill", "eager")]]
    grown = table(["selection", "prefill", "eager attention, `output_attentions=True`"], rows_memory)
    parts = (
        table(header, rows),
        "Growth of memory over 2,048 reasoning tokens:",
        grown,
        f"Measured on {where(result)}.",
    )
    return "\n\n".join(parts)


def speculative() -> str:
    result, printed = bench("speculative"), paper()["table12_chartqa_decoding"]
    rows = []
    for name, row in result["rows"].items():
        theirs = printed[PRINTED[name]]
        accepted = f"{result['acceptance_rate']:g} ({theirs['accept_rate']})" if "drafted_tokens" in row else ""
        with_s2 = f"{row['score_with_s2']:g} ({theirs['acc_with_s2']})" if "score_with_s2" in row else ""
        rows.append(
            [
                name, accepted, f"{row['total_s']:.3g} ({theirs['total_s']:,})",
                f"{row['speedup']:.2f} ({theirs['speedup']:g})", f"{row['score']:g} ({theirs['acc_without_s2']})",
                with_s2,
            ]
        )  # fmt: skip
    header = ["", "drafts accepted, %", "total, s", "speed-up", "score without S2", "score with S2"]
    return f"{table(header, rows)}\n\nMeasured on {where(result)}."


def main() -> None:
    if "--keep" not in sys.argv:
        evaluate()
    put(PAGE, "sparse", report("sparse"))
    put(PAGE, "speculative", report("speculative"))
    put(PAGE, "layers", layers())
    put(PAGE, "costs", costs())
    put(PAGE, "table12", speculative())


if __name__ == "__main__":
    main()
