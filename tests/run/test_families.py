"""The whole cascade on real models of both families, tiny and random, from settings to outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.checkpoints import random_internvl, random_qwen3_vl
from PIL import Image as PILImage

from mai_plugin.core.records import Image, Message, Outcome
from mai_plugin.run.runner import Item
from mai_plugin.run.session import Session
from mai_plugin.settings import Settings


@pytest.mark.parametrize("make", [random_qwen3_vl, random_internvl])
def test_cascade(tmp_path: Path, make: object) -> None:
    folders = [make(tmp_path / name, seed) for seed, name in enumerate(("small", "large"))]  # type: ignore[operator]
    settings = Settings.from_args(
        "mutual_verification",
        {"small": str(folders[0]), "large": str(folders[1]), "batch_size": 4, "dtype": "float32",
         "max_reasoning_tokens": 24, "store": "off", "engine_args": {"num_threads": 1}},
    )  # fmt: skip
    with Session(settings) as session:

        def item(number: int, size: tuple[int, int]) -> Item:
            text = "How many bars?\nAnswer the question with a single word."
            messages = [Message("user", (Image(PILImage.new("RGB", size, (number * 60, 80, 90))), text))]
            return Item(f"t/{number}", lambda: session.question(f"t/{number}", messages, 8))

        results, summary = session.run([item(0, (64, 64)), item(1, (200, 80)), item(2, (30, 120))], progress=False)
    assert all(isinstance(result, Outcome) for result in results), [str(result) for result in results]
    assert summary.routes == {"transfer": 3}  # two random models agree on nothing
    assert {role: usage.calls for role, usage in summary.usage.items()} == {"small": 6, "large": 6}
    for result in results:
        assert isinstance(result, Outcome)
        s, l, r, final = result.calls  # noqa: E741
        assert r.completion.output_tokens <= 24
        assert max(call.completion.output_tokens for call in (s, l, final)) <= 8
        assert final.completion.prompt_tokens > l.completion.prompt_tokens + r.completion.output_tokens // 2
