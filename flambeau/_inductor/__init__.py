"""Settings of PyTorch's code generator, which programs that compile for a GPU make."""

from . import config

__all__ = ["config"]
