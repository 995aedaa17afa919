"""Packs charts and groups of text into training batches.

Each row of a batch holds one chart and several groups of text behind it: short answers, rationales, explanations and
second turns.  A block mask lets every group see the chart and itself only, so the chart is read once for all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor

from mai_plugin.tiny.charts import (
    HEIGHT,
    NAMES,
    PLACES,
    TRAINING_MIX,
    WIDTH,
    Chart,
    Mix,
    Problem,
    Solution,
    draw_chart,
    draw_item,
    draw_problem,
    mistaken,
    patches,
    solve,
)
from training.checkpoint import train_tokenizer
from training.wording import (
    END,
    FORMS,
    IMAGE,
    IMAGE_TOKENS,
    TO_ASSISTANT,
    TO_USER,
    USER,
    WORDINGS,
    asking_text,
    draw_form,
    short_text,
)

_ROWS, _COLUMNS = HEIGHT // 32, WIDTH // 32
_VOCABULARY = 768
IGNORED = -100
"""The target of tokens that a loss leaves out."""


@dataclass(frozen=True)
class Recipe:
    """What the groups of a row are and what they weigh.

    Attributes:
        groups: one letter for each group of a row: S (short answer), R (rationale; sometimes an explanation), F (a
            rationale or an explanation, then the bare answer in a second turn).
        short_weight: weight of the answer's tokens in S; those of R weigh 1.
        final_weight: weight of the answer's tokens in F.
        wrong_share: share of F groups whose first turn is wrong.  That turn carries no loss, and the answer asked for
            is the right one: what is written has to be checked against the chart.
        explain_share: share of R and F groups that explain instead of reasoning.
        read_share: share of rows whose first F group holds a real rationale of another model, where those are given.
        read_wrong_share: share of wrong ones among these.
    """

    groups: str
    short_weight: float
    final_weight: float
    wrong_share: float = 0.0
    explain_share: float = 0.2
    read_share: float = 0.0
    read_wrong_share: float = 0.6


@dataclass(frozen=True)
class Rationale:
    """Another model's rationale about item ``index`` of the sequence ``seed`` of charts."""

    seed: int
    index: int
    text: str
    right: bool


@dataclass(frozen=True)
class Scored:
    """Where a batch holds an answer whose accuracy is worth counting: tokens ``first`` to ``last`` of a row."""

    form: str
    task: str
    row: int
    first: int
    last: int


@dataclass
class _Row:
    """The tokens of a row while it is built, each with its weight in the loss and the number of its group."""

    tokens: list[int]
    weights: list[float]
    groups: list[int]
    positions: list[npt.NDArray[np.int64]]
    scored: list[Scored] = field(default_factory=list)

    def add(self, tokens: list[int], weight: float, group: int) -> None:
        self.tokens += tokens
        self.weights += [weight] * len(tokens)
        self.groups += [group] * len(tokens)


@dataclass(frozen=True)
class Batch:
    """One batch of B rows, padded to L tokens.

    Attributes:
        pixels: patches of all charts, (B * 48, 1536).
        tokens: (B, L).
        weights: weight of each token in the loss as a target, (B, L).
        positions: time, height and width position, (3, B, L).
        mask: who sees whom, (B, 1, L, L), boolean.
        shown: for each image token the words for colour and height of its column, (B * 12, 2).
        heights: for each colour name outside of what the model itself is to write, the word for the height of that
            bar; -100 for all other tokens, (B, L).
        scored: the answers to count.
    """

    pixels: Tensor
    tokens: Tensor
    weights: Tensor
    positions: Tensor
    mask: Tensor
    shown: Tensor
    heights: Tensor
    scored: list[Scored]


def build_tokenizer() -> Tokenizer:
    """Trains the pair's tokenizer on the texts of training; the same whatever the training seed."""
    texts: list[str] = []
    for index in range(600):
        chart, problem = draw_item(0, index, TRAINING_MIX)
        solution = solve(problem, chart.heights)
        texts.append("user\n" + problem.text)
        texts += [f"assistant\n{text}" for text in (solution.answer, solution.rationale)]
        texts += [form[problem.kind] for form in WORDINGS.values()]
        texts += [short_text(problem, form) for form in FORMS[problem.kind]]
        texts.append("system\nYou are a helpful assistant.")
    texts += [f"assistant\n{name}" for name in NAMES] * 40
    texts += [f"{name} {name} no" for name in NAMES] * 40
    return train_tokenizer(texts, _VOCABULARY)


