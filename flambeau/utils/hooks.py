"""`torch.utils.hooks`: what `register_forward_hook` and its kin return."""

from ..nn.modules.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
