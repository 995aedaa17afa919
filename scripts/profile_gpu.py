"""The paper's tables 1 to 4 on one GPU, in under eight minutes: fills out/profile-gpu/, for docs/profile.md.

    python scripts/profile_gpu.py                   # further arguments go to `mai profile`, such as --device cuda:1

Qwen3-VL 2B, 4B and 8B of full depth with random weights, which are built on the GPU: nothing is downloaded.  At 20 ms a
step, as in the paper, a generation of 512 tokens takes ten seconds; with two at each of four shapes that is about four
minutes.  `--time-limit` ends the rest in time on a slower machine, with a line for each size left out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mai_plugin.cli import app

OUT = Path(__file__).parent.parent / "out" / "profile-gpu"
ARGUMENTS = [
    "profile", "Qwen3-VL-2B", "Qwen3-VL-4B", "Qwen3-VL-8B", "--weights", "random", "--device", "cuda",
    "--repeats", "5", "--max-seconds", "16", "--time-limit", "420", "--compare-paper",
    "--json", str(OUT / "profile.json"), "--csv", str(OUT / "tables"), "--plots", str(OUT),
]  # fmt: skip


def main() -> None:
    began = time.perf_counter()
    try:
        app([*ARGUMENTS, *sys.argv[1:]])
    finally:
        print(f"profile_gpu: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
