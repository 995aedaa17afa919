"""Stem, kind and options are told from the prompt; S stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mai_plugin.core.prompts import inert, load_prompts
from mai_plugin.core.question import Question, find_options
from mai_plugin.core.records import Image, Message
from mai_plugin.core.stems import split_request

PROMPTS = load_prompts()
PICTURE = Image("a picture")


def ask(*content: str | Image, limit: int = 16) -> Question:
    return Question.from_messages("task/0", [Message("user", content)], limit, PROMPTS)


# benchmark, prompt, stem, kind
CASES = [
    ("chartqa", "How many bars?\nAnswer the question with a single word.", "How many bars?", "short"),
    ("chartqa", "Is red taller than blue?\nAnswer the question with a single word.", "Is red taller than blue?", "yes_no"),
    ("pope", "Is there a dog in the image?\nAnswer the question using a single word or phrase.", "Is there a dog in the image?", "yes_no"),
    ("infovqa", "What is \"A\" for?\nAnswer the question using a single word or phrase.", "What is \"A\" for?", "short"),
    ("mmmu", "Which?\nA. x\nB. y\n\nAnswer with the option's letter from the given choices directly.", "Which?\nA. x\nB. y", "choice"),
    ("mmmu open", "How much?\n\nAnswer the question using a single word or phrase.", "How much?", "short"),
    ("mmbench", "Hint. Which? There are several options:\nA. x\nB. y\n\nAnswer with the option's letter from the given choices directly.", "Hint. Which? There are several options:\nA. x\nB. y", "choice"),
    ("realworldqa", "Where to?\nA. Left\nB. Right\nC. Up\nPlease answer directly with only the letter of the correct option and nothing else.", "Where to?\nA. Left\nB. Right\nC. Up", "choice"),
    ("VLMEvalKit pope", "Is there a dog in the image?", "Is there a dog in the image?", "yes_no"),
    ("VLMEvalKit amber", "Is there a dog?\nPlease answer yes or no.", "Is there a dog?", "yes_no"),
    ("VLMEvalKit mcq", "Hint: h\nQuestion: Which?\nOptions:\nA. x\nB. y\nPlease select the correct answer from the options above. \n", "Hint: h\nQuestion: Which?\nOptions:\nA. x\nB. y", "choice"),
    ("our own R", f"How many?\n{PROMPTS.reason['short']}", "How many?", "short"),
    ("realworldqa", "How many cars?\nPlease answer directly with a single word or number.", "How many cars?", "short"),
]  # fmt: skip


@pytest.mark.parametrize(("benchmark", "prompt", "stem", "kind"), CASES)
def test_stem_and_kind(benchmark: str, prompt: str, stem: str, kind: str) -> None:
    question = ask(PICTURE, prompt)
    assert question.messages == (Message("user", (PICTURE, prompt)),)
    assert question.stem == (Message("user", (PICTURE, stem)),)
    assert (question.kind, question.known) == (kind, True)


def test_the_last_of_interleaved_parts_carries_the_request() -> None:
    request = "Answer with the option's letter from the given choices directly."
    question = ask("Look at", PICTURE, "Which?\nA.", PICTURE, "B.", PICTURE, request)
    assert question.stem[-1].content == ("Look at", PICTURE, "Which?\nA.", PICTURE, "B.", PICTURE)
    assert question.options == {"A": "", "B": ""}
    assert question.asking("Think.")[-1].content == (*question.stem[-1].content, "Think.")


def test_wording_goes_behind_the_stem_on_a_new_line() -> None:
    question = ask(PICTURE, "How many?\nAnswer the question with a single word.")
    assert question.asking("Think.") == (Message("user", (PICTURE, "How many?\nThink.")),)


@pytest.mark.parametrize(
    ("prompt", "stem", "taken"),
    [
        ("What is it? Please answer with one word only.", "What is it?", "Please answer with one word only."),
        ("Is it red?\nRespond with yes or no.", "Is it red?", "Respond with yes or no."),
        ("Name the letter shown:", "Name the letter shown:", None),
        ("Give only the letter.", "Give only the letter.", None),  # the whole prompt is never taken off
    ],
)
def test_general_rule(prompt: str, stem: str, taken: str | None) -> None:
    question = ask(prompt)
    assert (question.stem[-1].text, question.request, question.known) == (stem, taken, False)


@pytest.mark.parametrize(
    ("stem", "kind"),
    [
        ("Is the cup red or blue?", "short"),
        ("Does it rain or not?", "yes_no"),
        ("Is it rising/falling?", "short"),
        ("Has the highest value, which one?", "short"),
        ("There is a chart. Are there more cats than dogs?", "yes_no"),
        ("What is this?", "short"),
    ],
)
def test_yes_no_is_told_from_the_last_sentence(stem: str, kind: str) -> None:
    assert ask(f"{stem}\nAnswer the question with a single word.").kind == kind


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Q\nA. x\nB. y\nC. z", {"A": "x", "B": "y", "C": "z"}),
        ("Q\n(A) x\n(B) y", {"A": "x", "B": "y"}),
        ("Q\nA) x\nB) y", {"A": "x", "B": "y"}),
        ("Q\n(a) x\n(b) y", {"a": "x", "b": "y"}),
        ("Q\na. x\nB. y", {}),
        ("A. Einstein said\nQ\nA. x\nB. y", {"A": "x", "B": "y"}),
        ("In the figure,\nA: 5\nB: 6\nwhat is A + B?", {}),
        ("Q?\nA. x\nB. y\nwith a second line", {"A": "x", "B": "y"}),
        ("Q\nA. x", {}),
        ("Q\nA. x\nC. y", {}),
        ("Who is A. Einstein?", {}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    assert find_options(text) == options


def test_options_in_running_text_need_a_request_for_a_letter() -> None:
    text = "Which? A. red B. dark blue C. green"
    assert find_options(text) == {}
    assert find_options(text, "Answer with the option's letter.") == {"A": "red", "B": "dark blue", "C": "green"}


@pytest.mark.parametrize("content", [(), (PICTURE,), ("",), (PICTURE, "  \n")])
def test_a_question_without_text_is_refused(content: tuple[str | Image, ...]) -> None:
    with pytest.raises(ValueError, match="question task/0: empty"):
        ask(*content)


def test_the_last_turn_must_be_the_users() -> None:
    with pytest.raises(ValueError, match="last message must be the user's"):
        Question.from_messages("task/0", [Message("assistant", ("hi",))], 16, PROMPTS)


@pytest.mark.parametrize(
    "text", ["<|im_end|>", "<|im_start|>system", "<|vision_start|>", "<image>", "<IMG_CONTEXT>", "</think>", "<\uff5cUser\uff5c>"]
)  # fmt: skip
def test_reasoning_is_made_inert(text: str) -> None:
    assert text not in inert(f"so {text} it is")
    assert inert("3 < 4 and 5 <= 6") == "3 < 4 and 5 <= 6"


def test_own_wordings(tmp_path: Path) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_text("reason: {short: Ponder.}\nbrevity: [Be short!]\n")
    prompts = load_prompts(file)
    assert prompts.wording("R", "short") == "Ponder."
    assert prompts.wording("R", "choice") == PROMPTS.wording("R", "choice")
    assert split_request("Why?\nBe short!", prompts) == ("Why?", "Be short!", True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense: 1", "unknown key 'nonsense'"),
        ("reason: {shrt: x}", "must map short, yes_no, choice"),
        ("reason: x", "must map"),
        ("reason: {short: '  '}", "must map"),
        ("brevity: ['  ']", "list of sentences"),
        ("brevity: x", "list of sentences"),
        ("- 1", "must be a mapping"),
        ("a: [", "prompts file"),
    ],
)
def test_a_bad_prompts_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        load_prompts(file)
