"""torchvision as the judge, also where its compiled operators do not load.

Its wheels are linked against CUDA builds of PyTorch; beside a CPU build the Python part (transforms, models, datasets, utils)
works once the compiled operators' names exist. Those operators themselves then raise, and tests compare with formulas instead.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from answers import judge
from answers.session import SESSION

_OPERATORS = [
    "nms",
    "qnms",
    "roi_align",
    "qroi_align",
    "_roi_align_backward",
    "ps_roi_align",
    "_ps_roi_align_backward",
    "roi_pool",
    "_roi_pool_backward",
    "ps_roi_pool",
    "_ps_roi_pool_backward",
    "deform_conv2d",
    "_deform_conv2d_backward",
]
_kept: list[Any] = []  # a library's definitions live as long as the object


def torchvision() -> Any:
    """The torchvision module, or the test is skipped."""
    if SESSION.mode != "replay" and importlib.util.find_spec("torchvision") is not None:
        _name_operators(importlib.import_module("torch"))
    return judge("torchvision", exc_type=ImportError)


def _name_operators(torch: Any) -> None:
    """Let torchvision be imported where its compiled operators are not."""
    if not hasattr(torch.ops.torchvision, "nms") and not _kept:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor input) -> Tensor")
        _kept.append(library)
