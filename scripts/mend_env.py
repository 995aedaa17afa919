"""Mend an environment in which a CPU build of torch stands beside companions that were built for CUDA.

    python scripts/mend_env.py        # in the environment to look at

pip can put `torch 2.x+cpu` beside `torchvision`, `torchaudio` and `torchcodec` from an index that holds CUDA builds
only.  Their compiled parts then fail to load: torchaudio and torchcodec break imports of transformers and datasets,
torchvision dies with "operator torchvision::nms does not exist" although its pure-torch transforms, the only part
that image processors use, would work.  This script removes the first two, and for torchvision declares the two
operators before its first import (`torchvision_cpu.py`, started by a .pth file).  Where all builds match, as on any
machine that took them from one index, it does nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOOK = Path(__file__).with_name("torchvision_cpu.py")


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    torch = installed("torch")
    mismatched = [
        name
        for name in ("torchvision", "torchaudio", "torchcodec")
        if torch and torch.endswith("+cpu") and (found := installed(name)) and not found.endswith("+cpu")
    ]
    if not mismatched:
        print("mend_env: torch and its companions match, nothing to do")
        return
    remove = [name for name in mismatched if name != "torchvision"]
    if remove:
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "-q", "-y", *remove], check=True)
        print(f"mend_env: removed {', '.join(remove)}: built for CUDA, beside torch {torch}")
    if "torchvision" in mismatched:
        site = Path(sysconfig.get_paths()["purelib"])
        shutil.copy(HOOK, site / "_mai_torchvision_cpu.py")
        (site / "_mai_torchvision_cpu.pth").write_text("import _mai_torchvision_cpu\n")
        print(f"mend_env: torchvision {installed('torchvision')} will import beside torch {torch}")


if __name__ == "__main__":
    main()
