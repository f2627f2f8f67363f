"""PyTorch's first interface for operators of one's own. `torch.library.custom_op` has taken its place; nothing is registered here."""

from . import impl

__all__ = ["impl"]
