"""Profiles made by hand."""

from __future__ import annotations

from mai_plugin.study.profile.result import DECODING, PREPROCESSING, TTFT, VISION, Model, Profile, Row

ENVIRONMENT = {
    "device": "cuda:0", "device_name": "Some GPU", "dtype": "bfloat16", "threads": 4, "cpu": "Some CPU", "cpus": 4,
    "seed": 0, "python": "3.11", "versions": {"torch": "2.13", "torchvision": "0.28", "transformers": "5.19"},
}  # fmt: skip


def model(name: str, layers: int | None = None, vision: int | None = None, parameters: int = 2_000_000_000) -> Model:
    whole, whole_vision = (36, 27) if "8B" in name else (28, 24)
    cut = f" ({layers} of {whole} layers)" if layers else ""
    return Model(
        f"{name}{cut}", name, "random", parameters, layers or whole, whole, vision or whole_vision, whole_vision
    )


def row(
    label: str,
    part: str,
    ms: float,
    side: int = 256,
    query: int | None = None,
    output: int | None = None,
    batch: int = 1,
) -> Row:
    return Row(label, part, side, (side // 32) ** 2, query, output, batch, ms, ms - 1, ms + 2, 5)


def linear(label: str, a: float, b: float, query: int = 64, batch: int = 1) -> list[Row]:
    """Decode rows on a line."""
    return [row(label, DECODING, a + b * n, 256, query, n, batch) for n in (8, 128, 256, 512)]


def pair(layers: int | None = None, vision: int | None = None) -> Profile:
    """2B decodes in 10 + 10 n ms, 8B in 20 + 25 n."""
    small = model("Qwen3-VL-2B", layers, vision)
    large = model("Qwen3-VL-8B", layers, vision, 8_000_000_000)
    rows = []
    for of in (large, small):
        label = of.label
        rows += [row(label, PREPROCESSING, 2.0), row(label, VISION, 12.0), row(label, VISION, 11.0, 300)]
        rows += [row(label, TTFT, 30.0, query=64), row(label, TTFT, 31.0, query=65)]
    rows += [*linear(large.label, 20, 25), *linear(small.label, 10, 10)]
    rows += [row(small.label, TTFT, 40.0, query=64, batch=4), *linear(small.label, 20, 20, batch=4)]
    return Profile(ENVIRONMENT, [large, small], rows, ["x: skipped, too large"])
