"""torchvision as the judge, also where its compiled operators do not load.

Its wheels are linked against CUDA builds of PyTorch; beside a CPU build the Python part (transforms, models, datasets, utils)
works once the compiled operators' names exist. Those operators themselves then raise, and tests compare with formulas instead.
"""

from __future__ import annotations

from typing import Any

import pytest

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
    torch = pytest.importorskip(
        "torch", reason="compares with torchvision, which needs PyTorch: pip install torch==2.13.0"
    )
    if not hasattr(torch.ops.torchvision, "nms") and not _kept:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor input) -> Tensor")
        _kept.append(library)
    return pytest.importorskip(
        "torchvision",
        reason="compares with torchvision: pip install --no-deps torchvision==0.28.0",
        exc_type=ImportError,
    )
