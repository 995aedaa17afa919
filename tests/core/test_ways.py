"""Ways: spelling and parser are inverse, and the command of a way asks that way."""

from __future__ import annotations

import pytest

from mai_plugin.core.ways import Way

WAYS = {
    "S": Way("single", "S"), "E": Way("single", "E"), "R": Way(), "E-S2": Way("single", "E", True),
    "R-S2": Way("single", "R", True), "speculative-R": Way("speculative"),
    "speculative-R-S2": Way("speculative", "R", True), "transfer-R": Way("transfer"), "transfer-E": Way("transfer", "E"),
    "sparse-transfer-R": Way("sparse_transfer"), "sparse-transfer-R-L16": Way("sparse_transfer", layer=16),
    "sparse-transfer-E-L0.44": Way("sparse_transfer", "E", layer=0.44), "MAI": Way("mutual_verification"),
    "MAI-sparse": Way("mutual_verification", sparse=True), "MAI-sparse-L0": Way("mutual_verification", sparse=True, layer=0),
    "MAI-R-S2": Way("mutual_verification", "R", True), "MAI-S": Way("mutual_verification", "S"), "chain": Way("chain"),
    "my-Rather-odd-one": Way("my-Rather-odd-one"),
}  # fmt: skip


@pytest.mark.parametrize("text", WAYS)
def test_spelling_and_parser_are_inverse(text: str) -> None:
    assert str(WAYS[text]) == text
    assert Way.parse(text) == WAYS[text]


def test_the_short_spelling_of_a_sparse_transfer_is_read() -> None:
    assert Way.parse("sparse-R-L16") == Way("sparse_transfer", layer=16)


@pytest.mark.parametrize(
    ("strategy", "arguments", "text"),
    [
        ("single", {}, "S"), ("single", {"prompt": "R", "two_stage": True}, "R-S2"), ("transfer", {}, "transfer-R"),
        ("mutual_verification", {"prompt": "R", "two_stage": False}, "MAI"),
        ("mutual_verification", {"verify": "R-S2"}, "MAI-R-S2"), ("mutual_verification", {"verify": "none"}, "MAI-S"),
        ("mutual_verification", {"transfer": "sparse"}, "MAI-sparse"),
        ("mutual_verification", {"sparse": {"layer": 3}}, "MAI-sparse"), ("chain", {"threshold": 1}, "chain"),
    ],
)  # fmt: skip
def test_the_way_of_arguments(strategy: str, arguments: dict[str, object], text: str) -> None:
    assert str(Way.of(strategy, arguments)) == text


def test_commands() -> None:
    one, two = {"model": "M"}, {"small": "S", "large": "L"}
    assert Way.parse("R-S2").command(one) == "lmms-eval --model mai_single --model_args model=M,prompt=R,two_stage=true"
    assert (
        Way.parse("transfer-E").command(two) == "lmms-eval --model mai_transfer --model_args small=S,large=L,prompt=E"
    )
    assert Way.parse("MAI").command(two) == "lmms-eval --model mai_cascade --model_args small=S,large=L"
    assert Way.parse("MAI-R-S2").command(two).endswith("small=S,large=L,verify=R-S2")
    sparse = Way.parse("sparse-R-L16").command(two)
    assert sparse.endswith("mai_cascade --model_args small=S,large=L,strategy=sparse_transfer,prompt=R,layer=16")
    assert Way("mine.py:chain").command(two).endswith("small=S,large=L,strategy=mine.py:chain")
