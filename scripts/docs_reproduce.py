"""Put the plan of `mai reproduce`, and what it prints for the tiny pair, into docs/reproduce.md.

Everything lands in out/reproduce-toy.  With --keep the runs that are there are shown instead of being made anew.
"""

from __future__ import annotations

import shutil
import sys

from docs_report import shell
from docs_tables import ROOT, put

from mai_plugin.tiny.charts import chart_questions
from mai_plugin.tiny.datasets import write_benchmark

OUT = ROOT / "out" / "reproduce-toy"
PAGE = ROOT / "docs" / "reproduce.md"
QUESTIONS = 100
PLAN = "mai reproduce --dry-run"
TOY = (
    "mai reproduce --tables 10,11,15 --benchmarks ChartQA --limit 100 --models 2B=mai-tiny-small,8B=mai-tiny-large "
    "--max-reasoning-tokens 64"
)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    if "--keep" not in sys.argv:
        shutil.rmtree(OUT / "out", ignore_errors=True)
    write_benchmark("chartqa", OUT, chart_questions(QUESTIONS, 2026))
    table, _, commands = shell(PLAN, OUT).partition("\n# ")
    put(PAGE, "plan", f"```\n$ {PLAN}\n\n{table.strip()}\n```")
    last = "# " + commands.split("\n# ")[-1]
    put(PAGE, "command", f"```\n...\n{last}\n```")
    put(PAGE, "toy", f"```\n$ {TOY}\n\n{shell(TOY, OUT)}\n```")


if __name__ == "__main__":
    main()
