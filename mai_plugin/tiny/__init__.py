"""A tiny pair of Qwen3-VL-architecture checkpoints and the synthetic bar charts they were trained on.

The pair exists so that the whole method can run on a laptop CPU within seconds: a small model that is weak in one go
but reasons well, and a large one that is better in one go and can check what the small one wrote.  Both folders are
ordinary Hugging Face checkpoints.  ``python -m training.train`` makes them again from nothing.

This module imports neither torch nor transformers.
"""

from pathlib import Path

SMALL = Path(__file__).parent / "small"
"""Folder of the small checkpoint."""

LARGE = Path(__file__).parent / "large"
"""Folder of the large checkpoint."""

__all__ = ["LARGE", "SMALL"]
