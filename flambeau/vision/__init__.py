"""Computer vision, with torchvision's interface: transforms, models, datasets, operators, image files, drawing.

Each subpackage is imported when first used. Pillow (the extra `vision`) is needed only for PIL images and image files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import naming as _naming
from ..torch_version import TORCHVISION_VERSION

if TYPE_CHECKING:
    from . import datasets, io, models, ops, transforms, tv_tensors, utils

_SUBMODULES = ("datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils")

__version__ = TORCHVISION_VERSION  # the one that is followed

__all__ = ["datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils"]


def __getattr__(name: str) -> Any:
    """Import subpackages on first use."""
    if name in _SUBMODULES:
        return _naming.submodule(__name__, name)
    raise _naming.no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
