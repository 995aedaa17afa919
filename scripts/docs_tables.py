"""Put the tables of the last runs (out/demo/summary.json, mai_plugin/tiny/scores.json) into README.md and docs/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
MODELS = ("small", "large")
PRINTED, WIDEST = 150, 110
"""Width at which commands wrap their notes, and the width that a pasted table may take on a page."""
LEFT_OUT = {
    "Scores and output tokens": ["metric", "small", "large", "tokens per right answer"],
    "Compared with": ["metric", "n", "baseline", "test"],
    "The cascade: routes": ["n", *(f"{route} share" for route in ("agree-simple", "agree-reason", "transfer")),
                            "small-S", "small-R", "large-R-S2"],
    "Total time": ["engine", "s per question"],
    "Sparse transfer": ["benchmark", "by", "keep", "selections", "full tokens"],
    "Speculative decoding": ["s per question"],
    "Share of the reasoning's tokens": ["single heads, %"],
    "Tokens with the most weight": ["large + large-R: % of weight / % of tokens"],
    "What the weight is on": ["% of tokens", "by chance", "first, %", "other numbers", "other words", "other signs"],
    "The same by task": ["lift: other numbers", "rank / by chance"],
    "Break-even": ["source"],
    "Plan for": ["benchmarks"],
    "Table 10": ["benchmark", "difference", "its 95 % interval", "remarks"],
    "Table 11": ["benchmark", "95 % interval", "difference", "its 95 % interval", "remarks"],
    "Table 15": ["benchmark", "difference", "its 95 % interval", "remarks"],
}  # fmt: skip
"""What each terminal table's title begins with -> columns that are left out where the table is wider than `WIDEST`."""


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


def narrow(printed: str) -> str:
    """Printed output with columns of wide tables left out, and long lines wrapped.

    Raises:
        SystemExit: a table is still too wide.
    """
    out: list[str] = []
    rest = printed.split("\n")
    while rest:
        line = rest.pop(0)
        if rest and rest[0].strip() and set(rest[0].strip()) == {"\u2500"}:
            end = next((i for i, row in enumerate(rest) if not row.strip() or row == "```"), len(rest))
            title = next((above for above in reversed(out) if above.strip()), "")
            out += _narrow_table(title, [line, *rest[1:end]])
            rest = rest[end:]
        elif len(line) > WIDEST:
            command = line.startswith(("$ ", "lmms-eval "))
            while not command and rest and rest[0] and len(line.rpartition("\n")[2] + rest[0].split()[0]) >= PRINTED:
                line += "\n" + rest.pop(0)  # one note, wrapped by the terminal
            parts = wrap(line, WIDEST, break_long_words=False, break_on_hyphens=False)
            out += (" \\\n    " if command else "\n").join(parts).split("\n")
        else:
            out.append(line)
    return "\n".join(out)


def _narrow_table(title: str, rows: list[str]) -> list[str]:
    """A table's header and rows, with the rule between them."""
    width = max(map(len, rows))
    if width > WIDEST:
        rows = [row.ljust(width) for row in rows]
        gaps = re.finditer(" {3,}", "".join(" " if all(row[i] == " " for row in rows) else "x" for i in range(width)))
        starts, end = [1], width
        for gap in gaps:
            if gap.end() < width:
                starts.append(gap.end())
        spans = list(zip(starts, [*(start - 3 for start in starts[1:]), end], strict=True))
        drop = next((names for prefix, names in LEFT_OUT.items() if title.startswith(prefix)), [])
        spans = [(a, b) for a, b in spans if rows[0][a:b].strip() not in drop]
        rows = [" " + "   ".join(row[a:b] for a, b in spans).rstrip() for row in rows]
        width = max(map(len, rows))
    if width > WIDEST:
        raise SystemExit(f"docs_tables: {title!r} is {width} columns wide: name columns to leave out in LEFT_OUT")
    return [rows[0], " " + "\u2500" * (width - 1), *rows[1:]]


def put(page: Path, name: str, content: str) -> None:
    """Replace the text between the comments `<!-- name -->` and `<!-- /name -->`; printed output is narrowed."""
    if content.startswith("```"):
        content = narrow(content)
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"docs_tables: {page} has no <!-- {name} --> ... <!-- /{name} -->")
    page.write_text(pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text), encoding="utf-8")
    print(f"docs_tables: {page.relative_to(ROOT)}: {name}")


def args_table() -> str:
    """What `mai args --markdown` prints."""
    command = [sys.executable, "-m", "mai_plugin.cli", "args", "--markdown"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.rstrip()


def main() -> None:
    put(ROOT / "README.md", "args", args_table())
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
