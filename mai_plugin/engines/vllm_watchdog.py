"""`python -m mai_plugin.engines.vllm_watchdog PID...`: ends processes once the process that started this one is gone.

An engine with processes of its own starts it beside them: a parent that is killed cannot clean up, and an engine core
left behind holds its GPU's memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil


def watch(pids: Sequence[int]) -> None:
    """Start a process that ends `pids` and their children when this process is gone; it goes when they have."""
    command = [sys.executable, "-m", "mai_plugin.engines.vllm_watchdog", str(os.getpid()), *map(str, pids)]
    # A session of its own: Ctrl-C and a terminal that closes do not reach it.
    subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _main(parent: int, pids: Sequence[int], grace_s: float = 10.0) -> None:
    watched: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            watched += [process, *process.children(recursive=True)]
    while os.getppid() == parent:
        if not any(process.is_running() for process in watched):
            return
        time.sleep(0.5)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in watched:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, watched = psutil.wait_procs(watched, grace_s)


if __name__ == "__main__":
    _main(int(sys.argv[1]), [int(pid) for pid in sys.argv[2:]])
