"""Which tier each test belongs to, by what it costs; and what all tests share.

`pytest --fast` runs the tests without a mark of `TIERS`, and does not import the files whose every test has one:
importing PyTorch, lmms-eval and vLLM takes longer than the fast tests do.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

# Tests are offline and their models tiny: one thread is fastest, and nothing may be looked up on the Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A shell's background job inherits SIGINT ignored, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TIERS = ("vllm", "harness", "kit", "browser", "slow", "models")

# Files and folders, relative to this one, of which every test costs what the mark says.
PLACES = {
    "engines/attention/test_reasoning.py": "models",
    "engines/attention/test_rows.py": "models",
    "engines/attention/test_select.py": "models",
    "engines/test_openai_vllm.py": "vllm",
    "engines/test_speculative.py": "models",
    "engines/test_transformers.py": "models",
    "engines/test_vllm.py": "vllm",
    "harness/lmms_eval/test_command_line.py": "harness",
    "harness/lmms_eval/test_model.py": "harness",
    "harness/lmms_eval/test_scorers.py": "harness",
    "harness/lmms_eval/test_tasks.py": "harness",
    "harness/lmms_eval/test_tiny_pair.py": "harness",
    "harness/vlmevalkit/test_command_line.py": "kit",
    "harness/vlmevalkit/test_prompts.py": "kit",
    "harness/vlmevalkit/test_scorers.py": "kit",
    "report/test_end_to_end.py": "harness",
    "run/test_families.py": "models",
    "study/attention/test_command.py": "models",
    "study/attention/test_measures.py": "models",
    "study/attention/test_study.py": "models",
    "study/profile/test_command.py": "models",
    "study/profile/test_models.py": "models",
    "study/profile/test_parts.py": "models",
    "study/profile/test_profiler.py": "models",
    "study/reproduce/test_end_to_end.py": "harness",
    "training": "models",
}
FIXTURES = {
    "browser": "browser",
    "here": "harness",
    "offline": "harness",
    "papers_runs": "slow",
    "tasks_of_lmms_eval": "harness",
}
# Single tests in files of cheap ones.
TESTS = {
    "test_environment": "models",
    "test_mmbench_counts_a_question_with_its_circular_variants_once": "harness",
    "test_mmbench_that_a_judge_scored_is_not_scored": "harness",
    "test_mmbench_with_another_aggregate_is_an_error_where_rules_decide": "harness",
    "test_on_a_gpu_marks_are_events_and_only_start_and_read_wait": "models",
    "test_records_of_several_runs_have_no_aggregate_of_the_harness": "harness",
    "test_replayed_mai_is_a_real_run": "models",
    "test_several_urls_on_lmms_evals_command_line": "harness",
    "test_what_lmms_eval_makes_of_the_arguments_is_what_was_meant": "harness",
}
GROUPS = {
    "vllm": ("tests/engines/test_vllm.py", "tests/engines/test_openai_vllm.py"),
    "kit": ("tests/harness/vlmevalkit/",),
    "harness": ("tests/harness/lmms_eval/test_model.py", "tests/harness/lmms_eval/test_scorers.py", "tests/harness/lmms_eval/test_tasks.py", "tests/harness/lmms_eval/test_results.py", "tests/study/reproduce/test_plan.py", "tests/study/attention/test_questions.py"),
    "command line": ("tests/harness/lmms_eval/test_command_line.py", "tests/report/test_end_to_end.py"),
}  # fmt: skip
HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help=f"leave out the tests marked {', '.join(TIERS)}")


def place(path: Path) -> str | None:
    """The mark of a file's or folder's place."""
    relative = path.relative_to(HERE)
    return next((PLACES[str(at)] for at in (relative, *relative.parents) if str(at) in PLACES), None)


def tier(item: pytest.Item) -> int:
    """Where in `TIERS` a test's first mark is; their number if it has none."""
    return next((number for number, mark in enumerate(TIERS) if item.get_closest_marker(mark)), len(TIERS))


def group(nodeid: str) -> str:
    """Tests of a group run in one process, so that their fixtures are made once: a file's, or those of `GROUPS`."""
    return next((name for name, places in GROUPS.items() if nodeid.startswith(places)), nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out whole groups.  xdist's own way, --dist loadgroup, has no effect with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Groups(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the conftest's own folder: files whose every test is left out, and the helpers, which are no doctests."""
    left_out = config.getoption("--fast") and place(collection_path)
    return True if left_out or collection_path.name == "helpers" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    marks = {FIXTURES.get(name) for name in getattr(item, "fixturenames", ())}
    marks.add(TESTS.get(getattr(item, "originalname", item.name)))
    if item.path.is_relative_to(HERE):
        marks.add(place(item.path))
    for mark in sorted(filter(None, marks)):
        item.add_marker(mark)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        left_out = [item for item in items if tier(item) < len(TIERS)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if tier(item) == len(TIERS)]
    else:
        # What takes longest starts first, so that no worker is left with it at the end.
        first: dict[str, int] = {}
        for item in items:
            first[group(item.nodeid)] = min(tier(item), first.get(group(item.nodeid), len(TIERS)))
        items.sort(key=lambda item: first[group(item.nodeid)])
