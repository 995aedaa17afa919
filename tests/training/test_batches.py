"""Training batches: what a group can see, and what it is trained on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from mai_plugin.tiny.charts import KINDS, TRAINING_MIX, draw_item, solve
from training.batches import IGNORED, Batch, BatchMaker, Rationale, Recipe, build_tokenizer
from training.wording import FORMS, IMAGE, USER, WORDINGS, asking_text, short_text, two_turns


@pytest.fixture(scope="module")
def maker() -> BatchMaker:
    return BatchMaker(build_tokenizer(), Recipe("SRF", 3.0, 2.0, wrong_share=0.7))


@pytest.fixture(scope="module")
def batch(maker: BatchMaker) -> Batch:
    return maker.draw(np.random.default_rng(0), 8, TRAINING_MIX)


def test_batches_repeat(maker: BatchMaker, batch: Batch) -> None:
    again = maker.draw(np.random.default_rng(0), 8, TRAINING_MIX)
    assert bool((again.tokens == batch.tokens).all())
    assert bool((again.pixels == batch.pixels).all())


def test_groups_see_the_chart_and_themselves_only(batch: Batch) -> None:
    prefix = len(build_tokenizer().encode(USER + IMAGE).ids)
    mask = batch.mask[:, 0]
    assert bool(mask[:, prefix:, :prefix].any(-1).any())
    first = [item for item in batch.scored if item.row == 0]
    assert first[0].form == "S"
    short_end = first[0].last
    assert not bool(mask[0, short_end:, prefix:short_end].any())
    assert not bool(mask.triu(1).any())


def test_wrong_reasoning_carries_no_loss_but_the_right_answer_does(batch: Batch) -> None:
    for item in batch.scored:
        weights = batch.weights[item.row, item.first : item.last]
        assert bool((weights > 0).all())
    wrong = [item for item in batch.scored if item.form == "F-wrong"]
    assert wrong
    for item in wrong:
        start = max(other.last for other in batch.scored if other.row == item.row and other.last < item.first)
        assert not bool(batch.weights[item.row, start : item.first].any())


def test_heights_are_asked_only_of_what_is_read(batch: Batch) -> None:
    written = batch.weights[:, 1:] > 0
    assert bool((batch.heights[:, :-1][written] == IGNORED).all())
    assert bool((batch.heights != IGNORED).any())


def test_given_rationales_are_read() -> None:
    rationales = [Rationale(5, index, "nonsense", index % 2 == 0) for index in range(4)]
    maker = BatchMaker(build_tokenizer(), Recipe("SF", 3.0, 2.0, read_share=1.0, read_wrong_share=1.0), rationales)
    batch = maker.draw(np.random.default_rng(0), 4, TRAINING_MIX)
    assert [item.form for item in batch.scored] == ["S", "F-wrong"] * 4


def test_every_wording_and_request_is_known() -> None:
    tokenizer = build_tokenizer()
    for kind in set(KINDS.values()):
        for form in FORMS[kind]:
            assert sum(form.share for form in FORMS[kind]) == pytest.approx(1.0)
            for text in (form.request, *(wording[kind] for wording in WORDINGS.values())):
                assert tokenizer.decode(tokenizer.encode(text).ids) == text
                assert len(tokenizer.encode(text).ids) <= len(text.split()) + 12


def test_texts_of_a_choice_question() -> None:
    chart, problem = next(item for item in (draw_item(1, index) for index in range(200)) if item[1].kind == "choice")
    lines = problem.options
    forms = {form.name: form for form in FORMS["choice"]}
    letter = "Answer with the option's letter from the given choices directly."
    assert short_text(problem, forms["several options"]) == (
        f"Which bar is the tallest? There are several options:\n{lines}\n\n{letter}"
    )
    assert short_text(problem, forms["single word"]) == (
        f"Which bar is the tallest?\n{lines}\nAnswer the question with a single word."
    )
    asked = asking_text(problem, forms["single word"], "reason")
    assert asked == f"Which bar is the tallest?\n{lines}\n{WORDINGS['reason']['choice']}"
    rationale = solve(problem, chart.heights).rationale
    chat = two_turns(asked, rationale, "choice")
    assert chat.startswith("<|im_start|>user\n<|vision_start|><|image_pad|>")
    assert chat.endswith(
        f"{rationale}<|im_end|>\n<|im_start|>user\n{WORDINGS['final']['choice']}<|im_end|>\n<|im_start|>assistant\n"
    )
