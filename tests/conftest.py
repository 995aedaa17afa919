"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import signal

# Tests are offline and their models tiny: one thread is fastest, and nothing may be looked up on the Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A shell's background job inherits SIGINT ignored, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
