"""What the large model looks at in some reasoning before it answers: arithmetic on attention rows (paper, table 16).

Runs no model.  Shapes: L decoder layers, H heads, T tokens of the prompt, R of them the reasoning's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from mai_plugin.engines.attention.reasoning import Reasoning

Array = npt.NDArray[Any]

ANSWER, EARLIER, BEFORE, NUMBER, WORD, SIGN = (
    "answer", "earlier answer", "just before", "other numbers", "other words", "other signs",
)  # fmt: skip
GROUPS = (ANSWER, EARLIER, BEFORE, NUMBER, WORD, SIGN)
"""Groups of tokens.  `ANSWER` is every mention of the answer that the reasoning states; all else is a number, a word,
or a sign (punctuation and spaces).  Two more overlap with these: `EARLIER` is every mention but the last, which may be
looked at for its place at the end; `BEFORE` is the token in front of each mention, where a causal model has the answer
in mind without having read it."""


@dataclass(frozen=True)
class GroupWeight:
    """One group's tokens in one reasoning: how many, their share of the weight `[L]`, and the rank of the best `[L]`.

    Rank 1 is the token with the most weight of the whole reasoning; tokens of equal weight share the better rank.
    """

    tokens: int
    weight: Array
    rank: Array


@dataclass(frozen=True)
class Look:
    """What one prompt's last token looks at in its reasoning.

    Attributes:
        question_id, task: which question it is, and of what.
        tokens: R.
        cut: the token limit cut the reasoning.
        set_size: `[L]`, size of the smallest set of tokens that holds `keep` of the weight averaged over heads.
        head_set_size: `[L, H]`, the same of each head.
        on_reasoning: `[L]`, the reasoning's share of all attention; the rest is on the image, the question and so on.
        groups: weight by group; without groups that have no token here, and empty if no answer is stated.
    """

    question_id: str
    task: str
    tokens: int
    cut: bool
    set_size: Array
    head_set_size: Array
    on_reasoning: Array
    groups: Mapping[str, GroupWeight]


@dataclass(frozen=True)
class Measured:
    """A look with what it is of: the texts of the reasoning's R tokens, and their weights averaged over heads.

    The weights, `[L, R]`, sum to 1 over the reasoning.
    """

    look: Look
    tokens: list[str]
    weights: Array


def look_at(
    rows: Array, reasoning: Reasoning, answer: str | None, keep: float, *, question_id: str, task: str, cut: bool
) -> Measured:
    """Measure one prompt.

    Args:
        rows: attention of the prompt's last token, `[L, H, T]`.
        reasoning: where the reasoning is in the prompt; it has at least one token.
        answer: the answer that the reasoning states, None if it states none.
        keep: share of the weight, above 0 and at most 1.
        question_id, task, cut: as in `Look`.
    """
    own = np.asarray(rows, np.float64)[:, :, reasoning.first : reasoning.first + len(reasoning.spans)]
    weights = _normalised(own.mean(1))
    masks = token_groups(reasoning, answer) if answer is not None else {}
    ranks = rankdata(-weights, method="min", axis=-1)
    look = Look(
        question_id=question_id,
        task=task,
        tokens=own.shape[-1],
        cut=cut,
        set_size=set_size(weights, keep),
        head_set_size=set_size(_normalised(own), keep),
        on_reasoning=own.sum(-1).mean(-1),
        groups={
            name: GroupWeight(int(mask.sum()), weights[:, mask].sum(-1), ranks[:, mask].min(-1))
            for name, mask in masks.items()
            if mask.any()
        },
    )
    return Measured(look, reasoning.tokens, weights)


def set_size(weights: Array, keep: float) -> Array:
    """Size of the smallest sets that hold a share of the weight, along the last axis; counts as `smallest_set` does.

    Args:
        weights: `[..., R]`, not negative.
        keep: a share, above 0 and at most 1.
    """
    if keep >= 1:
        return np.full(weights.shape[:-1], weights.shape[-1], np.int32)
    held = np.cumsum(-np.sort(-weights, axis=-1), axis=-1)
    goal = keep * weights.sum(-1, keepdims=True) * (1 - 1e-9)  # a sum in another order is off by its rounding
    size: Array = np.minimum((held < goal).sum(-1, dtype=np.int32) + 1, weights.shape[-1])
    return size


def token_groups(reasoning: Reasoning, answer: str) -> dict[str, npt.NDArray[np.bool_]]:
    """Which tokens belong to which of `GROUPS`, as masks `[R]`; a token counts to an answer that it has any part of.

    A mention is the whole answer between word borders, so that 7 is not in 17 or 7.5; a single letter (an option's)
    counts in its own case only.
    """
    flags = 0 if len(answer) == 1 else re.IGNORECASE
    mentions = [
        found.span()
        for found in re.finditer(rf"(?<!\w)(?<!\d[.,]){re.escape(answer)}(?!\w|[.,]\d)", reasoning.text, flags)
    ]

    def within(places: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        return np.array(
            [any(start < right and left < end for left, right in places) for start, end in reasoning.spans], bool
        )

    stated = within(mentions)
    before = np.append(stated[1:] & ~stated[:-1], False)
    digit = np.array([bool(re.search(r"\d", token)) for token in reasoning.tokens], bool)
    word = np.array([bool(re.search(r"\w", token)) for token in reasoning.tokens], bool)
    return {
        ANSWER: stated,
        EARLIER: within(mentions[:-1]),
        BEFORE: before,
        NUMBER: ~stated & digit,
        WORD: ~stated & ~digit & word,
        SIGN: ~stated & ~word,
    }


@dataclass(frozen=True)
class Lift:
    """The weight on a group of tokens at one layer, against their number; means over the questions that have any.

    Attributes:
        n: questions.
        weight, tokens: the group's share of the weight, and of the tokens.
        rank: median rank of the group's best token; 1 is the best.
        chance_rank: what its mean would be if ranks were drawn at random: (R + 1) / (tokens of the group + 1).
        first: share of questions whose token of rank 1 is in the group.
    """

    n: int
    weight: float
    tokens: float
    rank: float
    chance_rank: float
    first: float

    @property
    def lift(self) -> float:
        """Share of the weight over share of the tokens: 1 if the model did not tell these tokens from others."""
        return self.weight / self.tokens


@dataclass(frozen=True)
class TopToken:
    """A token's text with its share of the weight and of the tokens, means over questions."""

    text: str
    weight: float
    tokens: float


@dataclass(frozen=True)
class Layer:
    """One layer, means over questions.

    Attributes:
        layer: its number, from 0.
        share, tokens: share and number of the reasoning's tokens that hold `keep` of the weight averaged over heads.
        head_shares: the share of each head by itself.
        on_reasoning: the reasoning's share of all attention.
        top_tokens: those whose share of the weight exceeds their share of the tokens by most.
        groups: by group, over the questions whose reasoning states an answer.
    """

    layer: int
    share: float
    tokens: float
    head_shares: tuple[float, ...]
    on_reasoning: float
    top_tokens: tuple[TopToken, ...]
    groups: Mapping[str, Lift]


@dataclass
class Reading:
    """All questions as the large model reads them after one model's reasoning; grows question by question."""

    looks: list[Look] = field(default_factory=list)
    _shares: dict[str, float] = field(default_factory=dict)
    _weights: dict[str, Array] = field(default_factory=dict)

    def add(self, measured: Measured) -> None:
        """Take a question in.  Its weights are summed by the tokens' texts, so that memory does not grow with R."""
        self.looks.append(measured.look)
        for token, weight in zip(map(shown, measured.tokens), measured.weights.T, strict=True):
            self._shares[token] = self._shares.get(token, 0.0) + 1 / len(measured.tokens)
            self._weights[token] = self._weights.get(token, 0) + weight

    @property
    def answered(self) -> int:
        """Questions whose reasoning states an answer."""
        return sum(bool(look.groups) for look in self.looks)

    @property
    def mean_tokens(self) -> float:
        """Mean number of reasoning tokens."""
        return float(np.mean([look.tokens for look in self.looks]))

    def layers(self, top: int = 5) -> list[Layer]:
        """Means over the questions, layer by layer, with the `top` tokens of each."""
        lengths = np.array([look.tokens for look in self.looks])
        sizes = np.stack([look.set_size for look in self.looks])
        head_sizes = np.stack([look.head_set_size for look in self.looks])
        shares = (sizes / lengths[:, None]).mean(0)
        head_shares = (head_sizes / lengths[:, None, None]).mean(0)
        on_reasoning = np.stack([look.on_reasoning for look in self.looks]).mean(0)
        return [
            Layer(
                layer=layer,
                share=float(shares[layer]),
                tokens=float(sizes[:, layer].mean()),
                head_shares=tuple(map(float, head_shares[layer])),
                on_reasoning=float(on_reasoning[layer]),
                top_tokens=self._top(layer, top),
                groups=lifts(self.looks, layer),
            )
            for layer in range(sizes.shape[1])
        ]

    def tasks(self) -> dict[str, list[Look]]:
        """The questions by task."""
        found: dict[str, list[Look]] = {}
        for look in self.looks:
            found.setdefault(look.task, []).append(look)
        return found

    def _top(self, layer: int, count: int) -> tuple[TopToken, ...]:
        n = len(self.looks)
        tokens = [
            TopToken(text, float(weights[layer]) / n, self._shares[text] / n) for text, weights in self._weights.items()
        ]
        tokens.sort(key=lambda token: (token.tokens - token.weight, token.text))
        return tuple(tokens[:count])


def lifts(looks: Iterable[Look], layer: int) -> dict[str, Lift]:
    """The groups' weights at one layer, means over those of the questions that have tokens of the group."""
    looks = list(looks)
    found = {}
    for name in GROUPS:
        have = [(look, look.groups[name]) for look in looks if name in look.groups]
        if not have:
            continue
        ranks = np.array([group.rank[layer] for _, group in have])
        found[name] = Lift(
            n=len(have),
            weight=float(np.mean([group.weight[layer] for _, group in have])),
            tokens=float(np.mean([group.tokens / look.tokens for look, group in have])),
            rank=float(np.median(ranks)),
            chance_rank=float(np.mean([(look.tokens + 1) / (group.tokens + 1) for look, group in have])),
            first=float((ranks == 1).mean()),
        )
    return found


def shown(token: str) -> str:
    """A token as tables show it: without the spaces around it; quoted if it is nothing else, or cannot be printed."""
    bare = token.strip()
    return bare if bare and bare.isprintable() else json.dumps(bare or token)


def _normalised(weights: Array) -> Array:
    """Weights that sum to 1 along the last axis; equal ones where they sum to 0, as in `Reasoning.weights`."""
    whole = weights.sum(-1, keepdims=True)
    normalised: Array = np.full_like(weights, 1 / weights.shape[-1])
    np.divide(weights, whole, out=normalised, where=whole > 0)
    return normalised
