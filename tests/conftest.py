"""Fixtures shared by all tests."""

from __future__ import annotations

import os

# Tests are offline and their models tiny: one thread is fastest, and nothing may be looked up on the Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
