"""Synthetic bar charts, questions about them, and the reasoning that answers each question.

A chart has two to four bars in four places, five possible colours and heights from 1 to 9.  Every rationale is a fixed
function of chart and question, so a greedy model is right exactly where each of its tokens is.  Mistaken rationales,
which the large model learns to distrust, come from the same function: one wrong step, or one height misread.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "blue": (30, 60, 220),
    "green": (20, 160, 40),
    "yellow": (240, 210, 20),
    "black": (20, 20, 20),
}
NAMES = tuple(COLOURS)
WIDTH, HEIGHT = 128, 96
PLACES = 4
"""Bars stand in four places of equal width; some of them stay empty."""
LETTERS = "ABCD"

_PLACE_WIDTH = WIDTH // PLACES
_BASE_LINE = 80
_PIXELS_PER_UNIT = 8

KINDS: dict[str, str] = {
    "value": "short",
    "present": "yes_no",
    "taller": "yes_no",
    "tallest": "short",
    "shortest": "short",
    "sum": "short",
    "difference": "short",
    "expression": "short",
    "total": "short",
    "even": "yes_no",
    "choice": "choice",
}
"""Every task (what is asked) with its answer kind."""

Mix = Mapping[str, float]
"""Share of each task; need not sum to one."""

MIX: dict[str, float] = {
    "value": 0.11,
    "present": 0.05,
    "taller": 0.11,
    "tallest": 0.04,
    "shortest": 0.03,
    "sum": 0.09,
    "difference": 0.06,
    "expression": 0.19,
    "total": 0.22,
    "even": 0.03,
    "choice": 0.07,
}
"""The tasks of the held-out charts: many where both models agree in one go, many where they need to reason."""

REQUEST = "Answer the question with a single word."
"""How ChartQA's task of lmms-eval asks for a short answer."""

TRAINING_MIX: dict[str, float] = {
    "value": 0.07,
    "present": 0.05,
    "taller": 0.10,
    "tallest": 0.07,
    "shortest": 0.06,
    "sum": 0.11,
    "difference": 0.10,
    "expression": 0.15,
    "total": 0.12,
    "even": 0.03,
    "choice": 0.14,
}
"""The tasks of training: more of the hard ones."""

EASY_MIX: dict[str, float] = {"value": 0.55, "present": 0.10, "taller": 0.15, "sum": 0.10, "difference": 0.10}
"""The first steps of training: little but finding a bar by its colour, on which all else rests."""

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Chart:
    """A drawn chart.

    Attributes:
        heights: height by colour name, from left to right.
        places: the place (0 to 3) of each bar, in the same order.
        pixels: the picture, shape (96, 128, 3).
    """

    heights: dict[str, int]
    places: tuple[int, ...]
    pixels: Pixels


