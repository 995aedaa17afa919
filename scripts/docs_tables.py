"""Put the tables of the last runs (out/demo/summary.json, mai_plugin/tiny/scores.json) into README.md and docs/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 2) + ["---"], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def routes(counts: dict[str, int]) -> str:
    return ", ".join(f"{route} {count}" for route, count in counts.items()) if len(counts) > 1 else ""


def demo_table(rows: list[dict[str, Any]]) -> str:
    header = ["", "score", "output tokens, small", "output tokens, large", "seconds", "routes"]
    return markdown(
        header,
        [
            [
                row["name"],
                f"{row['score']:.1f}",
                f"{row['output_tokens']['small']:,}",
                f"{row['output_tokens']['large']:,}",
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
        parts.append(markdown(["form", "score", "tokens, small", "tokens, large", "routes"], rows) + "\n")
    return "\n".join(parts).rstrip()


def put(page: Path, name: str, table: str) -> None:
    """Replace what stands between the comments `<!-- name -->` and `<!-- /name -->`."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"docs_tables: {page} has no <!-- {name} --> ... <!-- /{name} -->")
    page.write_text(pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text), encoding="utf-8")
    print(f"docs_tables: {page.relative_to(ROOT)}: {name}")


def main() -> None:
    summary = ROOT / "out" / "demo" / "summary.json"
    if not summary.is_file():
        raise SystemExit("docs_tables: out/demo/summary.json is missing: run `make demo` first")
    put(ROOT / "README.md", "demo", demo_table(json.loads(summary.read_text(encoding="utf-8"))))
    scores = json.loads((ROOT / "mai_plugin" / "tiny" / "scores.json").read_text(encoding="utf-8"))
    put(ROOT / "docs" / "tiny-pair.md", "scores", tiny_tables(scores))


if __name__ == "__main__":
    main()
