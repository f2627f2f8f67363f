"""`torch.utils.hooks`: handles that `register_forward_hook` and similar methods return, and hooks that are not saved with a tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ..core.hook_tables import RemovableHandle
from ..core.tensor import Tensor

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable) -> Callable:
    """Mark a hook that need not be saved, so that saving its tensor does not warn."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn of hooks that will be lost when this tensor is saved."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the"
                " function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )
