"""Draw docs/score_tokens.svg and fill README's table of the paper's results, from the printed figures alone.

Nothing here was measured by this package: scores, routes, mean lengths and seconds are those of `paper.yaml`.  The
paper prints no output tokens per question for transfer and MAI; they are worked out from its routes (table 10) and
mean lengths (table 5).
"""

from __future__ import annotations

from typing import Any

from docs_tables import ROOT, put, table
from matplotlib.figure import Figure

from mai_plugin.output.plots import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, WIDTH, Picture
from mai_plugin.paper.figures import SOURCE, paper

PANELS = ("POPE", "MMMU", "MMBench", "ChartQA", "InfoVQA")
"""The benchmarks of table 10."""
STYLES = {
    "2B-S": (SKY, "o"), "2B-R": (BLUE, "s"), "8B-S": (ORANGE, "^"), "8B-R": (RED, "D"),
    "full transfer": (PURPLE, "v"), "MAI": (GREEN, "*"),
}  # fmt: skip
CAPTION = (
    f"Qwen3-VL 2B and 8B: score against output tokens per question of all models. Figures printed by {SOURCE} (tables "
    "5, 8, 10), not measured here; tokens of transfer and MAI worked out from its routes and mean lengths."
)


def points(benchmark: str) -> dict[str, tuple[float, float]]:
    """Name to output tokens per question and score."""
    printed = paper()
    lengths, row = printed["table5_output_tokens_qwen3vl"], printed["table10_mai_2b_8b"][benchmark]
    small, large = lengths["2B"][benchmark], lengths["8B"][benchmark]
    reasoned, transferred = (row["agree_r"] + row["transfer"]) / row["n"], row["transfer"] / row["n"]
    two_stage = 0 if benchmark == "MMMU" else large["S"]  # the paper's 8B-R answers after reasoning, but for MMMU
    return {
        "2B-S": (small["S"], row["2B-S"]),
        "2B-R": (small["R"], row["2B-R"]),
        "8B-S": (large["S"], row["8B-S"]),
        "8B-R": (large["R"] + two_stage, printed["table8_transfer"]["8B-R"][benchmark]),
        "full transfer": (small["R"] + large["S"], row["full_transfer"]),
        "MAI": (small["S"] + large["S"] + reasoned * small["R"] + transferred * large["S"], row["final"]),
    }


def picture() -> Picture:
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for axes, benchmark in zip(panels, PANELS, strict=True):
        for name, (tokens, score) in points(benchmark).items():
            colour, marker = STYLES[name]
            size = 13 if name == "MAI" else 7
            axes.plot(tokens, score, marker, color=colour, markersize=size, markeredgecolor="black", label=name)
        axes.set(title=benchmark, xscale="log", xlim=(0.7, 4000), xticks=[1, 10, 100, 1000])
        axes.set_xticklabels(["1", "10", "100", "1k"])
        axes.minorticks_off()
        axes.margins(y=0.15)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("score, points")
    panels[len(PANELS) // 2].set_xlabel("output tokens per question, logarithmic")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), frameon=False)
    return Picture("score_tokens", CAPTION, figure)


def cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def results_table() -> str:
    """The headline figures as printed; tables 7 and 10 lack POPE and RealWorldQA, which tables 8 and 11 have."""
    printed = paper()
    scores, seconds = printed["table8_transfer"], printed["table11_total_s"]
    rows = []
    for benchmark, time in seconds.items():
        cascade: dict[str, Any] = printed["table10_mai_2b_8b"].get(benchmark, {})
        row = [scores["8B-S"][benchmark], scores["8B-R"][benchmark], cascade.get("full_transfer"), cascade.get("final")]
        row += [time["full_transfer"], time["mai"]]
        rows.append([benchmark, *(cell(value) for value in row), f"{time['speedup']:.2f}"])
    header = ["", "8B-S", "8B-R", "full transfer", "MAI", "full transfer, s", "MAI, s", "speed-up"]
    return table(header, rows)


def main() -> None:
    drawn = ROOT / "docs" / "score_tokens.svg"
    drawn.write_bytes(picture().svg())
    print(f"docs_picture: {drawn.relative_to(ROOT)}")
    put(ROOT / "README.md", "paper", results_table())


if __name__ == "__main__":
    main()
