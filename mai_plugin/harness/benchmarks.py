"""The six benchmarks of the paper as the two harnesses know them: this table decides which scores are comparable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from mai_plugin.core.records import Style

BENCHMARKS = ("POPE", "MMMU", "MMBench", "ChartQA", "InfoVQA", "RealWorldQA")


@dataclass(frozen=True)
class Task:
    """A harness's task or data set.

    Attributes:
        benchmark: one of `BENCHMARKS`.
        harness: `lmms-eval` or `VLMEvalKit`.
        split: the part of the benchmark.
        metric: what its headline score is.  Circular accuracy: a question is right if all its rotations are.
        n: questions (rows) in the split; None where we do not know.
        scorer: `rules`, or `judge` where a language model reads what the rules cannot.
        key: the metric's name in the harness's results.
    """

    benchmark: str
    harness: str
    split: str
    metric: str
    n: int | None
    scorer: str
    key: str


def _lmms(benchmark: str, split: str, metric: str, n: int | None, key: str, scorer: str = "rules") -> Task:
    return Task(benchmark, "lmms-eval", split, metric, n, scorer, key)


def _kit(benchmark: str, split: str, metric: str, n: int | None, scorer: str = "rules or judge") -> Task:
    return Task(benchmark, "VLMEvalKit", split, metric, n, scorer, "Overall")


TASKS = {
    "pope": _lmms("POPE", "test", "F1", 9000, "pope_f1_score"),
    "pope_adv": _lmms("POPE", "test, adversarial", "F1", 3000, "pope_f1_score"),
    "pope_pop": _lmms("POPE", "test, popular", "F1", 3000, "pope_f1_score"),
    "pope_random": _lmms("POPE", "test, random", "F1", 3000, "pope_f1_score"),
    "mmmu_val": _lmms("MMMU", "val", "accuracy", 900, "mmmu_acc"),
    "mmbench_en_dev": _lmms("MMBench", "EN dev", "circular accuracy", 4329, "gpt_eval_score", "rules or judge"),
    "mmbench_en_dev_static": _lmms("MMBench", "EN dev", "circular accuracy", 4329, "gpt_eval_score"),
    "chartqa": _lmms("ChartQA", "test", "relaxed accuracy", 2500, "relaxed_overall"),
    "infovqa_val": _lmms("InfoVQA", "val", "ANLS", 2801, "anls"),
    "realworldqa": _lmms("RealWorldQA", "test", "accuracy", 765, "exact_match"),
    "POPE": _kit("POPE", "test", "F1", 5127, "rules"),
    # Its headline is over the validation rows; the 150 of dev are answered too.
    "MMMU_DEV_VAL": _kit("MMMU", "val", "accuracy", 900),
    "MMMU_VAL": _kit("MMMU", "val", "accuracy", 900),
    "MMBench_DEV_EN": _kit("MMBench", "EN dev", "circular accuracy", 4329),
    "MMBench_DEV_EN_V11": _kit("MMBench", "EN dev, v1.1", "circular accuracy", None),
    "MMBench_TEST_EN": _kit("MMBench", "EN test", "circular accuracy", None),
    "MMBench_TEST_EN_V11": _kit("MMBench", "EN test, v1.1", "circular accuracy", None),
    "MMBench_V11": _kit("MMBench", "test, v1.1", "circular accuracy", None),
    "ChartQA_TEST": _kit("ChartQA", "test", "relaxed accuracy", 2500, "rules"),
    "InfoVQA_VAL": _kit("InfoVQA", "val", "ANLS", 2801, "rules"),
    "InfoVQA_TEST": _kit("InfoVQA", "test", "ANLS", None, "rules"),
    "RealWorldQA": _kit("RealWorldQA", "test", "accuracy", 765),
}

PAPER = {
    "POPE": ("test", "F1", 9000),
    "MMMU": ("val", "accuracy", 900),
    "MMBench": ("EN dev", "accuracy", 4329),
    "ChartQA": ("test", "relaxed accuracy", 2500),
    "InfoVQA": ("val", "ANLS", 2801),
    "RealWorldQA": ("test", "accuracy", 765),
}
"""Split, metric and n of the paper's figures.  It names neither splits nor harness: told from n and metric, which are
lmms-eval's.  Whether its MMBench accuracy is circular is not said."""


def task_style(name: str) -> Style | None:
    """How one of our tasks asks by itself: `chartqa_mai_r` in R; None for any other task."""
    found = re.search(r"_mai_([ser])$", name)
    return cast(Style, found[1].upper()) if found else None


def find_task(name: str) -> Task | None:
    """A task by its name in a harness; ours in S, E or R (`chartqa_mai_r`) count as the task that they are made of.

    Returns:
        None for a task of another benchmark.
    """
    base = re.sub(r"_mai_[ser]$", "", name)
    # Ours score MMBench by rules.
    return TASKS.get("mmbench_en_dev_static" if base == "mmbench_en_dev" != name else base)
