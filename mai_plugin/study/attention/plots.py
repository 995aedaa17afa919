"""Pictures of a study of attention, after the paper's figures 3 to 5 as its table 16 and its text tell of them."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mai_plugin.output.plots import BLUE, RED, WIDTH, Picture
from mai_plugin.study.attention.measures import shown
from mai_plugin.study.attention.study import READINGS, TOY, Study

_STYLES = {"small": (BLUE, "o", "-"), "large": (RED, "s", "--")}
_TOKEN_WIDTH = 0.2
"""Inches of a token in the picture of one question."""


def pictures(study: Study) -> list[Picture]:
    """The three pictures."""
    return [shares(study), heads(study), example(study)]


def shares(study: Study) -> Picture:
    """Share of tokens against layer, averaged over heads, with the quartiles of single heads (figure 3)."""
    figure = Figure(figsize=(0.75 * WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    for role, reading in study.readings.items():
        colour, marker, dashes = _STYLES[role]
        layers = reading.layers()
        numbers = [layer.layer for layer in layers]
        low, high = np.percentile([layer.head_shares for layer in layers], (25, 75), axis=1)
        axes.fill_between(numbers, 100 * low, 100 * high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            numbers, [100 * layer.share for layer in layers], color=colour, marker=marker, linestyle=dashes,
            markersize=5, label=READINGS[role],
        )  # fmt: skip
    axes.set_xlabel("layer of the large model")
    axes.set_ylabel("share of the reasoning's tokens, %")
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    caption = (
        f"Share of the reasoning's tokens that hold {study.keep:.0%} of its weight, averaged over heads; bands: the "
        f"middle half of single heads. {study.n:,} questions."
    )
    return Picture("attention_shares", caption + _toy(study), figure)


def heads(study: Study) -> Picture:
    """The same share for every head of every layer (figure 4)."""
    maps = {role: 100 * np.array([layer.head_shares for layer in reading.layers()])
            for role, reading in study.readings.items()}  # fmt: skip
    figure = Figure(figsize=(WIDTH, 1.6 + min(5.0, 0.4 * len(maps["small"]) + 1)), layout="constrained")
    for axes, (role, shares_of_heads) in zip(figure.subplots(1, 2, sharey=True), maps.items(), strict=True):
        top = max(float(one.max()) for one in maps.values())
        drawn = axes.imshow(shares_of_heads, aspect="auto", cmap="cividis", vmin=0, vmax=top, interpolation="nearest")
        axes.set_title(READINGS[role], fontsize=9)
        axes.set_xlabel("head")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
    figure.axes[0].set_ylabel("layer")
    figure.colorbar(drawn, ax=figure.axes, label="share of tokens, %")
    caption = (
        f"Share of the reasoning's tokens that hold {study.keep:.0%} of its weight, for each head by itself; "
        f"mean over {study.n:,} questions."
    )
    return Picture("attention_heads", caption + _toy(study), figure)


def example(study: Study) -> Picture:
    """One question's reasoning, token by token, with the weight at each layer (figure 5)."""
    readings = study.example.readings
    longest = max(len(reading.tokens) for reading in readings.values())
    layers = len(readings["small"].weights)
    size = (max(WIDTH, 1.5 + _TOKEN_WIDTH * longest), 1 + 2 * (1 + min(4.0, 0.25 * layers)))
    figure = Figure(figsize=size, layout="constrained")
    for axes, (role, reading) in zip(figure.subplots(2, 1), readings.items(), strict=True):
        drawn = axes.imshow(100 * reading.weights, aspect="auto", cmap="cividis", vmin=0, interpolation="nearest")
        labels = [_label(token) for token in reading.tokens]
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7, parse_math=False)
        axes.set_yticks(range(layers) if layers <= 12 else range(0, layers, 4))
        axes.set_ylabel("layer")
        axes.set_title(READINGS[role], fontsize=9)
        figure.colorbar(drawn, ax=axes, label="weight, %")
    # matplotlib takes what stands between dollars for mathematics, and SVG holds no control characters.
    question = " ".join(study.example.question.split())[:200].replace("$", r"\$")
    question = "".join(character if character.isprintable() else "?" for character in question)
    caption = f"Weight on each token of the reasoning, averaged over heads. {study.example.question_id}: {question}"
    return Picture("attention_tokens", caption + ("" if caption.endswith((".", "?")) else ".") + _toy(study), figure)


def _label(token: str) -> str:
    """A token as a tick: spaces and line breaks made visible where there is nothing else."""
    visible = {" ": "\u2423", "\n": "\u21b5"}
    return shown(token) if token.strip() else "".join(visible.get(character, "?") for character in token)


def _toy(study: Study) -> str:
    return f" {TOY}." if study.toy else ""