class BatchMaker:
    """Draws random batches for one recipe."""

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe, rationales: Iterable[Rationale] = ()) -> None:
        """Prepares what all rows share: the tokens of the chart and their positions."""
        self._tokenizer = tokenizer
        self._recipe = recipe
        rationales = list(rationales)
        self._right = [rationale for rationale in rationales if rationale.right]
        self._wrong = [rationale for rationale in rationales if not rationale.right]
        self._known: dict[str, list[int]] = {}
        self._prefix = self._encode(USER + IMAGE)
        before = len(self._encode(USER)) + 1
        after = before + IMAGE_TOKENS
        self._prefix_positions = np.zeros((3, len(self._prefix)), np.int64)
        self._prefix_positions[:, :before] = np.arange(before)
        down, right = np.meshgrid(np.arange(_ROWS), np.arange(_COLUMNS), indexing="ij")
        self._prefix_positions[:, before:after] = before + np.stack([np.zeros_like(down), down, right]).reshape(3, -1)
        self._text_start = before + max(_ROWS, _COLUMNS)
        self._prefix_positions[:, after:] = self._text_start
        self._padding = tokenizer.token_to_id("<|endoftext|>")
        self._colour_words = {name: self._word(f" {name}") for name in NAMES}
        self._first_words = {name: self._word(name) for name in NAMES}
        self._height_words = [self._word(str(height)) for height in range(10)]
        self._nothing = self._word(" no")

    def _encode(self, text: str) -> list[int]:
        if text not in self._known:
            if len(self._known) > 200_000:
                self._known.clear()
            self._known[text] = self._tokenizer.encode(text).ids
        return self._known[text]

    def _word(self, text: str) -> int:
        tokens = self._encode(text)
        if len(tokens) != 1:
            raise ValueError(f"{text!r} should be one token")
        return tokens[0]

    def draw(self, rng: np.random.Generator, size: int, mix: Mix) -> Batch:
        """Draws a batch of ``size`` rows with questions in the shares of ``mix``."""
        charts: list[Chart] = []
        rows: list[_Row] = []
        for number in range(size):
            real = self._draw_rationale(rng)
            if real is None:
                chart, problem = draw_chart(rng), None
            else:
                chart, problem = draw_item(real.seed, real.index, TRAINING_MIX)
            row = _Row(list(self._prefix), [0.0] * len(self._prefix), [0] * len(self._prefix), [self._prefix_positions])
            for group, letter in enumerate(self._recipe.groups, start=1):
                start = len(row.tokens)
                if letter == "F" and real is not None and problem is not None:
                    self._add_final(row, number, group, problem, chart, real.text, real.right, rng)
                    real = None
                else:
                    self._add_group(row, number, group, letter, chart, draw_problem(chart, rng, mix), rng)
                length = len(row.tokens) - start
                line = np.arange(self._text_start + 1, self._text_start + 1 + length)
                row.positions.append(np.broadcast_to(line, (3, length)))
            charts.append(chart)
            rows.append(row)
        return self._pad(charts, rows)

    def _draw_rationale(self, rng: np.random.Generator) -> Rationale | None:
        if not self._right or not self._wrong or rng.random() >= self._recipe.read_share:
            return None
        pool = self._wrong if rng.random() < self._recipe.read_wrong_share else self._right
        return pool[int(rng.integers(len(pool)))]

    def _add_group(
        self, row: _Row, number: int, group: int, letter: str, chart: Chart, problem: Problem, rng: np.random.Generator
    ) -> None:
        """Adds one group that is made up from the chart."""
        if letter == "S":
            right = solve(problem, chart.heights)
            row.add(self._encode(short_text(problem, draw_form(problem.kind, rng)) + TO_ASSISTANT), 0.0, group)
            self._add_answer(row, number, group, right.answer, self._recipe.short_weight, "S", problem.task)
            return
        strategy = "explain" if rng.random() < self._recipe.explain_share else "reason"

        def text_of(solution: Solution) -> str:
            return solution.explanation if strategy == "explain" else solution.rationale

        if letter == "R":
            text = text_of(solve(problem, chart.heights))
            self._add_asking(row, group, problem, strategy, rng)
            self._add_answer(row, number, group, text, 1.0, "E" if strategy == "explain" else "R", problem.task)
            return
        is_right = bool(rng.random() >= self._recipe.wrong_share)
        solution = solve(problem, chart.heights) if is_right else mistaken(problem, chart.heights, rng)
        self._add_final(row, number, group, problem, chart, text_of(solution), is_right, rng, strategy)

    def _add_final(
        self,
        row: _Row,
        number: int,
        group: int,
        problem: Problem,
        chart: Chart,
        reasoning: str,
        is_right: bool,
        rng: np.random.Generator,
        strategy: str = "reason",
    ) -> None:
        """Adds two turns: some reasoning, then the bare answer, which is always the right one."""
        self._add_asking(row, group, problem, strategy, rng)
        row.add(self._encode(reasoning + END), 1.0 if is_right else 0.0, group)
        second = TO_USER.removeprefix(END) + WORDINGS["final"][problem.kind] + TO_ASSISTANT
        row.add(self._encode(second), 0.0, group)
        name = "F" if is_right else "F-wrong"
        answer = solve(problem, chart.heights).answer
        self._add_answer(row, number, group, answer, self._recipe.final_weight, name, problem.task)

    def _add_asking(self, row: _Row, group: int, problem: Problem, strategy: str, rng: np.random.Generator) -> None:
        text = asking_text(problem, draw_form(problem.kind, rng), strategy)
        row.add(self._encode(text + TO_ASSISTANT), 0.0, group)

    def _add_answer(self, row: _Row, number: int, group: int, text: str, weight: float, form: str, task: str) -> None:
        first = len(row.tokens)
        row.add(self._encode(text + END), weight, group)
        row.scored.append(Scored(form, task, number, first, len(row.tokens)))

    def _pad(self, charts: Sequence[Chart], rows: Sequence[_Row]) -> Batch:
        """Pads rows to equal length and turns all into tensors."""
        size, length = len(rows), max(len(row.tokens) for row in rows)
        tokens = np.full((size, length), self._padding)
        weights = np.zeros((size, length), np.float32)
        groups = np.full((size, length), -1)
        positions = np.zeros((3, size, length), np.int64)
        shown = np.full((size, _ROWS, PLACES, 2), self._nothing)
        heights = np.full((size, length), IGNORED)
        for number, (chart, row) in enumerate(zip(charts, rows, strict=True)):
            end = len(row.tokens)
            tokens[number, :end], weights[number, :end], groups[number, :end] = row.tokens, row.weights, row.groups
            positions[:, number, :end] = np.concatenate(row.positions, 1)
            for place, (name, height) in zip(chart.places, chart.heights.items(), strict=True):
                shown[number, :, place] = self._colour_words[name], self._height_words[height]
            for name in NAMES:
                here = np.isin(tokens[number], (self._colour_words[name], self._first_words[name]))
                heights[number, here] = self._height_words[chart.heights.get(name, 0)]
        heights[:, :-1][weights[:, 1:] > 0] = IGNORED
        group = torch.from_numpy(groups)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & ((group[:, :, None] == group[:, None, :]) | (group[:, None, :] == 0))
        return Batch(
            pixels=torch.from_numpy(patches(np.stack([chart.pixels for chart in charts]))),
            tokens=torch.from_numpy(tokens),
            weights=torch.from_numpy(weights),
            positions=torch.from_numpy(positions),
            mask=mask[:, None],
            shown=torch.from_numpy(shown.reshape(-1, 2)),
            heights=torch.from_numpy(heights),
            scored=[scored for row in rows for scored in row.scored],
        )
