"""Put the tables of the last runs (out/demo/summary.json, mai_plugin/tiny/scores.json) into README.md and docs/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
MODELS = ("small", "large")


def table(header: list[str], rows: list[list[str]], numbers: bool = True) -> str:
    """A Markdown table; columns between the first and the last hold numbers."""
    middle = "---:" if numbers else "---"
    lines = [header, ["---", *[middle] * (len(header) - 2), "---"], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def routes(counts: dict[str, int]) -> str:
    return ", ".join(f"{route} {count}" for route, count in counts.items()) if len(counts) > 1 else ""


def demo_table(rows: list[dict[str, Any]]) -> str:
    header = ["", "score", "output tokens, small", "output tokens, large", "output tokens", "seconds", "routes"]
    return table(
        header,
        [
            [
                row["name"],
                f"{row['score']:.1f}",
                f"{row['output_tokens']['small']:,}",
                f"{row['output_tokens']['large']:,}",
                f"{sum(row['output_tokens'].values()):,}",
                f"{row['wall_s']:.1f}",
                routes(row["routes"]),
            ]
            for row in rows
        ],
    )


def tiny_tables(scores: dict[str, Any]) -> str:
    parts = []
    for run in scores["runs"]:
        rows = [
            [
                name,
                f"{row['score']:.1f}",
                f"{row['output_tokens']['small']:.2f}",
                f"{row['output_tokens']['large']:.2f}",
                routes(row["routes"]),
            ]
            for name, row in run["rows"].items()
        ]
        parts.append(
            f"Training seed {run['training_seed']}, {run['n']:,} held-out charts of seed {run['chart_seed']}:\n"
        )
        parts.append(table(["form", "score", "tokens, small", "tokens, large", "routes"], rows) + "\n")
    return "\n".join(parts).rstrip()


def wordings() -> str:
    prompts = yaml.safe_load((ROOT / "mai_plugin" / "core" / "prompts.yaml").read_text(encoding="utf-8"))
    names = {"explain": "E", "reason": "R", "final": "final"}
    return table(
        ["", "kind", "wording"],
        [[name, kind, text] for key, name in names.items() for kind, text in prompts[key].items()],
        numbers=False,
    )


def tokens_table(scores: dict[str, Any]) -> str:
    rows = scores["runs"][0]["rows"]
    lines = [[name, *(f"{rows[f'{name}-{style}']['output_tokens'][name]:.1f}" for style in "SER")] for name in MODELS]
    return table(["model", "S", "E", "R"], lines)


BENCHMARKS = ("pipeline", "overhead", "against_stock", "parity", "vlmevalkit")


def bench_table() -> str:
    """Every figure of the last runs of the benchmarks, and where they ran."""
    files = {name: ROOT / "out" / "bench" / f"{name}.json" for name in BENCHMARKS}
    results = {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.is_file()}
    if not results:
        raise SystemExit("docs_tables: out/bench/ is empty: run `make bench` first")
    rows = [
        [name, key, f"{value:,}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)]
        for name, result in results.items()
        for key, value in result.items()
        if isinstance(value, float | int)
    ]
    machines = dict.fromkeys(f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in results.values())
    return f"{table(['benchmark', 'figure', 'value'], rows, numbers=False)}\n\nMeasured on: {'; '.join(machines)}."


def put(page: Path, name: str, content: str) -> None:
    """Replace what stands between the comments `<!-- name -->` and `<!-- /name -->`."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"docs_tables: {page} has no <!-- {name} --> ... <!-- /{name} -->")
    page.write_text(pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text), encoding="utf-8")
    print(f"docs_tables: {page.relative_to(ROOT)}: {name}")


def main() -> None:
    summary = ROOT / "out" / "demo" / "summary.json"
    if not summary.is_file():
        raise SystemExit("docs_tables: out/demo/summary.json is missing: run `make demo` first")
    rows = json.loads(summary.read_text(encoding="utf-8"))
    if {row["engine"] for row in rows} != {"transformers"}:
        raise SystemExit("docs_tables: the last demo ran on another engine: run `make demo` first")
    put(ROOT / "README.md", "demo", demo_table(rows))
    put(ROOT / "docs" / "engines.md", "bench", bench_table())
    scores = json.loads((ROOT / "mai_plugin" / "tiny" / "scores.json").read_text(encoding="utf-8"))
    put(ROOT / "docs" / "tiny-pair.md", "scores", tiny_tables(scores))
    put(ROOT / "docs" / "prompts.md", "tokens", tokens_table(scores))
    put(ROOT / "docs" / "prompts.md", "wordings", wordings())


if __name__ == "__main__":
    main()
