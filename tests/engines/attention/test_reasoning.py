"""Finding reasoning in a prompt, and the smallest set of tokens that holds a share of the weight."""

from __future__ import annotations

import unicodedata
from itertools import combinations

import pytest
from helpers.checkpoints import noise, random_internvl, random_qwen3_vl
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoProcessor

from mai_plugin.core.records import Image, Message
from mai_plugin.engines.attention.reasoning import Reasoning, find_reasoning, smallest_set
from mai_plugin.engines.base import EngineError, hf_messages
from mai_plugin.resources import SHIPPED_MODELS


@pytest.fixture(scope="module", params=["qwen3-vl", "internvl", "tiny"])
def processor(request, tmp_path_factory):
    if request.param == "tiny":
        return AutoProcessor.from_pretrained(SHIPPED_MODELS["mai-tiny-large"])
    make = {"qwen3-vl": random_qwen3_vl, "internvl": random_internvl}[request.param]
    return AutoProcessor.from_pretrained(make(tmp_path_factory.mktemp("model")))


def find(processor, text, final="So what is the answer? Give only the user."):
    messages = (
        Message("user", (Image(noise()), "What is it?\nThink step by step.")),
        Message("assistant", (text,)),
        Message("user", (final,)),
    )
    ids = processor.apply_chat_template(
        hf_messages(messages), add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )["input_ids"][0].tolist()
    return find_reasoning(processor, messages, ids), ids


# Words of the template and of the final question, emoji of several tokens, white space at the ends.
@pytest.mark.parametrize(
    "text", ["red 7, blue 5. 7 + 5 = 12. Answer: 12", "user", "the", "assistant\n", " 🙂 é x \n\n y ", "So what"]
)
def test_every_token_of_the_reasoning_and_none_beside(processor, text):
    found, ids = find(processor, text)
    assert found.text == text.strip()
    own = ids[found.first : found.first + len(found.spans)]
    assert processor.tokenizer.decode(own).strip() == text.strip()
    assert found.part(range(len(found.spans))) == text.strip()


@pytest.mark.parametrize("text", ["A\u030a", "cafe\u0301 e\u0301te\u0301", "\u1112\u1161\u11ab 7"])
def test_characters_in_parts_are_those_that_the_model_reads(processor, text):
    """The tokenizer composes them, and its offsets are those of the first part alone."""
    found, ids = find(processor, text)
    assert found.part(range(len(found.spans))) == found.text == unicodedata.normalize("NFC", text)
    assert processor.tokenizer.decode(ids[found.first : found.first + len(found.spans)]) == found.text


def test_empty_reasoning_has_no_tokens(processor):
    assert find(processor, " \n")[0].spans == ()


def test_other_tokens_than_the_messages_are_refused(processor):
    messages = (Message("user", ("What?",)), Message("assistant", ("red 7",)), Message("user", ("So?",)))
    with pytest.raises(EngineError, match="cannot find the reasoning's tokens"):
        find_reasoning(processor, messages, [1, 2, 3])
    no_reasoning = (Message("user", ("What?",)), Message("user", ("red 7",)), Message("user", ("So?",)))
    with pytest.raises(EngineError, match="cannot find the reasoning in a prompt"):
        find_reasoning(processor, no_reasoning, [1, 2, 3])


def test_part_keeps_the_order_and_shared_characters_once():
    reasoning = Reasoning("a🙂 b", 10, ((0, 1), (1, 2), (1, 2), (2, 4)))
    assert reasoning.tokens == ["a", "🙂", "🙂", " b"]
    assert reasoning.part([3, 0]) == "a b"
    assert reasoning.part([1, 2]) == reasoning.part([2]) == "🙂"
    assert reasoning.weights([9.0] * 10 + [1, 2, 3, 4, 9]) == [0.1, 0.2, 0.3, 0.4]
    assert reasoning.weights([1.0] * 10 + [0.0] * 5) == [0.25] * 4  # no attention at all: no token is better


@pytest.mark.parametrize(
    ("weights", "keep", "kept"),
    [
        ([0.1, 0.5, 0.2, 0.2], 0.8, [1, 2, 3]),
        ([1, 1, 1, 1, 1], 0.8, [0, 1, 2, 3]),
        ([0.8, 0.2], 0.8, [0]),
        ([0.8, 0.2], 1.0, [0, 1]),
        ([0.5, 1e-12, 0.0, 0.5], 1.0, [0, 1, 2, 3]),
        ([0.0, 0.0], 0.8, [0]),
        ([], 0.8, []),
    ],
)
def test_smallest_set(weights, keep, kept):
    assert smallest_set(weights, keep) == kept


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.floats(0.05, 1))
def test_no_smaller_set_holds_as_much(weights, keep):
    kept = smallest_set(weights, keep)
    goal = keep * sum(weights)
    assert kept == sorted(set(kept))
    assert sum(weights[index] for index in kept) >= goal * (1 - 1e-6)
    for smaller in combinations(weights, len(kept) - 1):
        assert not smaller or sum(smaller) < goal or sum(smaller) == pytest.approx(goal)
