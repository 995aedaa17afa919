"""Let a torchvision that was built for CUDA import beside a CPU build of torch.  See mend_env.py, which installs this.

Started by a .pth file in every process of the environment, so it must cost nothing: it only registers a finder that
waits for the first import of torchvision, and then declares the two operators that its compiled part would have.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _TorchvisionFinder(MetaPathFinder):
    library = None  # kept alive: a torch library takes its operators along when it is collected

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torchvision":
            return None
        sys.meta_path.remove(self)
        import torch

        _TorchvisionFinder.library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                _TorchvisionFinder.library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
        return None  # the ordinary finders go on from here


sys.meta_path.insert(0, _TorchvisionFinder())
