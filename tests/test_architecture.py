"""The package's shape: no circles among its modules, layers that hold, and limits of size."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "mai_plugin").rglob("*.py"))
LINES_OF_A_MODULE = 400
LINES_OF_THE_PACKAGE = 17_450


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_circle_among_the_modules() -> None:
    """Imports inside functions and those for type checkers alone count too."""
    graph = grimp.build_graph("mai_plugin", cache_dir=None)
    assert len(graph.modules) == len(MODULES)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(error.args[1])}")


def test_the_layers_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_no_module_is_long() -> None:
    assert {str(path.relative_to(ROOT)): lines(path) for path in MODULES if lines(path) > LINES_OF_A_MODULE} == {}


def test_the_package_does_not_grow() -> None:
    """A ceiling to be lowered: 15,500 lines are wanted."""
    assert sum(map(lines, MODULES)) <= LINES_OF_THE_PACKAGE
