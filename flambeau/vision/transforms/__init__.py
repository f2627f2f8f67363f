"""Transforms of images, with torchvision's names, numbers and random draws.

The classes here are the classic ones; `v2` has the newer generation, which also takes boxes, masks and videos. Both work on tensors
(..., C, H, W) and on PIL images (with Pillow installed).

>>> import flambeau
>>> from flambeau.vision import transforms
>>> crop = transforms.Compose([transforms.Resize(8), transforms.CenterCrop(6)])
>>> crop(flambeau.rand(3, 16, 12)).shape
torch.Size([3, 6, 6])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import naming as _naming
from . import basic, functional, geometric, photometric
from .autoaugment import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from .basic import *
from .geometric import *
from .interpolation import InterpolationMode
from .photometric import *

if TYPE_CHECKING:
    from . import v2

__all__ = [
    *basic.__all__, *geometric.__all__, *photometric.__all__, "AugMix", "AutoAugment", "AutoAugmentPolicy",
    "InterpolationMode", "RandAugment", "TrivialAugmentWide", "functional", "v2",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import `v2` on first use."""
    if name == "v2":
        return _naming.submodule(__name__, "v2")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