@dataclass(frozen=True)
class Problem:
    """A question about a chart, before it is put into words for a benchmark.

    Attributes:
        task: one of ``KINDS``.
        text: the question itself, without options.
        colours: the bars to read, in the order in which a rationale reads them; the options of a choice question.
    """

    task: str
    text: str
    colours: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The answer kind: short, yes_no or choice."""
        return KINDS[self.task]

    @property
    def options(self) -> str:
        """The lettered options on lines of their own; empty unless this is a choice question."""
        if self.kind != "choice":
            return ""
        return "\n".join(f"{letter}. {name}" for letter, name in zip(LETTERS, self.colours, strict=True))


@dataclass(frozen=True)
class Solution:
    """What to write about a problem: the bars read, the working, and the answer."""

    reading: str
    working: str
    answer: str

    @property
    def rationale(self) -> str:
        """Reading and working, then the answer on a line of its own."""
        return f"{self.reading}{self.working}\nAnswer: {self.answer}"

    @property
    def explanation(self) -> str:
        """The shorter text: only what was read, then the answer."""
        return f"{self.reading}\nAnswer: {self.answer}"


@dataclass(frozen=True)
class ChartQuestion:
    """One held-out question as a benchmark would hold it.

    Attributes:
        id: unique for a seed, and the same in each run.
        image: the chart, RGB, 128 x 96.
        question: the text without any request for brevity; options are on lines of their own.
        answer: a number, a colour, yes or no, or a letter.
        kind: the answer kind: short, yes_no or choice.
        task: what is asked, one of ``KINDS``.
        rationale: the right reasoning, with a last line "Answer: X".
        explanation: the right short explanation, with the same last line.
    """

    id: str
    image: Image.Image
    question: str
    answer: str
    kind: str
    task: str
    rationale: str
    explanation: str


def draw_chart(rng: np.random.Generator) -> Chart:
    """Draws a random chart: 2 to 4 bars of different colours, each shifted a little in its place."""
    count = int(rng.choice([2, 3, 4], p=[0.2, 0.4, 0.4]))
    names = [NAMES[index] for index in rng.permutation(len(NAMES))[:count]]
    heights = {name: int(height) for name, height in zip(names, rng.integers(1, 10, count), strict=True)}
    places = tuple(int(place) for place in np.sort(rng.permutation(PLACES)[:count]))
    pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    pixels[_BASE_LINE : _BASE_LINE + 2, 2 : WIDTH - 2] = 120
    for place, (name, height) in zip(places, heights.items(), strict=True):
        width = int(rng.integers(16, 23))
        left = place * _PLACE_WIDTH + (_PLACE_WIDTH - width) // 2 + int(rng.integers(-3, 4))
        pixels[_BASE_LINE - _PIXELS_PER_UNIT * height : _BASE_LINE, left : left + width] = COLOURS[name]
    return Chart(heights, places, pixels)


def draw_problem(chart: Chart, rng: np.random.Generator, mix: Mix = MIX) -> Problem:
    """Draws a question about a chart; tasks that the chart does not allow (ties, too few bars) are drawn again."""
    tasks = list(mix)
    shares = np.array([mix[task] for task in tasks])
    shares /= shares.sum()
    while True:
        problem = _problem(tasks[rng.choice(len(tasks), p=shares)], chart.heights, rng)
        if problem is not None:
            return problem


def _problem(task: str, heights: Mapping[str, int], rng: np.random.Generator) -> Problem | None:
    """The question of one task, or None where the chart has no clear answer to it."""
    names, values = list(heights), list(heights.values())
    mixed = [names[index] for index in rng.permutation(len(names))]
    absent = [name for name in NAMES if name not in heights]
    match task:
        case "value":
            return Problem(task, f"What is the value of the {mixed[0]} bar?", (mixed[0],))
        case "present":
            name = mixed[0] if rng.random() < 0.5 else str(rng.choice(absent))
            return Problem(task, f"Is there a {name} bar in the chart?", (name,))
        case "taller":
            return Problem(task, f"Is the {mixed[0]} bar taller than the {mixed[1]} bar?", tuple(mixed[:2]))
        case "tallest" | "shortest":
            extreme = max(values) if task == "tallest" else min(values)
            return Problem(task, f"Which bar is the {task}?", tuple(names)) if values.count(extreme) == 1 else None
        case "choice":
            options = names + absent[: len(LETTERS) - len(names)]
            shuffled = tuple(options[index] for index in rng.permutation(len(LETTERS)))
            return Problem(task, "Which bar is the tallest?", shuffled) if values.count(max(values)) == 1 else None
        case "sum":
            return Problem(task, f"What is the sum of the {mixed[0]} and {mixed[1]} bars?", tuple(mixed[:2]))
        case "difference":
            text = f"What is the difference between the {mixed[0]} and {mixed[1]} bars?"
            return Problem(task, text, tuple(mixed[:2]))
        case "expression":
            if len(mixed) < 3 or heights[mixed[0]] + heights[mixed[1]] < heights[mixed[2]]:
                return None
            return Problem(task, f"What is {mixed[0]} plus {mixed[1]} minus {mixed[2]}?", tuple(mixed[:3]))
        case "total":
            return Problem(task, "What is the total of all bars?", tuple(names))
        case "even":
            return Problem(task, "Is the total of all bars even?", tuple(names))
    raise ValueError(f"unknown task {task!r}")


def solve(problem: Problem, heights: Mapping[str, int], slip: np.random.Generator | None = None) -> Solution:
    """Reasons through a problem.

    Args:
        problem: the question.
        heights: height by colour as believed; a colour that is missing counts as 0.
        slip: if given, one step of the working goes wrong, drawn from this generator.

    Returns:
        Reading, working and answer.
    """
    seen = [heights.get(name, 0) for name in problem.colours]
    if problem.kind == "choice":
        labels = [f"{name} {letter}" for name, letter in zip(problem.colours, LETTERS, strict=True)]
    else:
        labels = list(problem.colours)
    reading = ", ".join(f"{label} {value}" for label, value in zip(labels, seen, strict=True)) + "."
    match problem.task:
        case "value":
            return Solution(reading, "", str(seen[0] if slip is None else _miscount(seen[0], slip)))
        case "present":
            return Solution(reading, "", "yes" if (seen[0] > 0) != (slip is not None) else "no")
        case "taller":
            sign = _sign(seen[0], seen[1])
            if slip is not None:
                sign = str(slip.choice([other for other in "<=>" if other != sign]))
            return Solution(reading, f" {seen[0]} {sign} {seen[1]}.", "yes" if sign == ">" else "no")
        case "tallest" | "shortest" | "choice":
            best = int(np.argmin(seen) if problem.task == "shortest" else np.argmax(seen))
            if slip is not None:
                best = int(slip.choice([index for index in range(len(seen)) if index != best]))
            if problem.kind == "choice":
                return Solution(reading, f" Tallest {seen[best]}, {labels[best]}.", LETTERS[best])
            return Solution(reading, f" {problem.task.capitalize()} {seen[best]}, {labels[best]}.", labels[best])
        case "difference":
            result, working = _arithmetic(sorted(seen, reverse=True), "-", slip)
            return Solution(reading, working, str(result))
        case "even":
            result, working = _arithmetic(seen, "+++", slip)
            parity = "odd" if result % 2 else "even"
            return Solution(reading, f"{working} {result} {parity}.", "no" if result % 2 else "yes")
        case _:
            result, working = _arithmetic(seen, "+-" if problem.task == "expression" else "+++", slip)
            return Solution(reading, working, str(max(result, 0)))


def _sign(left: int, right: int) -> str:
    return "<" if left < right else ">" if left > right else "="


def _miscount(value: int, rng: np.random.Generator) -> int:
    """A number near ``value``, as wrong arithmetic gives it."""
    return max(0, value + int(rng.choice([-10, -2, -1, -1, 1, 1, 2, 10])))


def _arithmetic(terms: list[int], signs: str, slip: np.random.Generator | None) -> tuple[int, str]:
    """Adds and subtracts term by term, e.g. " 7 + 5 = 12. 12 - 3 = 9."; with ``slip`` one step goes wrong."""
    wrong_step = int(slip.integers(1, len(terms))) if slip is not None else 0
    result, working = terms[0], ""
    for step, (term, sign) in enumerate(zip(terms[1:], signs, strict=False), start=1):
        after = result + term if sign == "+" else result - term
        if slip is not None and step == wrong_step:
            after = _miscount(after, slip)
        working += f" {result} {sign} {term} = {after}."
        result = after
    return result, working


def mistaken(problem: Problem, heights: Mapping[str, int], rng: np.random.Generator) -> Solution:
    """A solution with one mistake of the sorts that the small model makes.

    The mistakes: a step of the working goes wrong; the last line contradicts the working; another bar's height is
    read; a height is read one or two off.  What follows the mistake follows from it.
    """
    draw = rng.random()
    if draw < 0.45:
        return solve(problem, heights, rng)
    if draw < 0.6:
        right = solve(problem, heights)
        return Solution(right.reading, right.working, _another_answer(problem, right.answer, rng))
    believed = {name: heights.get(name, 0) for name in problem.colours}
    name = problem.colours[rng.integers(len(problem.colours))]
    others = [height for other, height in heights.items() if other != name]
    if draw < 0.8:
        believed[name] = int(rng.choice(others))
    else:
        believed[name] = int(np.clip(believed[name] + rng.choice([-2, -1, 1, 2]), 0, 9))
    return solve(problem, believed)


def _another_answer(problem: Problem, answer: str, rng: np.random.Generator) -> str:
    """A wrong answer of the right sort."""
    if problem.kind == "yes_no":
        return "no" if answer == "yes" else "yes"
    if answer.isdigit():
        return str(_miscount(int(answer), rng))
    candidates = LETTERS if problem.kind == "choice" else problem.colours
    return str(rng.choice([candidate for candidate in candidates if candidate != answer]))


def draw_item(seed: int, index: int, mix: Mix = MIX) -> tuple[Chart, Problem]:
    """The chart and problem with this number in the sequence of ``seed``, whatever else was drawn."""
    rng = np.random.default_rng([seed, index])
    chart = draw_chart(rng)
    return chart, draw_problem(chart, rng, mix)


def chart_questions(n: int, seed: int, mix: Mix = MIX) -> list[ChartQuestion]:
    """Draws ``n`` questions, each about a chart of its own.

    They are the same for the same seed, and a shorter list is the beginning of a longer one.
    """
    questions = []
    for index in range(n):
        chart, problem = draw_item(seed, index, mix)
        solution = solve(problem, chart.heights)
        questions.append(
            ChartQuestion(
                id=f"chart-{seed}-{index}",
                image=Image.fromarray(chart.pixels),
                question="\n".join(filter(None, (problem.text, problem.options))),
                answer=solution.answer,
                kind=problem.kind,
                task=problem.task,
                rationale=solution.rationale,
                explanation=solution.explanation,
            )
        )
    return questions


def patches(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Cuts pictures into the rows that Qwen2-VL's image processor makes of them, in its order.

    Args:
        images: shape (B, H, W, 3), H and W multiples of 32.

    Returns:
        Shape (B * H/16 * W/16, 3 * 2 * 16 * 16): 16 x 16 patches, ordered by 2 x 2 squares (which the model merges
        into one token each), every picture doubled in time, values scaled to [-1, 1].
    """
    count, height, width, _ = images.shape
    rows, columns = height // 32, width // 32
    scaled = (images.astype(np.float32) / 255.0 - 0.5) / 0.5
    cut = scaled.transpose(0, 3, 1, 2).reshape(count, 3, rows, 2, 16, columns, 2, 16)
    ordered = cut.transpose(0, 2, 5, 3, 6, 1, 4, 7)  # picture, row, column, row and column in the square, channel, y, x
    doubled = np.repeat(ordered[:, :, :, :, :, :, None], 2, axis=6)
    return np.ascontiguousarray(doubled.reshape(count * rows * columns * 4, 3 * 2 * 16 * 16))
