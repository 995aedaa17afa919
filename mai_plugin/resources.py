"""Where the files that travel with the package are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent

SHIPPED_MODELS = {
    "mai-tiny-small": PACKAGE / "tiny" / "small",
    "mai-tiny-large": PACKAGE / "tiny" / "large",
}
"""Names for the checkpoints of the tiny pair, wherever a model is named."""


def task_configs() -> Path:
    """The folder of presets and task files: at the top of the repository, or inside an installed wheel."""
    inside = PACKAGE / "task_configs"
    return inside if inside.is_dir() else PACKAGE.parent / "task_configs"
