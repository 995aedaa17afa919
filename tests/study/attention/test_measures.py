"""Arithmetic on hand-made weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mai_plugin.engines.attention.reasoning import Reasoning, smallest_set
from mai_plugin.study.attention.measures import (
    ANSWER,
    BEFORE,
    EARLIER,
    NUMBER,
    SIGN,
    WORD,
    Reading,
    lifts,
    look_at,
    set_size,
    shown,
    token_groups,
)


def reasoning(*tokens: str, first: int = 2) -> Reasoning:
    spans, place = [], 0
    for token in tokens:
        spans.append((place, place + len(token)))
        place += len(token)
    return Reasoning("".join(tokens), first, tuple(spans))


def measured(rows, read, answer="7", keep=0.8):
    return look_at(np.array(rows), read, answer, keep, question_id="q", task="t", cut=False)


def look(*args, **kwargs):
    return measured(*args, **kwargs).look


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=4),
    st.sampled_from([0.1, 0.5, 0.8, 0.95, 1.0]),
)
def test_counts_as_sparse_transfer_selects(rows, keep):
    assert set_size(np.array(rows), keep).tolist() == [len(smallest_set(row, keep)) for row in rows]


def test_heads_and_their_average_are_counted_over_the_reasoning_alone():
    """Two heads that each look at one token: either needs one, their average two.  The rest of the prompt has half."""
    rows = [[[0.25, 0.25, 0.5, 0.0, 0.0, 0.0], [0.1, 0.4, 0.0, 0.5, 0.0, 0.0]]]
    found = measured(rows, reasoning("a", "b", "c", "d"))
    assert found.tokens == ["a", "b", "c", "d"]
    assert found.look.head_set_size.tolist() == [[1, 1]]
    assert found.look.set_size.tolist() == [2]
    np.testing.assert_allclose(found.weights, [[0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(found.look.on_reasoning, [0.5])


def test_heads_count_in_the_average_by_what_they_spend_on_the_reasoning():
    found = measured([[[0.0, 0.1, 0.9, 0.0], [0.9, 0.0, 0.0, 0.1]]], reasoning("a", "b"))
    np.testing.assert_allclose(found.weights, [[0.9, 0.1]])


def test_no_weight_at_all_is_spread_evenly():
    found = measured([[[0.5, 0.5, 0.0, 0.0]]], reasoning("a", "b"))
    np.testing.assert_allclose(found.weights, [[0.5, 0.5]])
    assert found.look.set_size.tolist() == [2]


def groups_of(read, answer):
    return {name: np.flatnonzero(mask).tolist() for name, mask in token_groups(read, answer).items()}


def test_groups():
    tokens = ("red", " 7", ",", " 17", "=", " ", "1", "7", "+", "7.5", ".\n", "Answer", ":", " ", "7")
    assert groups_of(reasoning(*tokens), "7") == {
        ANSWER: [1, 14], EARLIER: [1], BEFORE: [0, 13], NUMBER: [3, 6, 7, 9], WORD: [0, 11],
        SIGN: [2, 4, 5, 8, 10, 12, 13],
    }  # fmt: skip


def test_an_answer_of_several_tokens():
    found = groups_of(reasoning("is", " 1", "2", ".", "Answer", ": ", "1", "2"), "12")
    assert (found[ANSWER], found[EARLIER], found[BEFORE]) == ([1, 2, 6, 7], [1, 2], [0, 5])


def test_a_letter_counts_in_its_own_case():
    assert groups_of(reasoning("a", " bar", " A", ".", "A"), "A")[ANSWER] == [2, 4]
    assert groups_of(reasoning("Yes", " so", " yes"), "yes")[ANSWER] == [0, 2]


def test_an_answer_that_the_text_does_not_spell_has_no_tokens():
    found = look([[[0, 0, 1, 1, 1]]], reasoning("a", "b", "c"), answer="x")
    assert ANSWER not in found.groups
    assert found.groups[WORD].tokens == 3


def test_lift_and_rank():
    """One of four tokens is the answer: with 60 % of the weight at one layer, 10 % at the other."""
    rows = [[[0, 0, 0.2, 0.1, 0.1, 0.6]], [[0, 0, 0.5, 0.2, 0.2, 0.1]]]
    one = look(rows, reasoning("red", ":", " ", "7"))
    high, low = (lifts([one], layer)[ANSWER] for layer in (0, 1))
    assert high.lift == pytest.approx(0.6 / 0.25)
    assert (high.rank, high.first) == (1, 1)
    assert low.lift == pytest.approx(0.1 / 0.25)
    assert (low.rank, low.first) == (4, 0)
    assert high.chance_rank == 2.5
    assert lifts([one], 1)[BEFORE].rank == 2  # equal weights share the better rank
    assert lifts([one], 0)[SIGN].tokens == 0.5


def test_no_stated_answer_counts_for_shares_and_not_for_lifts():
    read, rows = reasoning("red", " 7"), [[[0, 0, 0.8, 0.2]]]
    reading = Reading()
    reading.add(measured(rows, read, answer=None))
    reading.add(measured(rows, read))
    assert (len(reading.looks), reading.answered) == (2, 1)
    assert reading.layers()[0].groups[ANSWER].n == 1


def test_means_over_questions_and_top_tokens():
    """A comma has most tokens and weight; the 7 has more weight than its share of the tokens, and comes first."""
    reading = Reading()
    first = reasoning("7", ",", ",", ",")
    second = reasoning(" 7", ",")
    reading.add(measured([[[0, 0, 0.4, 0.2, 0.2, 0.2]]], first, keep=0.5))
    reading.add(measured([[[0, 0, 0.8, 0.2]]], second, keep=0.5))
    (layer,) = reading.layers(top=2)
    assert layer.share == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert layer.tokens == pytest.approx(1.5)
    assert layer.head_shares == (layer.share,)
    assert reading.mean_tokens == 3
    seven, comma = layer.top_tokens
    assert (seven.text, comma.text) == ("7", ",")
    assert seven.weight == pytest.approx((0.4 + 0.8) / 2)
    assert seven.tokens == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert comma.weight == pytest.approx((0.6 + 0.2) / 2)


def test_tokens_as_tables_show_them():
    assert [shown(token) for token in (" red", ".\n", " ", "\n\n", "\x05")] == [
        "red",
        ".",
        '" "',
        '"\\n\\n"',
        '"\\u0005"',
    ]
