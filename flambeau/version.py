"""`torch.version`: versions of the build. Nothing is compiled here, and no GPU toolkit is used."""

from __future__ import annotations

from .torch_version import TORCH_VERSION

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = TORCH_VERSION
debug = False
git_version = "unknown"
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
