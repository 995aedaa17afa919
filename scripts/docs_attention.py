"""Run `mai attention` on the tiny pair, and put what it prints, and one picture, into docs/attention.md.

Everything lands in out/attention.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from docs_tables import ROOT, put

OUT = ROOT / "out" / "attention"
PAGE = ROOT / "docs" / "attention.md"
COMMAND = "mai attention --charts 200"
PARTS = {
    "shares": "Share of the reasoning's tokens",
    "tokens": "Tokens with the most weight",
    "groups": "What the weight is on",
    "tasks": "The same by task",
}
"""What each table's title begins with, in their order."""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    words = [*COMMAND.split()[1:], "--plots", "pictures"]
    done = subprocess.run(
        [sys.executable, "-m", "mai_plugin.cli", *words], cwd=OUT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    printed = "\n".join(line.rstrip() for line in done.stdout.partition("\npictures/")[0].splitlines())
    places = [printed.index(title) for title in PARTS.values()]
    for name, start, end in zip(PARTS, places, [*places[1:], len(printed)], strict=True):
        command = f"$ {COMMAND}\n\n" if start == 0 else ""
        put(PAGE, name, f"```\n{command}{printed[start:end].strip()}\n```")
    shutil.copy(OUT / "pictures" / "attention_tokens.svg", ROOT / "docs" / "attention_tokens.svg")


if __name__ == "__main__":
    main()
