"""What is found in texts such as models write, and which answers count as equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mai_plugin.core.agreement import agree, agree_relaxed, normalise
from mai_plugin.core.answers import MAX_BARE_WORDS, extract

OPTIONS = {"A": "red", "B": "blue", "C": "green"}

SHORT = [
    # bare, and bare in some wrapping
    ("7", "7"),
    ("7.", "7"),
    (" 7 \n", "7"),
    ("**7**", "7"),
    ("`7`", "7"),
    ('"seven dwarfs"', "seven dwarfs"),
    ("(7)", "7"),
    ("\\boxed{7}", "7"),
    ("$\\boxed{7}$", "7"),
    ("$7$", "7"),
    ("\\(7\\)", "7"),
    ("\\boxed{\\text{blue}}", "blue"),
    # content stays
    ("2,000", "2,000"),
    ("5%", "5%"),
    ("45\\%", "45%"),
    ("$5", "$5"),
    ("1{,}234", "1,234"),
    ("-3.50", "-3.50"),
    ("U.S.", "U.S."),
    ("3.5.", "3.5"),
    ("(a) and (b)", "(a) and (b)"),
    # stated
    ("Answer: 7", "7"),
    ("answer: 7.", "7"),
    ("**Answer:** 7", "7"),
    ("**Answer: 7**", "7"),
    ("**Answer**: 7", "7"),
    ("Final Answer: **12**.", "12"),
    ("Answer:\n\n12", "12"),
    ("### Answer\n42", "42"),
    ("red 7, blue 5. 7 + 5 = 12.\nAnswer: 12", "12"),
    ("The answer is 7.", "7"),
    ("The answer is 3.5.", "3.5"),
    ("The answer is the U.S. dollar.", "the U.S. dollar"),
    ("So the answer is 7. The bar is red.", "7"),
    ("So the final answer is: $\\boxed{42}$.", "42"),
    ("<answer>7</answer>", "7"),
    ("Thus \\boxed{\\frac{1}{2}} holds", "\\frac{1}{2}"),
    ("the bars sum to\n**12** units.", "12"),
    # the last stated answer counts
    ("Answer: 3\nWait, blue is 4.\nAnswer: 4", "4"),
    ("The answer is 3. No: \\boxed{4}", "4"),
    # thinking
    ("<think>Answer: 3</think>9", "9"),
    ("<think>hm, Answer: 3", None),
    ("so it is 9</think>\n\nAnswer: 8", "8"),
    # as such models really write
    ("To determine the sum, we add the two values:\n\n7 + 5 = **12**\n\n**Answer:** 12", "12"),
    ("Step 1: red is 7.\nStep 2: blue is 5.\n\nAnswer: 7 > 5", "7 > 5"),
    ("Let's solve it.\n\n$$\\boxed{12}$$", "12"),
    ("Thus, the final answer is:\n\n\\[\n\\boxed{12}\n\\]", "12"),
    ("The final answer is $\\boxed{\\text{12 meters}}$.", "12 meters"),
    ("**Final Answer:**\n\n$\\boxed{3.14}$", "3.14"),
    ("Final answer: 1,234.5", "1,234.5"),
    ("ANSWER: Blue", "Blue"),
    ("answer = 12", "12"),
    ("The correct answer is: **Paris**.", "Paris"),
    ('The answer is "New York".', "New York"),
    ("The answer is 'New York'", "New York"),
    ("The answer is \u201cNew York\u201d.", "New York"),
    ("The answer would be 12.", "12"),
    ("So, the answer is **12%**.", "12%"),
    ("Answer: $12 million", "$12 million"),
    ("Answer: \u20ac 5", "\u20ac 5"),
    ("Answer: -5", "-5"),
    ("Answer: 5/6", "5/6"),
    ("Answer: 5:30 pm", "5:30 pm"),
    ("Answer: 2019-2020", "2019-2020"),
    ("Answer: A, B and C", "A, B and C"),
    ("Answer: https://example.org/a.", "https://example.org/a"),
    ("Answer: 12\n\n(The bars read 7 and 5.)", "12"),
    ("Answer: 12\nI hope that helps!", "12"),
    ("Answer: `12`", "12"),
    ("- Answer: 12", "12"),
    ("> **Answer**: 12", "12"),
    ("* **Answer:** 12", "12"),
    ("1. Look.\n2. Add.\n3. Answer: 12", "12"),
    ("<think>\n\n</think>\n\n12", "12"),
    ("<thinking>7 + 5</thinking>Answer: 12", "12"),
    ("<answer>\n12\n</answer>", "12"),
    ("<answer>12", "12"),
    ("Reasoning: <answer>3</answer> no, wait. <answer>4</answer>", "4"),
    ("\\boxed{12", "12"),
    ("\\boxed{a_{1} + b}", "a_{1} + b"),
    ("\\boxed{3} \\boxed{4}", "4"),
    ("\\text{blue}", "blue"),
    ("\\textbf{blue}", "blue"),
    ("\\mathrm{kg}", "kg"),
    ("The 'answer key' is on page 3", "The 'answer key' is on page 3"),
    ("12 and 13", "12 and 13"),
    ("Dr. Smith", "Dr. Smith"),
    ("e.g.", "e.g."),
    ("p.m.", "p.m."),
    ("etc", "etc"),
    ("No. 5", "No. 5"),
    ("\u4e2d\u56fd\u3002", "\u4e2d\u56fd"),
    ("3.0", "3.0"),
    (".5", ".5"),
    ("C++", "C++"),
    ("*args", "*args"),
    ("snake_case_name", "snake_case_name"),
    ("2**3", "2**3"),
    ("f(x)", "f(x)"),
    ("[7]", "7"),
    ("{7}", "7"),
    ("(a)", "a"),
    # blocks
    ("**Answer:**\n\n\\[\n12\n\\]", "12"),
    ("Answer:\n$$\n12\n$$", "12"),
    ("Answer:\n```\n12\n```", "12"),
    ("The chart shows 3.\n**Final Answer**\n12", "12"),
    ("**Answer**\n12", "12"),
    ("Answer\uff1a12", "12"),
    ('{"answer": "7"}', "7"),
    # what follows an answer does not take its place
    ("Answer: 12\nExplanation: The answer is derived by adding 7 and 5.", "12"),
    ("Answer: 12\nThis answer is based on the two bars.", "12"),
    ("The answer is St. Lucia.", "St. Lucia"),
    ("The answer is Dr. Smith. He signed it.", "Dr. Smith"),
    ("The answer is the U.S. Virgin Islands.", "the U.S. Virgin Islands"),
    # content that looks like wrapping
    ("Apple Inc.", "Apple Inc."),
    ("Yahoo!", "Yahoo!"),
    ("5!", "5!"),
    ("Jan.", "Jan."),
    ("Dem/Lean Dem.", "Dem/Lean Dem."),
    ("> 50", "> 50"),
    ("# 1", "# 1"),
    ("(3, 4)", "(3, 4)"),
    ("[1, 2]", "[1, 2]"),
    ("vitamin C.", "vitamin C"),
    # none
    (
        "**Step 1: read the bars**\nThe red bar is 7, the blue one is so much lower that it can hardly be seen at all",
        None,
    ),
    ("?", None),
    ("...", None),
    ("", None),
    ("   \n", None),
    ("**", None),
    ("Let me look at the chart.\nThe red bar is tall, and the blue one is", None),
    ("word " * 16, None),
]
YES_NO = [
    ("yes", "yes"),
    ("No.", "No"),
    ("**Yes**", "Yes"),
    ("Yes, there is a dog in the image.", "Yes"),
    ("Answer: No", "No"),
    ("7 > 5.\nAnswer: yes", "yes"),
    ("The answer is no.", "no"),
    ("<answer>Yes</answer>", "Yes"),
    ("Answer: yes or no", "yes or no"),
    ("Answer: Yes, it is.", "Yes"),
    ("Yes\n\nThe bar is taller.", "Yes"),
    ("<think>no no</think>Yes", "Yes"),
    ("(yes)", "yes"),
    ("\\boxed{\\text{Yes}}", "Yes"),
    ("The answer is: **No**", "No"),
    ("YES", "YES"),
    ("Nobody is there", "Nobody is there"),  # no word "no"
    ("Yes or no", "Yes or no"),
    ("Yes/No", "Yes/No"),
    ("There is\nnothing to say", None),
]
CHOICE = [
    ("B", "B"),
    ("b", "B"),
    ("(B)", "B"),
    ("B.", "B"),
    ("B)", "B"),
    ("B. blue", "B"),
    ("(B) blue", "B"),
    ("**B. blue**", "B"),
    ("Option B", "B"),
    ("blue", "B"),
    ("Blue.", "B"),
    ("blue (B)", "B"),
    ("Answer: B", "B"),
    ("Answer: **B**", "B"),
    ("Answer: B) blue", "B"),
    ("Answer: blue", "B"),
    ("The answer is B.", "B"),
    ("The correct answer is **B**.", "B"),
    ("The correct option is (B) blue.", "B"),
    ("<answer>B</answer>", "B"),
    ("\\boxed{B}", "B"),
    ("\\boxed{\\text{B}}", "B"),
    ("red A 3, blue B 9.\nTallest blue B.\nAnswer: B", "B"),
    ("A is too small and C is wrong, so it is B.", "B"),
    ("B: blue", "B"),
    ("[B]", "B"),
    ('"B"', "B"),
    ("B\n\nBlue is the tallest.", "B"),
    ("The tallest bar is blue, so the answer is (B).", "B"),
    ("The correct choice is B: blue", "B"),
    ("Answer: (b)", "B"),
    ("Answer: option B", "B"),
    ("Answer: The answer is B", "B"),
    ("Final answer: $\\boxed{B}$", "B"),
    ("**Answer: B. blue**", "B"),
    ("A, since red is tallest", "A"),
    ("<think>A? No.</think>\n\n**B**", "B"),
    ("Looking at the bars:\n- red 3\n- blue 9\n\nB", "B"),
    ("The answer is blue.", "B"),
    ("Answer: The blue", "B"),
    ("B blue", "B"),
    ("B - blue", "B"),
    ("Answer: B (blue)", "B"),
    ("Answer: B; blue", "B"),
    ('{"answer": "B"}', "B"),
    ("A, B", None),
    ("A, C and B", None),
    ("Answer: (A) or (B)", None),
    ("Let me go through the options:\n- **A. red**: 3\n- **B. blue**: 9\n- **C. green**: 2, so it can", None),
    ("It could be A or B", None),
    ("A. red is 3\nB. blue is 9\nC. green is 2", None),
    ("A. red is 3\nB. blue is 9\nC. green is 2\nAnswer: B", "B"),
    ("I think so", None),
    ("Answer: none of them", None),
    ("Answer: B. The last option is too small.", "B"),
    ("The correct option is B. The final answer is clear.", "B"),
    ("The answer is unclear, maybe B", None),
    ("A dog is there", None),
    ("D", None),  # not among the options
    ("", None),
]


@pytest.mark.parametrize(("text", "answer"), SHORT)
def test_short(text: str, answer: str | None) -> None:
    assert extract(text, "short") == answer


@pytest.mark.parametrize(("text", "answer"), YES_NO)
def test_yes_no(text: str, answer: str | None) -> None:
    assert extract(text, "yes_no") == answer


@pytest.mark.parametrize(("text", "answer"), CHOICE)
def test_choice(text: str, answer: str | None) -> None:
    assert extract(text, "choice", OPTIONS) == answer


def test_an_option_that_looks_like_a_letter_is_known_by_its_text() -> None:
    bacteria = {"A": "S. aureus", "B": "E. coli", "C": "B. subtilis", "D": "C. albicans", "E": "P. mirabilis"}
    assert extract("E. coli", "choice", bacteria) == "B"
    assert extract("Answer: C. albicans", "choice", bacteria) == "D"
    assert extract("It is vitamin C", "choice", {"A": "vitamin C", "B": "iron", "C": "zinc"}) == "A"


def test_cut_reasoning_states_only_what_it_says_outright() -> None:
    assert extract("Is it there? **No**", "yes_no", cut=True) is None
    assert extract("7", "short", cut=True) is None
    assert extract("Answer: 7\nLet me check", "short", cut=True) == "7"


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "Answer " + "*" * 64_000,
        "\\boxed{" * 10_000,
        "(" * 40_000 + "1" + ")" * 40_000,
        "\n" * 50_000,
        "<think>" * 9_000,
        "**" * 40_000,
        "Answer: " * 9_000,
    ],
    ids=lambda text: text[:8],
)
def test_degenerate_texts_take_no_time(text: str) -> None:
    """Each took seconds to minutes when patterns were unbounded: a hundred calls of any must be over in no time."""
    for kind in ("short", "yes_no", "choice"):
        extract(text, kind, OPTIONS)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["b", "B", "(b)", "Answer: b) blue", "blue", "so it is B."])
def test_letters_come_back_as_the_question_lists_them(text: str) -> None:
    assert extract(text, "choice", {"a": "red", "b": "blue"}) == "b"


PIECES = st.sampled_from(
    ["Answer: ", "**", "The answer is ", "\\boxed{", "}", "<answer>", "</answer>", "\n", " ", ".", "(", ")", "B", "b. blue", "yes", "No",
     "12", "2,000", "red", "$", "<think>", "</think>", "or", ",", '"', "A", "### Answer\n", "- "]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=12).map("".join))


@given(TEXTS, st.sampled_from(["short", "yes_no", "choice"]))
def test_extraction_never_raises_and_is_idempotent(text: str, kind: str) -> None:
    once = extract(text, kind, OPTIONS)  # type: ignore[arg-type]
    if once is not None:
        assert once.strip() == once != ""
        assert len(once.split()) > MAX_BARE_WORDS or extract(once, kind, OPTIONS) == once  # type: ignore[arg-type]


@given(st.from_regex(r"[A-Za-z0-9]{1,8}( [A-Za-z0-9]{1,8}){0,3}", fullmatch=True))
def test_a_bare_answer_stays_itself(answer: str) -> None:
    assert extract(answer, "short") == answer or "answer" in answer.lower()


EQUAL = [
    ("12", "12.0"), ("12", "twelve"), ("21", "twenty-one"), ("1,234", "1234"), ("5%", "5"), ("$5", "5"),
    ("the dog", "Dog."), ("\u22123", "-3"), ("\uff11\uff12", "12"), ("Yes", "yes."), ("0.50", ".5"), ("1 000", "1000"),
    ("**red**", "red"),
]  # fmt: skip
DIFFERENT = [("12", "13"), ("red", "blue"), ("-3", "3"), ("1.5", "15"), ("yes", "no"), ("an apple", "apples"),
    ("> 50", "50"), ("5\u00b2", "52"), ("10\u2075", "105"), ("5'", '5"'), ("?", "!"), (".", "..."),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal_answers_agree(a: str, b: str) -> None:
    assert agree(a, b, "short")
    assert agree(b, a, "short")


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different_answers_do_not_agree(a: str, b: str) -> None:
    assert not agree(a, b, "short")


ANSWERS = st.one_of(st.none(), st.text(max_size=12), st.from_regex(r"-?[0-9]{1,4}(\.[0-9])?%?", fullmatch=True))


@given(ANSWERS, ANSWERS, st.sampled_from(["short", "yes_no", "choice"]))
def test_agreement_is_symmetric(a: str | None, b: str | None, kind: str) -> None:
    for rule in (agree, agree_relaxed):
        assert rule(a, b, kind) == rule(b, a, kind)  # type: ignore[arg-type]
        if a is not None and any(sign.isalnum() for sign in normalise(a, kind)):  # type: ignore[arg-type]
            assert rule(a, a, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        ("100", "96", True),
        ("100", "94", False),
        ("5%", "5.2", True),
        ("blue bar", "blue bars", True),
        ("red", "blue", False),
        ("7", "seven dwarfs", False),
    ],
)
def test_relaxed_agreement(a: str, b: str, near: bool) -> None:
    assert agree_relaxed(a, b, "short") == near
    assert not agree_relaxed("A", "B", "choice")


def test_no_answer_agrees_with_nothing() -> None:
    assert not agree(None, None, "short")
    assert not agree(None, "7", "short")


def test_choices_are_compared_as_letters() -> None:
    assert agree("B", "b", "choice")
    assert not agree("A", "B", "choice")
    assert normalise("A", "choice") == "a"  # no article
